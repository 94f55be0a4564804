"""``versions trial`` and ``versions survey``: a version tried on real sessions, and scored by the person who uses it."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from clawback import config
from clawback.errors import UsageError
from clawback.terminal import (
    VERSION,
    current_home,
    emit,
    json_option,
    named_version,
    open_store,
    quantity,
    version_option,
    when,
)
from clawback.terminal.progress_bar import waiting

if TYPE_CHECKING:
    from clawback.release.best_of import BestOfTrial
    from clawback.store import Store


@click.command()
@click.argument("version", type=VERSION, required=False)
@click.option(
    "--share", default=0.2, show_default=True, help="Share of the sessions that it answers, at most 0.5."
)
@click.option("--alpha", default=0.05, show_default=True, help="Accepted error rate of the verdict.")
@click.option(
    "--best-of", type=click.IntRange(2, 16), metavar="N",
    help="Without a version: answer with the best of N draws, as your ratings read, until a version goes live.",
)  # fmt: skip
@click.option("--stop", is_flag=True, help="End the trial; the live version stays.")
@json_option
def trial(
    version: str | None, share: float, alpha: float, best_of: int | None, stop: bool, as_json: bool
) -> None:
    """Try a version on a share of the sessions until your ratings of both decide. Without a version: show the trial.

    You may look at it as often as you like: the test stays valid. The better version then goes live by itself.

    With --best-of nothing is trained: the live version answers several times, and you get the answer that your ratings so far speak for.

    \b
    clawback versions trial 3 --share 0.2
    clawback versions trial --best-of 4
    clawback versions trial
    clawback versions trial --stop
    """
    from clawback import release

    with open_store() as store:
        if stop:
            _stop_trial(store, as_json)
            return
        if best_of is not None:
            if version is not None:
                raise UsageError("--best-of is a trial of the live version: leave the version out.")
            with waiting("reading the ratings", as_json):
                release.best_of.begin(store, config.load(current_home().config), best_of, time.time())
        if version is None and (chosen := release.best_of.running(store)) is not None:
            live = store.live().number
            emit({"trial": None, "best_of": asdict(chosen), "live": live}, _best_of(chosen), as_json)
            return
        if version is not None:
            release.trial.begin(store, named_version(store, version).number, share, alpha, time.time())
        ended = release.trial.settle(store, current_home(), time.time())
        now = release.trial.running(store)
        score = ended[0] if ended else release.trial.score(store, now, time.time()) if now else None
        live = store.live().number
    data = {"trial": asdict(now) if now else None, "score": asdict(score) if score else None, "live": live}
    if score is None:
        emit(data, "No trial is on.", as_json)
        return
    rows = [
        f"{name:<10} {count:>4} sessions, mean reward {'–' if mean is None else f'{mean:+.2f}'}"
        for name, count, mean in (
            ("candidate", score.candidate_sessions, score.candidate_mean),
            ("live", score.live_sessions, score.live_mean),
        )
    ]
    end = (
        f"The candidate is {score.verdict}: version {live} is live."
        if score.verdict
        else f"Open: evidence {score.better:.2g} for better, {score.worse:.2g} for worse; {1 / now.alpha:.0f} decides."
        if now
        else ""
    )
    emit(data, "\n".join([*rows, end]), as_json)


def _stop_trial(store: Store, as_json: bool) -> None:
    from clawback.release import best_of, trial

    is_on = bool(best_of.running(store) or trial.running(store))
    trial.stop(store)
    best_of.stop(store)
    text = "The trial is over: the live version answers alone, with one draw." if is_on else "No trial is on."
    emit({"trial": None, "stopped": is_on}, text, as_json)


def _best_of(chosen: BestOfTrial) -> str:
    name = "the base model" if chosen.live == 0 else f"version {chosen.live}"
    return (
        f"{name[:1].upper()}{name[1:]} draws {chosen.count} answers, and you get the one that your ratings speak for, since {when(chosen.began)}. "
        "`clawback versions trial --stop` ends it, and so does a version that goes live."
    )


@click.command()
@click.argument("score", type=click.IntRange(1, 5), required=False)
@version_option()
@click.option("--person", default="", help="Who answers, if several people use it.")
@click.option("--note", default="", help="Why.")
@json_option
def survey(score: int | None, which: str, person: str, note: str, as_json: bool) -> None:
    """Score the live version from 1 (poor) to 5 (excellent), after using it for a while. Without a score: the scores of all versions.

    \b
    clawback versions survey 4
    clawback versions survey
    """
    with open_store() as store:
        if score is not None:
            store.add_survey(named_version(store, which).number, score, person, note)
        surveys = store.surveys()
    data = [
        {
            "version": version,
            "answers": len(scores),
            "mean": statistics.fmean(scores),
            "error": standard_error(scores),
        }
        for version, scores in sorted(surveys.items())
    ]
    lines = [
        f"version {version:>3}  {statistics.fmean(scores):.2f}{plus_minus(standard_error(scores))}  of 5, {quantity(len(scores), 'answer')}"
        for version, scores in sorted(surveys.items())
    ]
    emit(
        data,
        "\n".join(lines)
        or "No scores yet. `clawback versions survey 4` scores the live version, from 1 to 5.",
        as_json,
    )


def plus_minus(error: float | None) -> str:
    return "" if error is None else f" ± {error:.2f}"


def standard_error(scores: list[int]) -> float | None:
    """Of the mean; None for fewer than two answers."""
    return statistics.stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else None
