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
class WorkerReport:
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

    def wait(self, seconds: float) -> Sequence[WorkerReport]:
        """Wait for reports, at most so many seconds."""
        ...

    def drop(self, worker: Hashable) -> None:
        """Remove a worker that does not answer."""
        ...


class Dispatcher:
    """``add`` units, ``step`` until ``idle``: each result comes once."""

    def __init__(
        self,
        crew: Crew,
        here: Callable[[Unit], Any],
        *,
        most: int = AHEAD,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``here``: do a unit without any worker."""
        self.crew, self.here = crew, here
        self.most, self.patience, self.clock = most, patience, clock
        self._waiting: deque[Unit] = deque()
        self._given: dict[Hashable, dict[str, tuple[Unit, float]]] = {}
        self._open: set[str] = set()
        """Units whose result has not come yet."""

    @property
    def idle(self) -> bool:
        return not self._open

    def add(self, units: Sequence[Unit]) -> None:
        """A unit that is open already is not added again."""
        for unit in units:
            if unit.id not in self._open:
                self._open.add(unit.id)
                self._waiting.append(unit)

    def step(self) -> dict[str, Any]:
        """Give what can be given, and wait a moment for reports: the results that came, by the names of their units."""
        if self.idle:
            return {}
        self._give()
        if not any(self._given.values()):
            unit = self._next()
            assert unit is not None  # what is open waits, or is given
            self._open.discard(unit.id)
            return {unit.id: self.here(unit)}
        done: dict[str, Any] = {}
        for news in self.crew.wait(LOOK):
            if news.lost:
                self._back(news.worker)
                continue
            self._given.get(news.worker, {}).pop(news.unit, None)
            if news.unit in self._open:
                self._open.discard(news.unit)
                done[news.unit] = news.result
        now = self.clock()
        for worker, held in list(self._given.items()):
            if any(now - at > self.patience for _, at in held.values()):
                self.crew.drop(worker)
                self._back(worker)
        return done

    def _give(self) -> None:
        able = sorted(self.crew.workers(), key=lambda w: len(self._given.get(w, {})))
        for worker in [w for _ in range(self.most) for w in able]:
            held = self._given.setdefault(worker, {})
            if len(held) < self.most and (unit := self._next()) is not None:
                held[unit.id] = (unit, self.clock())
                self.crew.give(worker, unit)

    def _next(self) -> Unit | None:
        while self._waiting:
            unit = self._waiting.popleft()
            if unit.id in self._open:  # else somebody who was taken for dead has answered after all
                return unit
        return None

    def _back(self, worker: Hashable) -> None:
        for unit, _ in self._given.pop(worker, {}).values():
            if unit.id in self._open:
                self._waiting.appendleft(unit)


def dispatch(crew: Crew, units: Sequence[Unit], here: Callable[[Unit], Any], **how: Any) -> dict[str, Any]:
    """The result of each unit, by its name, each once."""
    dispatcher = Dispatcher(crew, here, **how)
    done: dict[str, Any] = {}
    dispatcher.add(units)
    while not dispatcher.idle:
        done |= dispatcher.step()
    return done
