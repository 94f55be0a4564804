"""Weights for judges' votes and for several people's ratings, from the turns that both have rated.

**Judges.** A judge's weight follows from the sign on which it does worse. With ``n₊`` common turns that the person liked, of which the judge
voted +1 on ``a₊``, and the same for what they disliked, each rate has a Beta posterior (prior Beta(10, 6), mean 0.625):

    p± = (10 + a±) / (16 + n±)          mean of Beta(10 + a±, 6 + n± − a±)
    weight = max(0, 2 min(p₊, p₋) − 1)

- Where the two rates are alike, ``2p − 1`` is what the person would say on average where the judge says +1.
- With no common turn the weight is ¼, and a few move it little.
- A judge that always says +1 agrees with a contented person nine times in ten, which says nothing. Here only what it says of
  disliked turns counts against it: ``p₋ = 10 / (16 + n₋)``, so four of them take its weight to 0.

**People.** Cohen's κ (linear) of what a person likes and dislikes with what every other person does, on the n ratings in common, drawn towards 1 by
ten ratings in full agreement: ``max(0, (10 + n κ) / (10 + n))``, over the largest of these. So whoever agrees most counts in full, and so do two who are
alone with each other, however little they agree: nobody can say which of them is the odd one out. (κ is small, too, where nearly all ratings are of one
sign; what all have in common must not make every rating small.) Who never rated what others rated counts in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from clawback.feedback.agreement import cohen_kappa
from clawback.feedback.opinions import ratings
from clawback.records import Feedback

PRIOR = (10.0, 6.0)
"""Agreements and disagreements, on each sign, that a judge starts with."""
FULL = 10
"""Common turns in full agreement that a person starts with."""
NEITHER = 0.125
"""Below it nothing was liked or disliked: the middle two of ten scores."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """A judge's agreement with its person. ``good`` and ``bad``: (votes that agree, common turns) by what the person said."""

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


def reliability(ratings: Mapping[int, float], votes: Iterable[Feedback]) -> dict[str, Reliability]:
    """Source → how it stands beside the person.

    Args:
        own: turn → what the person's own feedback makes of it, in [-1, 1]; near 0 it is neither liked nor disliked.
        votes: the judges' rows; one whose value is 0 is no vote.
    """
    counts: dict[str, list[int]] = {}
    for vote in votes:
        if vote.value == 0:
            continue
        row = counts.setdefault(vote.source, [0, 0, 0, 0, 0])  # votes, agreed₊, n₊, agreed₋, n₋
        row[0] += 1
        said = ratings.get(vote.turn_id, 0.0)
        if sign(said):
            at = 1 if said > 0 else 3
            row[at] += (vote.value > 0) == (said > 0)
            row[at + 1] += 1
    return {s: Reliability(s, n, (a, b), (c, d)) for s, (n, a, b, c, d) in sorted(counts.items())}


def agreed(feedback: Iterable[Feedback]) -> dict[str, float]:
    """Person → weight of their ratings, for those who rated what others rated, too."""
    by_person: dict[str, dict[int, float]] = {}
    for rating in ratings(feedback):
        by_person.setdefault(rating.author, {})[rating.turn_id] = rating.value
    weights = {}
    for person, values in by_person.items():
        kappa, common = kappa_with(values, [v for other, v in by_person.items() if other != person])
        if kappa is not None:
            weights[person] = weight(kappa, common)
    most = max(weights.values(), default=0.0)
    return {person: value / most for person, value in weights.items()} if most else {}


def kappa_with(
    values: Mapping[int, float], others: Sequence[Mapping[int, float]]
) -> tuple[float | None, int]:
    """Linear-weighted κ of likes and dislikes (turn → value) with those of all others, and how many pairs that were. None: not defined."""
    pairs = [(value, of[turn]) for turn, value in values.items() for of in others if turn in of]
    return cohen_kappa([sign(a) for a, _ in pairs], [sign(b) for _, b in pairs], "linear"), len(pairs)


def weight(kappa: float, common: int) -> float:
    """``max(0, (10 + n κ) / (10 + n))``."""
    return max(0.0, (FULL + common * kappa) / (FULL + common))


def sign(value: float) -> int:
    """-1, 0 or 1."""
    return 0 if abs(value) < NEITHER else (1 if value > 0 else -1)
