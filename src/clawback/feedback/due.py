"""Whether a run is due by itself, whether it may start now, whether the ratings lean one way, and why the last run did not come through.

Called after every rating, in hooks too: imports nothing that they have no use for.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from clawback.errors import ConfigError
from clawback.records import JsonObject

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from datetime import time as Clock

    from clawback.config import Config
    from clawback.paths import Home
    from clawback.store import Store, TurnStore

PREPARED = "A training run is being prepared in the background; `{status}` says what comes of it."
"""What is true once a process has been started: whether a run fits the machine and its budget is measured by that process."""

JUDGED = "The version that waits is judged by the answers so far; `{status}` says what comes of it."
"""The same where a process was started for a version's answers alone, and no run is due."""


def begun(store: TurnStore, home: Home, status: str) -> str:
    """What a process does that was just started, in a sentence. ``status``: the command that shows it."""
    from clawback.config import load

    due = scheduled_is_due(store) or enough_fresh(store, load(home.config).training.threshold)
    return (PREPARED if due else JUDGED).format(status=status)


def training_due(store: TurnStore, home: Home) -> bool:
    """Whether there are enough fresh ratings for an automatic run, or enough answers for judging again a version that waits for them. Cheap: a few
    reads of a row, and a count."""
    if scheduled_is_due(store):
        return True
    from clawback.config import load  # msgspec takes 7 ms, which a prompt's hook has no use for

    settings = load(home.config).training
    if not settings.background:
        return False
    waiting = store.waiting()
    if waiting is not None and store.count_gate_answers(waiting[0]) >= waiting[1]:
        return True
    return enough_fresh(store, settings.threshold)


SCHEDULED = "run_scheduled"
"""Where the store keeps when a person wants the next run to start (``runs.schedule``)."""


def scheduled_is_due(store: TurnStore) -> bool:
    """Whether the moment has passed for which a person scheduled a run, and something has been said since the last run."""
    moment = store.get(SCHEDULED)
    return moment is not None and time.time() >= moment and store.count_fresh(1) > 0


NO_GAIN = "nothing_to_gain"
"""Where the store keeps how many fresh ratings there were when a run was found to have nothing to gain, or nothing that can be read, and why."""
READ_AGAIN = 4
"""Ratings that showed no pattern are read again after this part of the ratings that a run takes."""


def enough_fresh(store: TurnStore, threshold: int) -> bool:
    """Whether there are as many ratings since the last run as an automatic run takes; where one was skipped, since then."""
    skipped = no_gain(store)
    needed = (skipped["fresh"] if skipped else 0) + needed_for_run(skipped, threshold)
    return store.count_fresh(needed) >= needed and not missing_sign(store)


ENOUGH_TO_WARN = 10
ONE_SIDED = 0.9
"""The share of ratings of one kind from which on a person is told."""


class Balance(NamedTuple):
    """How many active ratings are good and bad; ``warning`` is a sentence, or "" when all is well."""

    good: int
    bad: int
    warning: str


def balance(store: TurnStore) -> Balance:
    """Rating only bad teaches little and can harm: a model must see what is wanted, not just what is not."""
    good, bad = store.count_ratings()
    total, warning = good + bad, ""
    if total >= ENOUGH_TO_WARN and max(good, bad) >= ONE_SIDED * total:
        most, other = ("good", "bad") if good > bad else ("bad", "good")
        warning = (
            f"{max(good, bad)} of your {total} ratings are {most}. Rate {other} ones too: "
            "ratings of one kind teach little, and a version trained on them is unlikely to pass the gate."
        )
    return Balance(good, bad, warning)


LEAST_OF_EACH_SIGN = 2
"""Good ratings and bad ones under which the gate decides nothing, and no run begins."""


def missing_sign(store: TurnStore) -> str:
    """Which ratings there are too few of for a run, "good" or "bad"; "" where there are enough of both.

    An edit and a comparison bring one of each. Somebody who likes every answer is no reason to start a process after each of their ratings;
    of a few ratings nothing is concluded.
    """
    counts = dict(zip(("good", "bad"), store.count_ratings(), strict=True))
    sign = min(counts, key=lambda name: counts[name])
    short = LEAST_OF_EACH_SIGN - counts[sign]
    if short <= 0 or sum(counts.values()) < ENOUGH_TO_WARN:
        return ""
    return sign if store.count_two_sided(short) < short else ""


def needed_for_run(skipped: Mapping[str, Any] | None, threshold: int) -> int:
    """Further ratings after which the next automatic run begins: as many as a run takes, fewer where those before were ``skipped`` as unreadable."""
    return int(skipped.get("after", threshold)) if skipped else threshold


def significance(store: TurnStore, threshold: int, level: float) -> float:
    """The p-value up to which ratings are trusted that may have been read before without a pattern: ``level`` times the new ones' share of ``threshold``.

    Each look spends its part (Bonferroni), so that of people who toss a coin at most ``level`` are trusted for every ``threshold`` ratings, however
    often their ratings are read.
    """
    skipped = no_gain(store)
    if not skipped or "after" not in skipped:
        return level
    fresh: int = store.count_fresh() - skipped["fresh"]
    return level * min(1.0, max(fresh, 0) / threshold)


def count_towards_run(store: TurnStore) -> int:
    """Ratings that count towards the next automatic run."""
    skipped = no_gain(store)
    return max(store.count_fresh() - (skipped["fresh"] if skipped else 0), 0)


def no_gain(store: TurnStore) -> JsonObject | None:
    """``{"fresh", "live", "why"}`` where the next run was skipped: nothing to gain over the version that is live, or nothing read, which also says
    ``after`` how many further ratings they are read again. None else."""
    found: JsonObject | None = store.get(NO_GAIN)
    return found if found and found["live"] == store.live().number else None


STARTED = "training_started"
STARTS = 60.0
"""Seconds within which a run that was started has a row of its own."""


def claim_start(store: Store) -> bool:
    """Whether the caller, and nobody else, should start a run now: none is running, and none has just been started."""
    with store.together():
        run = store.current_run()
        if (run and not run.interrupted) or time.time() - store.get(STARTED, 0.0) < STARTS:
            return False
        store.set(STARTED, time.time())
        return True


def not_now(settings: Config, failed: Failure | None, now: datetime | None = None) -> str:
    """Why no run may start at this moment, in a sentence; "" when one may."""
    from datetime import datetime

    now = now or datetime.now()
    schedule = settings.schedule
    if schedule.quiet_hours and within(schedule.quiet_hours, now.time()):
        return f"these are quiet hours ({schedule.quiet_hours})"
    if failed is not None and now.timestamp() - failed.at < 60 * schedule.retry_minutes:
        return f"the last run failed less than {schedule.retry_minutes} minutes ago"
    if schedule.only_when_idle and (load := load_per_core()) > schedule.idle_load:
        return f"the machine is busy (load {load:.2f} a core)"
    return ""


def within(hours: str, moment: Clock) -> bool:
    """Whether a local time is within ``"22:00-07:00"`` (from the first up to the second, over midnight if need be).

    Raises ``ConfigError`` when that is not what the text looks like.
    """
    from datetime import time as Clock

    try:
        start, end = (Clock.fromisoformat(part.strip()) for part in hours.split("-"))
    except ValueError as error:
        raise ConfigError(
            f'quiet_hours = "{hours}" is not like "22:00-07:00". Correct it in config.toml.'
        ) from error
    return start <= moment < end if start <= end else (moment >= start or moment < end)


def load_per_core() -> float:
    """The one-minute load average over the number of cores."""
    import psutil

    return float(psutil.getloadavg()[0] / (psutil.cpu_count() or 1))


FAILED = "background_failed"
"""Where the store keeps when and why a background process last failed, if none has come through since.

A run's row says it, too, but what fails before there is a run (a model that is gone, a part that is not installed) has no
row; without this every further rating would start another process that fails.
"""


class Failure(NamedTuple):
    at: float
    why: str


def last_failure(store: Store) -> Failure | None:
    """The newest run's failure, or that of the process that should have begun one; None when it did not fail."""
    newest = next(iter(store.runs(limit=1, ids=False)), None)
    found = []
    if newest and newest.status == "failed" and newest.finished_at is not None:
        found.append(Failure(newest.finished_at, newest.error))
    if failed := store.get(FAILED):
        found.append(Failure(failed["at"], failed["why"]))
    return max(found, default=None)
