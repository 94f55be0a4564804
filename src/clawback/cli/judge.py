"""``judge raters``: let a model read what came after answers; who rates, and how far that can be relied on."""

from __future__ import annotations

from dataclasses import asdict

import click

from clawback.cli.common import current_home, emit, fold, json_option, open_store, shorten


@click.command()
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=500,
    show_default=True,
    help="Turns at most, newest first.",
)
@click.option("--votes", type=click.IntRange(1, 25), help="Votes a turn (default: from the settings, 3).")
@click.option("--hints/--no-hints", default=None, help="Also look for hints (default: from the settings).")
@click.option("--dry-run", is_flag=True, help="Only say what it would do, and what that costs at most.")
@json_option
def judge(limit: int, votes: int | None, hints: bool | None, dry_run: bool, as_json: bool) -> int:
    """Let a judge model read what came after your answers and say how they were taken.

    Which model, and how much it may use: [judge] in config.toml; by default the live version itself. Ctrl-C ends it; what was
    judged stays. Exits with 1 when it had to end early.

    \b
    clawback judge --dry-run
    clawback judge --limit 50 --votes 5
    clawback judge --hints
    """
    from clawback.jobs import judging

    here = current_home()
    if dry_run:
        planned = judging.plan(here, limit=limit, votes=votes, hints=hints)
        where = planned.url or "the live version"
        text = f"{planned.turns} turns wait for {planned.model} ({where})"
        text += f", {planned.hint_turns} for hints" if planned.hint_turns else ""
        emit(asdict(planned), f"{text}: at most {planned.calls} calls, {planned.tokens} tokens.", as_json)
        return 0
    from clawback.cli.train import progress_bar

    with progress_bar(quiet=as_json) as follow:
        done = judging.judge_once(here, limit=limit, votes=votes, hints=hints, on_progress=follow)
    emit(done.to_dict(), done.summary(), as_json)
    return 1 if done.stopped else 0


@click.command()
@json_option
def raters(as_json: bool) -> None:
    """Who rates, how far they agree, and which of their ratings contradict each other.

    κ (Cohen's kappa) is agreement with the other raters beyond chance, over the turns in common (of). drift: a small p
    means that the rater has become kinder (+) or stricter (-). 2σ: ratings far from those of the others. contra: nearly the same
    answers rated both good and bad. weight: how much the rater counts in rewards.

    \b
    clawback raters
    clawback raters --json
    """
    from clawback.feedback.raters import raters as look

    with open_store() as store:
        found = look(store)
    lines = [
        f"{'':<17}{'ratings':>8}{'good':>6}{'κ':>7}{'of':>6}{'drift':>15}{'2σ':>5}{'contra':>8}{'weight':>8}"
    ]
    for r in found.raters:
        kappa = f"{r.kappa:.2f}" if r.kappa is not None else "–"
        moved = f"{r.drift.tau:+.2f} p={r.drift.p:.2f}"
        lines.append(
            f"{shorten(r.source, 16):<17}{r.count:>8}{r.good:>6.0%}{kappa:>7}{r.common:>6}{moved:>15}"
            f"{len(r.outliers):>5}{len(r.contradictions):>8}{r.weight:>8.2f}"
        )
    if found.alpha is not None:
        lines.append(f"Krippendorff's α of all persons: {found.alpha:.2f}")
    pairs = [(r.source, *pair) for r in found.raters if not r.judge for pair in r.contradictions]
    lines += [
        f"{source}: turn {a} was liked and turn {b} was not, and they say the same."
        for source, a, b in pairs[:10]
    ]
    lines += [f"… and {len(pairs) - 10} more such pairs." for _ in pairs[10:11]]
    emit(asdict(found), fold("\n".join(lines)) if found.raters else "Nobody has rated anything yet.", as_json)
