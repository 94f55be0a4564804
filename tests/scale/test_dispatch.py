"""Every unit is answered once, whoever dies; nobody is given more than he can do; what hangs is given to others."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from clawback.extensions.scale.dispatch import Unit, WorkerReport, dispatch


class Mortal:
    """A crew whose workers answer in any order, twice now and then, and die as a random number says."""

    def __init__(self, workers: int, seed: int, dies: float, hangs: frozenset[int] = frozenset()) -> None:
        self.rng, self.dies, self.hangs = random.Random(seed), dies, hangs
        self.alive = list(range(workers))
        self.held: dict[Hashable, list[Unit]] = {}
        self.most = 0
        self.told: Counter[str] = Counter()
        self.last: WorkerReport | None = None

    def workers(self) -> Sequence[Hashable]:
        return list(self.alive)

    def give(self, worker: Hashable, unit: Unit) -> None:
        assert worker in self.alive
        self.held.setdefault(worker, []).append(unit)
        self.most = max(self.most, len(self.held[worker]))

    def wait(self, seconds: float) -> Sequence[WorkerReport]:
        busy = [w for w in self.alive if self.held.get(w) and w not in self.hangs]
        if not busy:
            return []
        worker = self.rng.choice(busy)
        if self.rng.random() < self.dies:
            self.drop(worker)
            return [WorkerReport(worker, lost=True)]
        unit = self.held[worker].pop(self.rng.randrange(len(self.held[worker])))
        self.told[unit.id] += 1
        news = [WorkerReport(worker, unit.id, unit.work * 2)]
        if self.last and self.rng.random() < 0.2:
            news.append(self.last)
        self.last = news[0]
        return news

    def drop(self, worker: Hashable) -> None:
        self.alive.remove(worker)
        self.held.pop(worker, None)


@given(st.integers(0, 40), st.integers(0, 5), st.floats(0, 0.6), st.integers(1, 4), st.integers(0, 1000))
def test_every_unit_has_one_answer_whoever_dies(
    count: int, workers: int, dies: float, most: int, seed: int
) -> None:
    crew = Mortal(workers, seed, dies)
    here: list[str] = []

    def alone(unit: Unit) -> int:
        here.append(unit.id)
        return unit.work * 2

    units = [Unit(str(i), i) for i in range(count)]
    done = dispatch(crew, units, alone, most=most)
    assert done == {str(i): 2 * i for i in range(count)}
    assert crew.most <= most
    if dies == 0 and workers:
        assert not here
        assert all(times == 1 for times in crew.told.values())


def test_a_worker_that_hangs_is_dropped_and_its_units_go_to_others() -> None:
    crew, times = Mortal(2, 0, 0.0, frozenset([0])), iter(range(10_000))
    units = [Unit(str(i), i) for i in range(8)]
    done = dispatch(crew, units, lambda u: u.work * 2, patience=50, clock=lambda: float(next(times)))
    assert done == {str(i): 2 * i for i in range(8)}
    assert crew.alive == [1]


def test_the_same_work_twice_is_done_once() -> None:
    crew = Mortal(1, 0, 0.0)
    assert dispatch(crew, [Unit("a", 3), Unit("a", 3)], lambda u: u.work) == {"a": 6}
    assert crew.told["a"] == 1
