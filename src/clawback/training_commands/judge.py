"""``judge``: let a model read what came after answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from clawback.terminal import as_record, current_home, emit, json_option, ray_option


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """What is judged, and where."""

    limit: int
    votes: int | None
    hints: bool | None
    ray: tuple[str, int] | None


@click.command()
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=500,
    show_default=True,
    help="Turns at most, newest first.",
)
@click.option("--votes", type=click.IntRange(1, 25), help="Votes per turn (default: from the settings, 3).")
@click.option("--hints/--no-hints", default=None, help="Also look for hints (default: from the settings).")
@ray_option("Let the machines of this Ray cluster draw the local judge's votes", "Workers that draw.")
@click.option("--dry-run", is_flag=True, help="Only say what it would do, and the most it can cost.")
@json_option
@as_record(JudgeOptions)
def judge(options: JudgeOptions, dry_run: bool, as_json: bool) -> int:
    """Let a judge model vote on answers by what the user or a tool replied to them.

    [judge] in config.toml sets the model and its limits; by default the live version itself judges. Ctrl-C stops it and keeps the votes
    so far. Exits with 1 if it had to end early.

    \b
    clawback lab judge --dry-run
    clawback lab judge --limit 50 --votes 5
    clawback lab judge --hints
    clawback lab judge --ray auto
    """
    from clawback.jobs import judge_pass

    here = current_home()
    if dry_run:
        planned = judge_pass.plan(here, limit=options.limit, votes=options.votes, hints=options.hints)
        where = planned.url or "the live version"
        text = f"{planned.turns} turns wait for {planned.model} ({where})"
        text += f", {planned.hint_turns} for hints" if planned.hint_turns else ""
        emit(asdict(planned), f"{text}: at most {planned.calls} calls, {planned.tokens} tokens.", as_json)
        return 0
    from clawback.terminal.progress_bar import progress_bar

    with progress_bar(quiet=as_json) as follow:
        done = judge_pass.judge_once(
            here,
            limit=options.limit,
            votes=options.votes,
            hints=options.hints,
            ray=options.ray,
            on_progress=follow,
        )
    emit(done.to_dict(), done.summary(), as_json)
    return 1 if done.stopped else 0
