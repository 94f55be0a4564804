"""``raters``: who rates and how far they agree; inviting people, and who is asked about what."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from clawback.errors import UsageError
from clawback.paths import person_of
from clawback.records import OWNER, JsonObject
from clawback.store.invitations import ROLES, Role
from clawback.terminal import (
    CommandGroup,
    as_record,
    current_home,
    emit,
    fold,
    json_option,
    open_store,
    shorten,
)

if TYPE_CHECKING:
    from clawback.feedback.rater_statistics import Raters
    from clawback.store import Store


@click.group(cls=CommandGroup, invoke_without_command=True)
@json_option
@click.pass_context
def raters(context: click.Context, as_json: bool) -> None:
    """Show who rates, how far they agree, and which of their ratings contradict each other.

    κ (Cohen's kappa) is agreement with the other raters beyond chance, over the turns in common (of). drift: a small p
    means that the rater has become kinder (+) or stricter (-). 2σ: ratings far from those of the others. contra: nearly the same
    answers rated both good and bad. weight: how much the rater counts in rewards.

    \b
    clawback raters
    clawback raters invite anna
    clawback raters assign --count 40 --overlap 2
    """
    if context.invoked_subcommand:
        return
    from clawback.feedback.rater_statistics import raters as look

    with open_store() as store:
        found = look(store)
    emit(asdict(found), fold(_table(found)) if found.raters else "Nobody has rated anything yet.", as_json)


@raters.command()
@click.argument("name")
@click.option(
    "--role", type=click.Choice(ROLES), default="rater", show_default=True,
    help="owner: everything. rater: rates what is assigned, and sees nothing else. viewer: reads, and changes nothing.",
)  # fmt: skip
@click.option("--again", is_flag=True, help="Make a new token (and role) and revoke the old one.")
@json_option
def invite(name: str, role: Role, again: bool, as_json: bool) -> None:
    """Give somebody a token of their own. It is shown once; only a hash of it is kept.

    \b
    clawback raters invite anna
    clawback raters invite ben --role viewer
    clawback raters invite anna --again
    CLAWBACK_HOME=~/.clawback/people/ada clawback raters invite ben
    """
    with open_store() as store:
        token = store.invite(name, role, again=again)
    if person := person_of(current_home()):
        token = f"{person}.{token}"  # how a server of many people knows in whose home to look
    address = f"{_url()}/#token={token}"
    text = f"{name} is a{'n' if role == 'owner' else ''} {role}. The page, with their token in it (shown this once):\n{address}"
    emit({"name": name, "role": role, "token": token, "url": address}, text, as_json)


@raters.command(name="list")
@json_option
def list_(as_json: bool) -> None:
    """List who is invited, and how many of their assigned turns are rated.

    \b
    clawback raters list
    """
    with open_store() as store:
        rows = _invited(store)
    lines = [f"{'name':<20}{'role':<8}{'assigned':>9}{'done':>6}"]
    lines += [f"{r['name']:<20}{r['role']:<8}{r['assigned']:>9}{r['done']:>6}" for r in rows]
    emit(
        rows,
        "\n".join(lines) if rows else "Nobody is invited. `clawback raters invite NAME` invites.",
        as_json,
    )


@raters.command()
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> None:
    """Revoke somebody's token. Their ratings stay (`clawback data forget --person rater:NAME` deletes them).

    \b
    clawback raters remove anna
    """
    with open_store() as store:
        gone = store.remove_rater(name)
    emit({"name": gone.name}, f"{gone.name}'s token is good for nothing any more.", as_json)


@raters.command()
@click.argument("source")
@click.argument("person", default=OWNER)
@json_option
def merge(source: str, person: str, as_json: bool) -> None:
    """Record that SOURCE and PERSON (by default you, the owner) are one person, who counts once.

    The only owner of a chat channel in the settings is you without this.

    \b
    clawback raters merge slack:U012
    clawback raters merge telegram:7 rater:anna
    """
    with open_store() as store:
        count = store.identify(source, person)
    text = f"{source} is {person}. {count} pieces of feedback changed hands."
    emit({"source": source, "person": person, "feedback": count}, text, as_json)


@dataclass(frozen=True, slots=True)
class AssignOptions:
    """Which turns are assigned, and to whom."""

    names: tuple[str, ...]
    turns: tuple[int, ...]
    count: int
    overlap: int
    shared: float


@raters.command()
@click.option(
    "--to",
    "names",
    multiple=True,
    metavar="NAME",
    help="A rater; repeatable (default: all raters and owners).",
)
@click.option(
    "--turn",
    "turns",
    multiple=True,
    type=int,
    metavar="ID",
    help="A turn to assign; repeatable (default: the newest unrated).",
)
@click.option(
    "--count", type=click.IntRange(1, 10_000), default=40, show_default=True, help="How many turns."
)
@click.option("--overlap", type=click.IntRange(1, 20), default=2, show_default=True, help="Raters of a shared turn.")  # fmt: skip
@click.option("--shared", type=click.FloatRange(0, 1), default=1.0, show_default=True, help="Share of the turns that go to several raters; the others go to one.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only say what it would do.")
@json_option
@as_record(AssignOptions)
def assign(options: AssignOptions, dry_run: bool, as_json: bool) -> None:
    """Assign turns to raters, each turn to several, so that their agreement can be measured.

    All pairs of raters get about as many turns in common. Nobody sees the others' ratings, or which version answered.

    \b
    clawback raters assign --count 40 --overlap 2
    clawback raters assign --to anna --to ben --turn 3 --turn 7
    clawback raters assign --count 100 --overlap 3 --shared 0.3
    """
    from clawback.admin.rating_inbox import unassigned
    from clawback.feedback import assignment

    with open_store() as store:
        people = [store.rater(n).name for n in options.names] or [i.name for i in store.invited() if i.role != "viewer"]  # fmt: skip
        if viewers := [n for n in people if store.rater(n).role == "viewer"]:
            raise UsageError(f"{viewers[0]} is a viewer, who does not rate.")
        before: dict[int, list[str]] = {}
        for one in store.assigned():
            before.setdefault(one.turn_id, []).append(one.rater)
        asked = [store.turn(n).id for n in options.turns] or unassigned(store, options.count, before)
        pairs = assignment.plan(asked, people, options.overlap, options.shared, before)
        if not dry_run:
            store.assign(pairs)
    for name, turn in pairs:
        before.setdefault(turn, []).append(name)
    shares = assignment.in_common(before, people)
    load = {name: sum(who == name for who, _ in pairs) for name in people}
    emit(
        {"assigned": [list(p) for p in pairs], "in_common": [[*pair, n] for pair, n in shares.items()]},
        fold("\n".join(_assignment_lines(len({turn for _, turn in pairs}), load, shares, dry_run))),
        as_json,
    )


def _assignment_lines(
    turns: int, load: dict[str, int], shares: dict[tuple[str, str], int], dry_run: bool
) -> list[str]:
    from clawback.feedback.assignment import kappa_error

    would = "would go" if dry_run else "go"
    lines = [f"{turns} turns {would} to {', '.join(f'{n} ({c})' for n, c in load.items())}."]
    if shares:
        least = min(shares.values())
        error = kappa_error(least)
        known = f"; κ of a pair is then known to ± {error:.2f} or better (at 0.6)" if error else ""
        lines.append(f"Every pair has at least {least} turns in common{known}.")
    return lines


def _invited(store: Store) -> list[JsonObject]:
    own = store.assigned()
    return [
        {"name": i.name, "role": i.role, "assigned": sum(a.rater == i.name for a in own),
         "done": sum(a.rated for a in own if a.rater == i.name)}
        for i in store.invited()
    ]  # fmt: skip


def _url() -> str:
    """Where the page is for others: the first name that is served, else this machine."""
    from clawback import config

    serve = config.load(current_home().config).serve
    name = serve.names[0] if serve.names else serve.host
    return f"http://{'127.0.0.1' if name in ('', '0.0.0.0', '::') else name}:{serve.port}"  # noqa: S104


def _table(raters: Raters) -> str:
    lines = [
        f"{'':<17}{'ratings':>8}{'good':>6}{'κ':>7}{'of':>6}{'drift':>15}{'2σ':>5}{'contra':>8}{'weight':>8}"
    ]
    for r in raters.raters:
        kappa = f"{r.kappa:.2f}" if r.kappa is not None else "–"
        moved = f"{r.drift.tau:+.2f} p={r.drift.p:.2f}"
        lines.append(
            f"{shorten(r.source, 16):<17}{r.count:>8}{r.good:>6.0%}{kappa:>7}{r.common:>6}{moved:>15}"
            f"{len(r.outliers):>5}{len(r.contradictions):>8}{r.weight:>8.2f}"
        )
    if raters.alpha is not None:
        lines.append(f"Krippendorff's α of all persons: {raters.alpha:.2f}")
    pairs = [(r.source, *pair) for r in raters.raters if not r.judge for pair in r.contradictions]
    lines += [
        f"{source}: turn {a} was liked and turn {b} was not, and they say the same."
        for source, a, b in pairs[:10]
    ]
    lines += [f"… and {len(pairs) - 10} more such pairs." for _ in pairs[10:11]]
    return "\n".join(lines)
