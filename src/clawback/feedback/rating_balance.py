"""Checks whether there are enough ratings to learn from, good and bad ones."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback.paths import Home

if TYPE_CHECKING:
    from clawback.store import Store

ENOUGH_TO_WARN = 10
ONE_SIDED = 0.9


@dataclass(frozen=True, slots=True)
class Balance:
    """How many active ratings are good and bad; ``warning`` is a sentence, or "" when all is well."""

    good: int
    bad: int
    warning: str


def balance(store: Store) -> Balance:
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


def training_due(store: Store, home: Home) -> bool:
    """Whether there are enough fresh ratings for an automatic run, or for judging again a version that waits for them. Cheap: one read and one count."""
    from clawback import config  # msgspec takes 7 ms, which a prompt's hook has no use for

    settings = config.load(home.config).training
    waiting = store.waiting()
    needed = min(settings.threshold, waiting[1]) if waiting else settings.threshold
    return settings.background and store.count_fresh(needed) >= needed


STARTED = "training_started"
STARTS = 60.0
"""Seconds within which a run that was started has a row of its own."""


def claim_start(store: Store) -> bool:
    """Whether the caller, and nobody else, should start a run now: none is running, and none has just been started."""
    with store.together():
        run = store.active_run()
        if (run and _alive(run.pid)) or time.time() - store.get(STARTED, 0.0) < STARTS:
            return False
        store.set(STARTED, time.time())
        return True


def _alive(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
