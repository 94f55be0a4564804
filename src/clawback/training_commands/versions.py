"""``versions rollback reset compare``: which policies there are, and which one answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clawback import config
from clawback.errors import UsageError
from clawback.terminal import (
    VERSION,
    CommandGroup,
    as_record,
    confirm,
    current_home,
    emit,
    fold,
    json_option,
    named_version,
    open_store,
    when,
)

if TYPE_CHECKING:
    from clawback.records import Turn, Version
    from clawback.store import Store

COMPARE_PROMPTS = 5
JUDGED_PROMPTS = 50
GIVEN_UP = "given up before it was decided"
"""Of a version that waited for answers when a later run took its place."""


@click.group(
    cls=CommandGroup, invoke_without_command=True,
    members={
        "check": "clawback.training_commands.train:gate",
        "trial": "clawback.training_commands.trials:trial",
        "survey": "clawback.training_commands.trials:survey",
        "generate": "clawback.training_commands.generate:generate",
        "publish": "clawback.training_commands.publish:publish",
    },
)  # fmt: skip
@click.option(
    "--report",
    "which",
    type=VERSION,
    metavar="V",
    help="Show the gate's report on a version: a number, or live.",
)
@json_option
@click.pass_context
def versions(ctx: click.Context, which: str | None, as_json: bool) -> None:
    """List versions, which one is live, and how the gate judged them; compare, check, roll back, publish them.

    \b
    clawback versions
    clawback versions show 3
    clawback versions compare base live
    clawback versions rollback
    """
    if ctx.invoked_subcommand:
        return
    if which is not None:
        show_report(which, as_json)
        return
    with open_store() as store:
        found = store.versions()
    emit([asdict(v) for v in found], "\n".join(fold(line(v), " " * 10) for v in found), as_json)


@versions.command()
@click.argument("version", type=VERSION, default="live")
@json_option
def show(version: str, as_json: bool) -> None:
    """Show what the gate found about a version: a number, live, or base.

    \b
    clawback versions show 3
    """
    show_report(version, as_json)


def show_report(which: str, as_json: bool) -> None:
    """The gate's report, and how often the version's answers kept each rule. Raises ``UsageError`` where there is none."""
    with open_store() as store:
        chosen = named_version(store, which)
        in_use = _rules_in_use(store, chosen.number)
    if chosen.report is None:
        raise UsageError(
            f"Version {chosen.number} has not been judged. `clawback versions check {chosen.number}` does that."
        )
    text = "\n".join(filter(None, [_report(chosen), _rules_kept(chosen.report), in_use]))
    emit(dict(chosen.report), fold(text, "  "), as_json)


def _report(version: Version) -> str:
    """What the gate, or held-out tasks of an environment, said."""
    report = dict(version.report or {})
    if report.get("kind") == "episodes":
        from clawback.rollouts.rounds import HeldOutVerdict

        return HeldOutVerdict.from_dict(report).text()
    from clawback.gate.report import Report

    if _given_up(version):  # nobody is asked about it any more
        reasons = [reason for reason in report["reasons"][1:] if "inbox --rate" not in reason]
        report |= {"again_at": None, "reasons": [GIVEN_UP, *reasons]}
    return Report.from_dict(report).text()


def _given_up(version: Version) -> bool:
    """Whether the version waited for answers until a later run took its place."""
    return version.status == "rejected" and bool(version.report and version.report.get("again_at"))


def _rules_kept(report: Mapping[str, Any]) -> str:
    """How often both versions kept each rule on the gate's own prompts, where the report has it."""
    rows = (report.get("evidence") or {}).get("rules") or ()
    lines = [
        f"  {one['candidate']:>4.0%} (live {one['live']:.0%}) of {one['answers']:>4} answers  {one['rule']}"
        for one in rows
    ]
    return "\n".join(["Rules kept, on the gate's prompts", *lines]) if lines else ""


def _rules_in_use(store: Store, number: int) -> str:
    """How often the version's answers kept each rule since: "" where it answered nothing that was checked."""
    names = (f"version {number}", f" with version {number}")
    counts: dict[int, tuple[int, int]] = {}
    for one in store.obedience():
        if one.model == names[0] or one.model.endswith(names[1]):
            kept, checked = counts.get(one.rule_id, (0, 0))
            counts[one.rule_id] = (kept + one.passes, checked + one.checked)
    lines = [
        f"  {kept / checked:>4.0%} of {checked:>4} answers  {store.rule(rule).text}"
        for rule, (kept, checked) in counts.items()
    ]
    return "\n".join(["Rules kept, in use", *lines]) if lines else ""


def line(version: Version) -> str:
    mark = "▶" if version.status == "live" else " "
    why = str(version.report["reasons"][0]) if version.report and version.report.get("reasons") else ""
    if _given_up(version):
        why = GIVEN_UP
    name = "the base model" if version.number == 0 else f"from {version.parent}"
    prompted = "  with a prompt" if version.prompt else ""
    stale = "  (learned from what was taken back or deleted since)" if version.stale else ""
    return f"{mark} {version.number:>3}  {when(version.created_at)}  {version.status:<9} {name:<14}{prompted} {why}{stale}".rstrip()


@versions.command()
@click.argument("version", type=VERSION, required=False)
@json_option
def rollback(version: str | None, as_json: bool) -> None:
    """Go back to an older version; without VERSION to the previous live one. base is the base model.

    \b
    clawback versions rollback
    clawback versions rollback 2
    clawback versions rollback base
    """
    from clawback.release import version_registry

    with open_store() as store:
        before = store.live().number
        number = None if version is None else named_version(store, version).number
        again = "" if number and store.version(number).status != "retired" else " again"
        now = version_registry.rollback(store, current_home(), number)
        follows = followers(store, now)
    emit(
        asdict(now) | {"before": before},
        f"Version {now.number} is live{again} (it was {before}).{follows}",
        as_json,
    )


@versions.command()
@click.option("--ratings", is_flag=True, help="Forget all ratings and other feedback, too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def reset(ratings: bool, yes: bool, as_json: bool) -> None:
    """Start over from the base model. Turns and ratings stay, unless --ratings is given.

    \b
    clawback versions reset
    clawback versions reset --ratings --yes
    """
    from clawback.release import version_registry

    what = "every version, run AND ALL RATINGS" if ratings else "every version and run (ratings stay)"
    if not yes:
        confirm(f"Remove {what}?", abort=True, err=True)
    with open_store() as store:
        version_registry.reset(store, current_home(), ratings=ratings)
        follows = followers(store, store.live())
    emit({"live": 0, "ratings_kept": not ratings}, f"The base model is live again.{follows}", as_json)


def followers(store: Store, live: Version) -> str:
    """A sentence for each server that follows the live version and does not have it yet."""
    from clawback.release import following

    standings = following.standings(store, config.load(current_home().config))
    return "".join(
        f" {one.sentence(live)[:1].upper()}{one.sentence(live)[1:]}."
        for one in standings
        if not one.current(live)
    )


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """What the versions are compared on."""

    prompts: Path | None
    seed: int
    judge: bool
    count: int | None


@versions.command()
@click.argument("first", type=VERSION)
@click.argument("second", type=VERSION)
@click.option(
    "--prompts", type=click.Path(path_type=Path), help="A file of prompts; by default your newest ones."
)
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same answers.")
@click.option("--judge", is_flag=True, help="Have the judge of [judge] say which is better, and how often.")
@click.option("--count", type=click.IntRange(1, 10_000), help="Of your newest prompts, how many (default 5; 50 with --judge).")  # fmt: skip
@json_option
@as_record(CompareOptions)
def compare(first: str, second: str, options: CompareOptions, as_json: bool) -> None:
    """Show two versions side by side on the same prompts. A version is a number, base or live.

    With --judge a model says which answer is better, each pair in both orders, and the win rate is given as it is and at equal length. The
    live version is not a fair judge of itself: set another model in [judge].

    \b
    clawback versions compare base live
    clawback versions compare 2 3 --prompts prompts.txt
    clawback versions compare live base --judge --count 100
    """
    from clawback.terminal.progress_bar import progress_bar
    from clawback.training_commands.generate import read_prompts

    wanted = options.count or (JUDGED_PROMPTS if options.judge else COMPARE_PROMPTS)
    with open_store() as store:
        pair = [named_version(store, first), named_version(store, second)]
        asked = (
            read_prompts(options.prompts)
            if options.prompts
            else newest_prompts(store.turns(limit=40 * wanted), wanted)
        )
    if not asked:
        raise UsageError("There are no captured prompts yet: name a file with --prompts.")
    if pair[0].number == pair[1].number:
        raise UsageError(
            f"Both are version {pair[0].number}: name two versions. `clawback versions` lists them."
        )
    with progress_bar(quiet=as_json) as follow:
        answers = []
        for done, version in enumerate(pair):
            follow({"phase": "answering", "step": done, "steps": len(pair)})
            answers.append(answers_of(version, asked, options.seed))
        follow({"phase": "answering", "step": len(pair), "steps": len(pair)})
    numbers = [str(version.number) for version in pair]
    rows = [
        {"prompt": messages[-1]["content"]} | dict(zip(numbers, both, strict=True))
        for messages, *both in zip(asked, *answers, strict=True)
    ]
    if options.judge:
        _judged(pair, asked, answers, as_json)
        return
    if as_json:
        emit(rows, "", as_json)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_lines=True, expand=True)
    table.add_column("prompt", ratio=1)
    for version in pair:
        table.add_column(f"version {version.number}" if version.number else "the base model", ratio=2)
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row.values()))
    Console().print(table)


def _judged(pair: list[Version], conversations: list[list[dict[str, str]]], answers: list[list[str]], as_json: bool) -> None:  # fmt: skip
    from clawback.jobs import winning
    from clawback.terminal.progress_bar import progress_bar

    rows = [(messages[-1]["content"], *both) for messages, *both in zip(conversations, *answers, strict=True)]
    numbers = (pair[0].number, pair[1].number)
    with progress_bar(quiet=as_json) as follow:
        found, name, failed = winning.judge(current_home(), numbers, [(p, a, b) for p, a, b in rows], follow)
    lines = [
        f"Version {numbers[0]} over {numbers[1]}, {found.pairs} prompts, judged by {name}: {found.rate:.0%} ({found.low:.0%} to {found.high:.0%}).",
        f"At equal length: {found.controlled:.0%} ({found.controlled_low:.0%} to {found.controlled_high:.0%}); its answers are {found.longer:+.0f} words longer.",
        f"{found.ties:.0%} of the pairs were ties: the judge said the opposite when they changed places. {found.leans_first:.0%} of its verdicts were for what stood first.",
    ]
    lines += [f"Of {failed} prompts it said nothing that could be read."] * bool(failed)
    emit({"first": numbers[0], "second": numbers[1], "judge": name, "unread": failed} | asdict(found), "\n".join(lines), as_json)  # fmt: skip


def answers_of(version: Version, conversations: list[list[dict[str, str]]], seed: int) -> list[str]:
    """In a function of its own, so that one model has left the memory before the next comes."""
    from clawback import release

    here = current_home()
    made = release.load(here, version).generate(conversations, seed=seed)
    return [completion.text for [completion] in made]


def newest_prompts(turns: list[Turn], count: int) -> list[list[dict[str, str]]]:
    """The newest different prompts, without what led to them."""
    texts = dict.fromkeys(t.prompt for t in turns if t.kind == "main" and t.prompt)
    return [[{"role": "user", "content": text}] for text in list(texts)[:count]]
