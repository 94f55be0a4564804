"""Rounds of episodes: those that are learned from, and those on held-out tasks before and after.

Tasks are drawn by seed, played in groups, and passed to the learner. Round r learns from ``groups`` whole groups, of ``size`` episodes each of one task
and seed. With ``staleness`` 0 a round is played to its end with the current weights. With b above 0 playing does not wait:
up to b rounds' worth of further groups are begun meanwhile and continue under the then current weights, so
that no slot is empty while the longest episode of a round is finished. An episode with any reply older than b
updates is left out and counted.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from clawback.environments.core import EnvironmentFailure, Task
from clawback.environments.episode_loop import Order
from clawback.environments.world_helpers import mixed
from clawback.errors import UsageError
from clawback.progress import OnProgress
from clawback.records import Episode, JsonObject, with_keys
from clawback.rollouts.concurrent import EpisodeSource


@dataclass(frozen=True, slots=True)
class Dealing:
    """What is played in which order: all of it follows from ``seed``."""

    tasks: Sequence[Task]
    seed: int = 0
    groups: int = 32
    """Groups a round."""
    size: int = 1
    """Episodes a group: tries at the same task from the same seed."""

    def orders(self, group: int) -> list[Order]:
        """The episodes of a group. Tasks come in shuffled rounds."""
        turn, place = divmod(group, len(self.tasks))
        row = _row(self.seed, turn, len(self.tasks))
        task, world = self.tasks[row[place]], mixed(self.seed, "world", group) % 2**31
        first = group * self.size
        return [Order(first + i, task, world, self.seed, group) for i in range(self.size)]


@lru_cache(maxsize=4)
def _row(seed: int, turn: int, count: int) -> tuple[int, ...]:
    """The order of tasks in their ``turn``-th round."""
    row = list(range(count))
    random.Random(mixed(seed, "row", turn)).shuffle(row)
    return tuple(row)


@dataclass
class Collector:
    """Call it with the number of a round."""

    rollouts: EpisodeSource
    dealing: Dealing
    staleness: int = 0
    played: Callable[[Sequence[int]], Mapping[int, Episode]] = lambda _: {}
    """Episodes of these numbers that were played before an interruption: they are not played again."""
    tell: OnProgress = lambda _: None
    grade: Callable[[Sequence[Sequence[Episode]]], Sequence[Sequence[Episode]]] = lambda groups: groups
    """Gives the groups of a round their rewards, where the environment gives none. A group without a reward is empty."""
    stale: int = 0
    """Episodes that were left out because they had become too old."""
    failed: int = 0
    """Those whose world broke."""
    _used: set[int] = field(default_factory=set)
    """Groups that rounds have learned from, or that had to be left out."""
    _begun: set[int] = field(default_factory=set)
    _missed: int = 0
    _next: int = 0
    """The first group that was not looked at for being begun."""
    _done: dict[int, list[Episode]] = field(default_factory=dict)
    """Group → what of it is over."""
    _whole: list[int] = field(default_factory=list)
    """Those of them that are over, as a heap."""

    def __post_init__(self) -> None:
        if not self.dealing.tasks:
            raise UsageError("There is nothing to play: the environment has no tasks to learn from.")

    def __call__(self, number: int) -> list[Episode]:
        wanted, misses = self.dealing.groups, 0
        self.rollouts.refreshed(number)
        chosen: list[list[Episode]] = []
        while len(chosen) < wanted:
            self._begin((number + 1 + self.staleness) * wanted + self._missed)
            group = self._first_whole()
            if group is None:
                for episode in self.rollouts.wave():
                    self._over(episode.group, [episode])
                self.tell({"phase": "play", "round": number + 1, "step": len(chosen), "steps": wanted})
                continue
            self._used.add(group)
            if usable := self._usable(self._done.pop(group), number):
                chosen.append(usable)
                continue
            misses, self._missed = misses + 1, self._missed + 1
            if misses > 4 * wanted:
                raise EnvironmentFailure(
                    f"{misses} groups of episodes of {self.rollouts.worlds.name} could not be used in one round: their environments "
                    "failed, or they exceeded the allowed staleness. `clawback env episodes list` shows why."
                )
        self.rollouts.rest()
        episodes = [episode for group in self.grade(chosen) for episode in group]
        if not episodes:
            raise EnvironmentFailure(
                f"None of the {len(chosen)} groups of episodes of {self.rollouts.worlds.name} could be graded."
            )
        return sorted(episodes, key=lambda e: e.number)

    def state(self) -> JsonObject:
        """Which groups are finished: a group that was begun and is in no round yet is begun again, or comes from ``played``."""
        return {
            "used": sorted(self._used),
            "missed": self._missed,
            "stale": self.stale,
            "failed": self.failed,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._used, self._begun, self._next = set(state["used"]), set(state["used"]), 0
        self._missed, self.stale, self.failed = state["missed"], state["stale"], state["failed"]

    def _begin(self, most: int) -> None:
        """Begin groups while fewer than ``most`` have been in all."""
        first, self._next = self._next, max(self._next, most)
        for group in range(first, most):
            if group in self._begun:
                continue
            self._begun.add(group)
            orders = self.dealing.orders(group)
            known = self.played([order.number for order in orders])
            if known:
                self._over(group, [known[number] for number in sorted(known)])
            self.rollouts.start(order for order in orders if order.number not in known)

    def _over(self, group: int, episodes: Sequence[Episode]) -> None:
        done = self._done.setdefault(group, [])
        done += episodes
        if len(done) == self.dealing.size:
            heapq.heappush(self._whole, group)

    def _first_whole(self) -> int | None:
        """The earliest group that is over, taken from those that wait; None where none is."""
        return heapq.heappop(self._whole) if self._whole else None

    def _usable(self, episodes: Sequence[Episode], number: int) -> list[Episode]:
        """Without those whose world broke, and those with replies of weights too old."""
        played = [e for e in episodes if e.status in ("completed", "truncated") and e.steps]
        self.failed += sum(e.status == "failed" for e in episodes)
        fresh = [e for e in played if number - min(s.update for s in e.steps) <= self.staleness]
        self.stale += len(played) - len(fresh)
        return sorted(fresh, key=lambda e: e.number)


FEWEST = 16
"""Held-out tasks under which nothing is decided."""

KEYS = {"mean_before": "before", "mean_after": "after"}
FIELDS = {key: name for name, key in KEYS.items()}
"""What stored verdicts call these fields, and the way back."""


@dataclass(frozen=True, slots=True)
class HeldOutVerdict:
    """The result of held-out tasks for a version that was trained on episodes. Stored with it, as the gate's report is."""

    version: int
    against: int
    accepted: bool
    probability: float
    """That its mean return on such tasks is higher than that of what it was trained from."""
    reasons: tuple[str, ...]
    environment: str
    tasks: int
    mean_before: float
    mean_after: float
    error: float
    """Standard error of the mean of the differences, task by task."""
    unparsable_before: float
    unparsable_after: float
    again_at: int = 0
    kind: str = "episodes"
    rated: Mapping[str, object] | None = None
    """What the gate found by ratings, where the run learned from those too: the version has to be better by both."""

    def to_dict(self) -> JsonObject:
        return with_keys(asdict(self), KEYS)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> HeldOutVerdict:
        return cls(**with_keys(data, FIELDS) | {"reasons": tuple(data["reasons"])})

    def text(self) -> str:
        said = "Accepted" if self.accepted else "Not accepted"
        reasons = [f"{said}: {self.reasons[0]}.", *(f"- {reason}" for reason in self.reasons[1:])]
        if not self.tasks:
            return "\n".join(reasons)
        return "\n".join(
            [
                *reasons,
                f"{'':<28}{'before':>10}{'after':>10}",
                f"  {'mean return':<26}{self.mean_before:>10.3f}{self.mean_after:>10.3f}",
                f"  {'replies unread':<26}{self.unparsable_before:>10.1%}{self.unparsable_after:>10.1%}",
                f"  {self.tasks} held-out tasks of {self.environment}, difference {self.mean_after - self.mean_before:+.3f} ± {self.error:.3f}",
            ]
        )


def orders(tasks: Sequence[Task], count: int, seed: int, first: int) -> list[Order]:
    """One try at each of ``count`` held-out tasks (several where there are fewer), numbered from ``first``: the same worlds whenever it is asked."""
    chosen = [tasks[i % len(tasks)] for i in range(count)] if tasks else []
    return [
        Order(first + i, task, mixed("held out", i) % 2**31, seed, first + i, "test")
        for i, task in enumerate(chosen)
    ]


def evaluate(
    rollouts: EpisodeSource,
    orders: Sequence[Order],
    *,
    played: Mapping[int, Episode] | None = None,
    tell: Callable[[int, int], None] = lambda *_: None,
) -> list[Episode]:
    """All of these, in order; those of ``played`` are taken as they are."""
    done = dict(played or {})
    rollouts.start(order for order in orders if order.number not in done)
    while not rollouts.idle:
        done |= {episode.number: episode for episode in rollouts.wave()}
        tell(len(done), len(orders))
    return [done[order.number] for order in orders]


def compare(
    reference: Sequence[Episode], after: Sequence[Episode], *, version: int, against: int, confidence: float
) -> HeldOutVerdict:
    """Task by task: the probability that the mean difference is above 0, by the normal approximation of a mean of many."""
    pairs = [(b, a) for b, a in zip(reference, after, strict=True) if "failed" not in (b.status, a.status)]
    differences = [a.total - b.total for b, a in pairs]
    n = len(differences)
    mean = sum(differences) / max(1, n)
    spread = math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1)) if n > 1 else 0.0
    error = spread / math.sqrt(max(1, n))
    probability = (
        0.5 if n == 0 else float(mean > 0) if error == 0 and mean else _normal(mean / error) if error else 0.5
    )
    enough = n >= FEWEST
    accepted = enough and probability >= confidence
    reasons = [
        f"better on held-out tasks with probability {probability:.3f} ({confidence:.2f} is asked for)"
        if enough
        else f"only {n} held-out tasks were played to their ends; {FEWEST} are needed to decide"
    ]
    if len(pairs) < len(reference):
        reasons.append(f"{len(reference) - len(pairs)} tasks were left out: their worlds broke")
    return HeldOutVerdict(
        version=version,
        against=against,
        accepted=accepted,
        probability=probability,
        reasons=tuple(reasons),
        environment=reference[0].environment if reference else "",
        tasks=n,
        mean_before=sum(b.total for b, _ in pairs) / max(1, n),
        mean_after=sum(a.total for _, a in pairs) / max(1, n),
        error=error,
        unparsable_before=_unread([b for b, _ in pairs]),
        unparsable_after=_unread([a for _, a in pairs]),
    )


def _normal(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def _unread(episodes: Sequence[Episode]) -> float:
    return sum(e.unparsable for e in episodes) / max(1, sum(len(e.steps) for e in episodes))
