"""``federated begin|contribute|combine|adopt``: several people, one adapter, no turn shared."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from clawback.terminal import CommandGroup, as_record, current_home, emit, json_option, needs
from clawback.terminal.progress_bar import waiting

if TYPE_CHECKING:
    from clawback.extensions.federated.aggregate import Rule
    from clawback.extensions.federated.federating import Aggregation

FOLDER = click.argument("folder", type=click.Path(path_type=Path))


@click.group(cls=CommandGroup)
def federated() -> None:
    """Train one adapter with others through a shared folder. Ratings and turns stay private; only changes of weights are shared.

    Who begins it founds it, and invites members by their public keys. Each member's changes are signed.

    \b
    clawback lab federated begin ~/shared/team --name anna
    clawback lab federated join ~/shared/team
    clawback lab federated invite ~/shared/team ben KEY
    clawback lab federated contribute ~/shared/team
    clawback lab federated combine ~/shared/team
    clawback lab federated adopt ~/shared/team
    """


@federated.command()
@FOLDER
@click.option("--rank", type=click.IntRange(1, 256), default=16, show_default=True, help="Of the LoRA.")
@click.option("--seed", default=0, show_default=True, help="Draws the A that all share.")
@click.option(
    "--rule",
    type=click.Choice(["mean", "median", "trimmed", "krum"]),
    help="How updates are put together (default: median; with --noise mean, which it needs).",
)
@click.option(
    "--clip",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Norm that one person's update may have (default: any).",
)
@click.option(
    "--noise",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Noise in clips, for differential privacy (default: none).",
)
@click.option(
    "--step",
    type=click.FloatRange(min=0, max=32),
    default=0.0,
    help="How far the combined change is followed (default: the square root of the number of people).",
)
@click.option(
    "--name", default="", help="Your name as a member (default: the one you first contribute under)."
)
@json_option
@as_record("clawback.extensions.federated.federating:Aggregation", "aggregation")
def begin(folder: Path, rank: int, seed: int, aggregation: Aggregation, name: str, as_json: bool) -> None:
    """Write down what all agree on: your base model, its shapes, rank, rule, clip, noise and step. Your key signs who is a member.

    \b
    clawback lab federated begin ~/shared/team --name anna
    clawback lab federated begin ~/shared/team --clip 1 --noise 4
    """
    needs("torch")
    from clawback.extensions.federated import federating

    usual: Rule = "mean" if aggregation.noise else "median"
    aggregation = replace(aggregation, rule=cast("Rule | None", aggregation.rule) or usual)
    with waiting("reading the base", as_json):
        terms = federating.begin(current_home(), folder, aggregation, rank=rank, seed=seed, name=name)
    text = (
        f"Agreed on in {folder}: {terms.base}, rank {rank}, {aggregation.rule}.\n"
        f"Its terms are {terms.digest}. Tell them to the others by another way than the folder: `clawback lab federated join` shows the same."
    )
    emit(asdict(terms) | {"terms": terms.digest}, text, as_json)


@federated.command()
@json_option
def key(as_json: bool) -> None:
    """Print your public key, by which a founder makes you a member. The private one stays in your home (`federated.key`).

    \b
    clawback lab federated key
    """
    from clawback.extensions.federated import federating

    public = federating.signer(current_home()).public
    emit({"key": public}, public, as_json)


@federated.command()
@FOLDER
@json_option
def join(folder: Path, as_json: bool) -> None:
    """Take part in a federation on its present terms. Compare their hash with what the founder tells you.

    \b
    clawback lab federated join ~/shared/team
    """
    from clawback.extensions.federated import federating

    joined = federating.join(current_home(), folder)
    terms = joined.terms
    lines = [
        f"You take part in {folder}: {terms.base}, rank {terms.rank}, {terms.rule}.",
        f"Its terms are {joined.digest}.",
        f"Founded by the key {terms.founder}. If the founder tells you another one, do not contribute.",
        f"You are a member, as {joined.member}."
        if joined.member
        else f"Your key is {joined.key}. The founder makes you a member: `clawback lab federated invite {folder} NAME {joined.key}`.",
    ]
    data = {"terms": joined.digest, "founder": terms.founder, "key": joined.key, "member": joined.member}
    emit(data, "\n".join(lines), as_json)


@federated.command()
@FOLDER
@click.argument("name")
@click.argument("key")
@json_option
def invite(folder: Path, name: str, key: str, as_json: bool) -> None:
    """Make a person a member, by the key that their `clawback lab federated key` prints. Only the founder can.

    \b
    clawback lab federated invite ~/shared/team ben 3f1c…
    """
    from clawback.extensions.federated import federating

    roster = federating.invite(current_home(), folder, name, key)
    emit(
        dict(roster.members),
        f"{name} is a member. Members: {', '.join(sorted(roster.members))}.",
        as_json,
    )


@federated.command()
@FOLDER
@click.argument("name")
@json_option
def remove(folder: Path, name: str, as_json: bool) -> None:
    """Take a member out: later updates of that person are refused. Only the founder can.

    \b
    clawback lab federated remove ~/shared/team ben
    """
    from clawback.extensions.federated import federating

    roster = federating.remove(current_home(), folder, name)
    emit(
        dict(roster.members),
        f"{name} is no member any more. Members: {', '.join(sorted(roster.members)) or 'none'}.",
        as_json,
    )


@federated.command()
@FOLDER
@click.option(
    "--name", default="", help="Under which a founder enters; members have the name they were invited by."
)
@click.option(
    "--algorithm",
    default="",
    metavar="A",
    help="How to learn (default: from the settings; reinforce for auto).",
)
@click.option("--seed", default=0, show_default=True, help="Of the training.")
@json_option
def contribute(folder: Path, name: str, algorithm: str, seed: int, as_json: bool) -> None:
    """Train on your own ratings, and put the change of weights into the folder, signed with your key.

    \b
    clawback lab federated contribute ~/shared/team
    """
    needs("torch")
    from clawback.extensions.federated import federating
    from clawback.terminal.progress_bar import progress_bar

    with progress_bar(quiet=as_json) as follow:
        path = federating.contribute(
            current_home(), folder, name, algorithm=algorithm, seed=seed, on_progress=follow
        )
    emit({"path": str(path)}, f"Your update is {path}: weights, and no word of yours.", as_json)


@federated.command()
@FOLDER
@click.option(
    "--least",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Updates that must be there; where you are not the founder, more than two thirds of the members.",
)
@click.option("--clear", is_flag=True, help="Remove the single updates afterwards (the founder only).")
@json_option
def combine(folder: Path, least: int, clear: bool, as_json: bool) -> int:
    """Combine the updates of this round, and sign the result. With noise it prints the privacy loss ε so far.

    \b
    clawback lab federated combine ~/shared/team --least 5
    """
    needs("safetensors")
    from clawback.extensions.federated import federating

    done = federating.combine(current_home(), folder, least=least)
    if clear:
        federating.clear(current_home(), folder, done.round)
    lines = [
        f"Round {done.round}: {len(done.people)} updates ({', '.join(done.people)}), a change of norm {done.norm:.3f}."
    ]
    if done.epsilon is not None:
        lines.append(
            f"ε = {done.epsilon:.2f} at δ = 1/{10 * len(done.people)} for a person who took part in all {done.round} rounds."
        )
    lines += [f"Left out: {why}" for why in done.refused]
    emit(asdict(done), "\n".join(lines), as_json)
    return 1 if done.refused else 0


@federated.command()
@FOLDER
@json_option
def adopt(folder: Path, as_json: bool) -> None:
    """Take the federation's adapter as a candidate version. The gate evaluates it by your own ratings.

    \b
    clawback lab federated adopt ~/shared/team
    """
    needs("torch")
    from clawback.extensions.federated import federating

    made = federating.adopt(current_home(), folder)
    emit(
        asdict(made),
        f"It is version {made.number}, a candidate: `clawback versions check {made.number}` judges it, `clawback versions rollback {made.number}` puts it live.",
        as_json,
    )


@federated.command()
@FOLDER
@click.option("--output", required=True, type=click.Path(path_type=Path), help="A new folder for the app.")
@click.option(
    "--rounds", type=click.IntRange(1, 1000), default=1, show_default=True, help="Rounds that the app plays."
)
@click.option(
    "--people",
    type=click.IntRange(1, 10_000),
    default=2,
    show_default=True,
    help="SuperNodes that a round waits for, and updates that it needs. The SuperLink's side has the founder's home.",
)
@click.option(
    "--home",
    "homes",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A home on this machine that takes part in Flower's simulation (repeatable; --people is their number).",
)
@json_option
def flower(
    folder: Path, output: Path, rounds: int, people: int, homes: tuple[Path, ...], as_json: bool
) -> None:
    """Write a Flower app that plays rounds of this federation over a SuperLink and SuperNodes, in place of a shared folder.

    \b
    clawback lab federated flower ~/team --output ~/app --rounds 5 --people 10
    clawback lab federated flower ~/team --output ~/app --home ~/anna --home ~/ben
    flwr run ~/app
    """
    from clawback.extensions.federated import flower as carrier

    made = carrier.write_app(folder, output, rounds=rounds, people=len(homes) or people, homes=homes)
    emit(
        {"path": str(made)},
        f"The app is in {made}: `flwr run {made}` starts it (docs/federated.md).",
        as_json,
    )
