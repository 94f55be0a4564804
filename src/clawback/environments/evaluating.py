"""Evaluation on held-out tasks before and after training, and how certain the difference is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from clawback.environments.core import Task
from clawback.environments.episode_loop import Order
from clawback.environments.rollouts import EpisodeSource
from clawback.environments.world_helpers import mixed
from clawback.records import Episode, JsonObject, with_keys

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
    rated: Mapping[str, Any] | None = None
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
