"""How much a judge's vote is worth to *this* person, from the turns that both have spoken about.

A judge is as good as it is on the sign where it is worse. With ``n₊`` common turns that the person liked, of which the judge
voted +1 on ``a₊``, and the same for what they disliked, each rate has a Beta posterior (prior Beta(10, 6), mean 0.625):

    p± = (10 + a±) / (16 + n±)          mean of Beta(10 + a±, 6 + n± − a±)
    weight = max(0, 2 min(p₊, p₋) − 1)

- Where the two rates are alike, ``2p − 1`` is what the person would say on average where the judge says +1.
- With no common turn the weight is ¼, and a few move it little.
- A judge that always says +1 agrees with a contented person nine times in ten, which says nothing. Here only what it says of
  disliked turns counts against it: ``p₋ = 10 / (16 + n₋)``, so four of them take its weight to 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clawback.records import Feedback

PRIOR = (10.0, 6.0)
"""Agreements and disagreements, on each sign, that a judge starts with."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """A judge beside its person. ``good`` and ``bad``: (votes that agree, common turns) by what the person said."""

    source: str
    votes: int
    good: tuple[int, int]
    bad: tuple[int, int]

    @property
    def common(self) -> int:
        return self.good[1] + self.bad[1]

    @property
    def weight(self) -> float:
        """In [0, 1]; ¼ before anything is known."""
        return max(0.0, 2 * min(_rate(*self.good), _rate(*self.bad)) - 1)


def _rate(agreed: int, common: int) -> float:
    return (PRIOR[0] + agreed) / (sum(PRIOR) + common)


PRIOR_WEIGHT = Reliability("", 0, (0, 0), (0, 0)).weight


def reliability(own: Mapping[int, float], votes: Iterable[Feedback]) -> dict[str, Reliability]:
    """Source → how it stands beside the person.

    Args:
        own: turn → what the person's own feedback makes of it, in [-1, 1]; near 0 (under ⅛) is neither liked nor disliked.
        votes: the judges' rows; one whose value is 0 is no vote.
    """
    counts: dict[str, list[int]] = {}
    for vote in votes:
        if vote.value == 0:
            continue
        row = counts.setdefault(vote.source, [0, 0, 0, 0, 0])  # votes, agreed₊, n₊, agreed₋, n₋
        row[0] += 1
        said = own.get(vote.turn_id, 0.0)
        if abs(said) >= 0.125:
            at = 1 if said > 0 else 3
            row[at] += (vote.value > 0) == (said > 0)
            row[at + 1] += 1
    return {s: Reliability(s, n, (a, b), (c, d)) for s, (n, a, b, c, d) in sorted(counts.items())}
