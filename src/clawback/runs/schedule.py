"""A run at a time of day that a person names: ``clawback train --at 02:00``.

The moment stands in the store, and a small process waits for it. Where that is gone by then (the machine was switched off), the
next rating after the moment starts the run, as where enough ratings have come together (``feedback.due``).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from datetime import time as Clock
from typing import TYPE_CHECKING

from clawback.errors import UsageError
from clawback.feedback.due import SCHEDULED
from clawback.runs import trigger
from clawback.runs.run_options import DEFAULTS, RunOptions

if TYPE_CHECKING:
    from clawback.paths import Home
    from clawback.store import Store

WORKER = "clawback.jobs.scheduled_worker"


def next_moment(clock: str, now: datetime | None = None) -> datetime:
    """The next time at which the local clock shows this (``"02:00"``). Raises ``UsageError``."""
    now = now or datetime.now()
    try:
        wanted = Clock.fromisoformat(clock.strip())
    except ValueError:
        wanted = None
    if wanted is None or ":" not in clock or wanted.tzinfo is not None:
        raise UsageError(f"`{clock}` is no time of day: write it like 02:00.")
    today = datetime.combine(now.date(), wanted)
    return today if today > now else today + timedelta(days=1)


def schedule(home: Home, store: Store, moment: datetime, options: RunOptions = DEFAULTS) -> None:
    """Start a run at this moment; an earlier wish is replaced."""
    store.set(SCHEDULED, moment.timestamp())
    trigger.start_process(home, WORKER, [str(home.root), str(moment.timestamp()), *options.arguments()])


def scheduled(store: Store) -> datetime | None:
    """When the scheduled run starts; None where none is."""
    moment = store.get(SCHEDULED)
    return None if moment is None else datetime.fromtimestamp(moment)


def cancel(store: Store) -> bool:
    """Take back what was scheduled; whether anything was. The process that waits finds out and ends."""
    there = store.get(SCHEDULED) is not None
    store.set(SCHEDULED, None)
    return there


def sentence(moment: datetime) -> str:
    """What a person is told about a scheduled run."""
    day = "today" if moment.date() == datetime.now().date() else f"{moment:%A}"
    return f"A run starts {day} at {moment:%H:%M}. `clawback runs stop` takes that back."
