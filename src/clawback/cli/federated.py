"""``federated begin|contribute|combine|adopt``: several people, one adapter, no turn shared."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from clawback.cli.common import current_home, emit, fold, json_option, needs

FOLDER = click.argument("folder", type=click.Path(path_type=Path))


@click.group()
def federated() -> None:
    """Train one adapter with others through a shared folder. Ratings and turns stay private; only changes of weights are shared.

    \b
    clawback federated begin ~/shared/team
    clawback federated contribute ~/shared/team --name anna
    clawback federated combine ~/shared/team
    clawback federated adopt ~/shared/team
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
@json_option
def begin(
    folder: Path,
    rank: int,
    seed: int,
    rule: str | None,
    clip: float,
    noise: float,
    step: float,
    as_json: bool,
) -> None:
    """Write down what all agree on: your base model, rank, rule, clip, noise and step.

    \b
    clawback federated begin ~/shared/team --rule median
    clawback federated begin ~/shared/team --clip 1 --noise 4
    """
    needs("torch")
    from clawback.jobs import federating

    rule = rule or ("mean" if noise else "median")
    terms = federating.begin(
        current_home(), folder, rank=rank, seed=seed, rule=rule, clip=clip, noise=noise, step=step
    )
    emit(asdict(terms), f"Agreed on in {folder}: {terms.base}, rank {rank}, {rule}.", as_json)


@federated.command()
@FOLDER
@click.option("--name", required=True, help="What your update is called.")
@click.option(
    "--algorithm",
    default="",
    metavar="A",
    help="How to learn (default: from the settings; reinforce for auto).",
)
@click.option("--seed", default=0, show_default=True)
@json_option
def contribute(folder: Path, name: str, algorithm: str, seed: int, as_json: bool) -> None:
    """Train on your own ratings, and put the change of weights into the folder.

    \b
    clawback federated contribute ~/shared/team --name anna
    """
    needs("torch")
    from clawback.cli.progress_bar import progress_bar
    from clawback.jobs import federating

    with progress_bar(quiet=as_json) as follow:
        path = federating.contribute(
            current_home(), folder, name, algorithm=algorithm, seed=seed, on_progress=follow
        )
    emit({"path": str(path)}, f"Your update is {path}: weights, and no word of yours.", as_json)


@federated.command()
@FOLDER
@click.option(
    "--least", type=click.IntRange(min=1), default=2, show_default=True, help="Updates that must be there."
)
@click.option("--clear", is_flag=True, help="Remove the single updates afterwards.")
@json_option
def combine(folder: Path, least: int, clear: bool, as_json: bool) -> int:
    """Combine the updates of this round. With noise it prints the privacy loss ε so far.

    \b
    clawback federated combine ~/shared/team --least 5
    """
    needs("safetensors")
    from clawback.jobs import federating

    done = federating.combine(folder, least=least)
    if clear:
        federating.cleared(folder, done.round)
    lines = [
        f"Round {done.round}: {len(done.people)} updates ({', '.join(done.people)}), a change of norm {done.norm:.3f}."
    ]
    if done.epsilon is not None:
        lines.append(
            f"ε = {done.epsilon:.2f} at δ = 1/{10 * len(done.people)} for a person who took part in all {done.round} rounds."
        )
    lines += [f"Left out: {why}" for why in done.refused]
    emit(asdict(done), fold("\n".join(lines)), as_json)
    return 1 if done.refused else 0


@federated.command()
@FOLDER
@json_option
def adopt(folder: Path, as_json: bool) -> None:
    """Take the federation's adapter as a candidate version. The gate evaluates it by your own ratings.

    \b
    clawback federated adopt ~/shared/team
    """
    needs("torch")
    from clawback.jobs import federating

    made = federating.adopt(current_home(), folder)
    emit(
        asdict(made),
        f"It is version {made.number}, a candidate: `clawback gate {made.number}` judges it, `clawback rollback {made.number}` puts it live.",
        as_json,
    )


@federated.command()
@FOLDER
@click.option("--output", required=True, type=click.Path(path_type=Path), help="A new folder for the app.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option(
    "--people",
    type=click.IntRange(1, 10_000),
    default=2,
    show_default=True,
    help="SuperNodes that a round waits for, and updates that it needs.",
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
    clawback federated flower ~/team --output ~/team-app --rounds 5 --people 10
    clawback federated flower ~/team --output ~/team-app --home ~/anna --home ~/ben
    flwr run ~/team-app
    """
    from clawback.jobs import flower as carrier

    made = carrier.write_app(folder, output, rounds=rounds, people=len(homes) or people, homes=homes)
    emit(
        {"path": str(made)},
        f"The app is in {made}: `flwr run {made}` starts it (docs/federated.md).",
        as_json,
    )
