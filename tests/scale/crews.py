"""A crew in this process: real workers without Ray, some of which die."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

from clawback.extensions.scale.dispatch import Unit, WorkerReport


class Here:
    """A ``Crew`` of ``count`` workers; the first dies when it has answered ``dies`` units, and nobody takes its place."""

    def __init__(self, make: Callable[[], Any], count: int, dies: int | None = None) -> None:
        self.count, self.dies, self.lost, self.why = count, dies, 0, "it died"
        self.alive = {number: make() for number in range(count)}
        self.held: list[tuple[int, Unit]] = []
        self.objects: dict[str, Any] = {}
        self.answered = 0
        self.closed = False

    def workers(self) -> Sequence[Hashable]:
        return list(self.alive)

    def give(self, worker: Any, unit: Unit) -> None:
        self.held.append((worker, unit))

    def wait(self, seconds: float) -> Sequence[WorkerReport]:
        if not self.held:
            return []
        worker, unit = self.held.pop(0)
        if worker == 0 and self.answered == self.dies:
            self.drop(worker)
            return [WorkerReport(worker, lost=True)]
        self.answered += worker == 0
        return [
            WorkerReport(
                worker, unit.id, self.alive[worker].work(unit.work, self.objects.get(unit.work["adapter"]))
            )
        ]

    def drop(self, worker: Any) -> None:
        del self.alive[worker]
        self.held = [(w, unit) for w, unit in self.held if w != worker]
        self.lost += 1

    def publish(self, name: str, weights: Any, keep: Collection[str] = ()) -> None:
        copied = {key: value.clone() for key, value in weights.items()}
        self.objects = {n: w for n, w in self.objects.items() if n in keep} | {name: copied}

    def close(self) -> None:
        self.closed = True
