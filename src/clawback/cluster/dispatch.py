"""Distributes work to workers that may die at any moment. Independent of Ray.

A unit of work is named by its content, and repeating it gives the same result: so the units of a dead worker
go to another one, and a result that arrives a second time is dropped. No worker holds more than ``most``
unfinished units. Where no worker is left, the caller does the work.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

AHEAD = 2
"""Units that a worker has at once: one that it does, and one that it need not wait for."""
PATIENCE = 900.0
"""Seconds after which a worker that gives no answer is taken for dead."""
LOOK = 1.0


@dataclass(frozen=True, slots=True)
class Unit:
    id: str
    work: Any


@dataclass(frozen=True, slots=True)
class News:
    """A report about one worker: a finished unit, or its death."""

    worker: Hashable
    unit: str = ""
    result: Any = None
    lost: bool = False


class Crew(Protocol):
    """A group of workers, however they are reached."""

    def workers(self) -> Sequence[Hashable]:
        """The workers that can be given a unit now."""
        ...

    def give(self, worker: Hashable, unit: Unit) -> None: ...

    def wait(self, seconds: float) -> Sequence[News]:
        """Wait for reports, at most so many seconds."""
        ...

    def drop(self, worker: Hashable) -> None:
        """Remove a worker that does not answer."""
        ...


def dispatch(
    crew: Crew,
    units: Sequence[Unit],
    here: Callable[[Unit], Any],
    *,
    most: int = AHEAD,
    patience: float = PATIENCE,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """The result of each unit, by its name, each once. ``here``: do a unit without any worker."""
    waiting = deque({unit.id: unit for unit in units}.values())
    given: dict[Hashable, dict[str, tuple[Unit, float]]] = {}
    done: dict[str, Any] = {}

    def back(worker: Hashable) -> None:
        for unit, _ in given.pop(worker, {}).values():
            if unit.id not in done:
                waiting.appendleft(unit)

    while waiting or any(given.values()):
        able = sorted(crew.workers(), key=lambda w: len(given.get(w, {})))
        for worker in [w for _ in range(most) for w in able]:
            held = given.setdefault(worker, {})
            if waiting and len(held) < most:
                unit = waiting.popleft()
                held[unit.id] = (unit, clock())
                crew.give(worker, unit)
        if not any(given.values()):
            unit = waiting.popleft()
            done[unit.id] = here(unit)
            continue
        for news in crew.wait(LOOK):
            if news.lost:
                back(news.worker)
                continue
            given.get(news.worker, {}).pop(news.unit, None)
            done.setdefault(news.unit, news.result)
        now = clock()
        for worker in [w for w, held in given.items() if any(now - at > patience for _, at in held.values())]:
            crew.drop(worker)
            back(worker)
    return done
