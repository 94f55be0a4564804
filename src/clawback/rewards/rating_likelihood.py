"""Ratings as evidence: which value and kind each has for the reader, and how likely it is under a rule.

Where a rule is what is wanted, two models tell how likely taps are that do not follow it:

* ``WrongTaps``, of a rule about what stands in the text: the rule is the taste, and a share ε of the taps is wrong, the same share on both sides.
* ``TwoShares``, of a rule that somebody judges: the judge errs as well, and not on both sides alike. Of ten answers to which a rare thing is ascribed
  half may lack it, while hardly any of the others have it. So answers that keep the rule are liked with a share p₁, the others with p₀ < p₁.

Both shares are integrated over, uniform beforehand. They are those of one kind of feedback: who is wrong in one of ten ratings may have kept the
better branch of an answer in six of ten, and a likelihood that took both as one would believe neither. So each kind has shares of its own.
The ±½ of a comparison and the small value of a guess are conventions about a mean; here they count as the direction that they name.

**Scores.** Scores are stored, shown and signed as ``clawback.scales`` centres them. Where most scores of a person are close together and a few are far off, centred
values are little more than those few. So the reader takes the rank of each score, moved so that the lowest is -1, the highest 1 and the mean 0:

    u = (rank - lowest rank) / (highest rank - lowest rank),    value = (u - m) / (1 - m) for u >= m, (u - m) / m otherwise,    m = mean u

Taps are what they were: of two values one is -1 and the other 1. Thirty tens beside two ones are thirty times 1 and twice -1. Up to ``FEW`` scores count
as they are centred, from ``MANY`` on their ranks do, and in between both.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clawback.records import Sample
from clawback.scales import FEW, MANY

Floats = NDArray[np.float64]
Numbers = NDArray[np.floating[Any]]
"""In single or double precision."""
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

RATED, COMPARED, GUESSED = range(3)
"""Kinds of feedback with a share of wrong ones each: ratings and rewards; comparisons and edits; signs of use that nobody gave as feedback."""

MOST_WRONG = 0.5
"""Largest ε: beyond it the opposite rule would be the better one."""
_NODES = 256
"""Gauss-Legendre nodes of the integral over ε."""
_STEPS = 8
"""Entries of a table for each rating; numbers of ratings between them are interpolated."""
_LOGISTIC = 1.702
"""A logistic function of 1.702 z is the normal distribution's to within 0.01 (Haley 1952)."""


@functools.lru_cache(maxsize=1)
def _quadrature() -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights


class WrongTaps:
    """The unknown share ε of wrong taps among ``count`` ratings: what an agreement with them is worth, ε integrated over."""

    def __init__(self, count: int) -> None:
        nodes, weights = _quadrature()
        wrong = MOST_WRONG * (nodes + 1) / 2  # [nodes] in (0, MOST_WRONG)
        self.agreements = np.linspace(0.0, count, _STEPS * count + 1)
        table = (
            self.agreements[:, None] * np.log1p(-wrong)
            + (count - self.agreements[:, None]) * np.log(wrong)
            + np.log(weights / 2)
        )  # [_STEPS · count + 1, nodes]
        self.logs = np.logaddexp.reduce(table, axis=1)
        self.expected = np.exp(table - self.logs[:, None]) @ wrong

    @classmethod
    @functools.lru_cache(maxsize=256)
    def of(cls, count: int) -> WrongTaps:
        """The same, kept: parts of the ratings are looked at again and again."""
        return cls(count)

    def likelihoods(self, agreements: ArrayLike) -> Floats:
        """log P(ratings | h), of the same shape as the ``agreements`` in [0, count] of each h."""
        logs: Floats = np.interp(np.asarray(agreements), self.agreements, self.logs)
        return logs

    def nearest(self, agreements: Numbers) -> Numbers:
        """The same of many, by the nearest entry of the table: exact where ratings are −1 or 1, and several times as fast."""
        places = np.rint(agreements * np.float32(_STEPS)).astype(np.int32)
        logs: Numbers = self.logs.astype(np.float32).take(places, mode="clip")
        return logs

    def means(self, agreements: ArrayLike) -> Floats:
        """Expected ε after these agreements."""
        shares: Floats = np.interp(np.asarray(agreements), self.agreements, self.expected)
        return shares


@dataclass(frozen=True, slots=True)
class TwoShares:
    """Unknown shares p₁ > p₀ of liked answers, of those that keep a rule and of the others, among ``count`` ratings.

    Integrated over all p₁ and p₀, the likelihood is that of two Beta functions; of that, twice the part where p₁ > p₀ counts, by the normal approximation.
    """

    count: int
    steps: Floats
    log_gamma: Floats

    @classmethod
    @functools.lru_cache(maxsize=256)
    def of(cls, count: int) -> TwoShares:
        steps = np.linspace(1.0, count + 2.0, _STEPS * (count + 1) + 1)
        return cls(count, steps, np.array([math.lgamma(x) for x in steps]))

    def likelihoods(self, liked: ArrayLike, met: ArrayLike, total: ArrayLike) -> Floats:
        """log P(ratings | rule) where of ``met`` answers that keep it ``liked`` are liked, and of all answers ``total``. Shapes broadcast."""
        a, n = np.asarray(liked, dtype=np.float64), np.asarray(met, dtype=np.float64)
        c, m = np.maximum(np.asarray(total) - a, 0.0), self.count - n
        first, second = (a + 1) / (n + 2), (c + 1) / (m + 2)
        spread = first * (1 - first) / (n + 3) + second * (1 - second) / (m + 3)
        apart = _LOGISTIC * (first - second) / np.sqrt(np.maximum(spread, 1e-12))
        both = self._log_beta(a, n - a) + self._log_beta(c, m - c)
        made: Floats = both + math.log(2.0) - np.logaddexp(0.0, -apart)
        return made

    def _log_beta(self, good: Floats, bad: Floats) -> Floats:
        """log B(good + 1, bad + 1)"""
        parts = (np.interp(x, self.steps, self.log_gamma) for x in (good + 1, bad + 1, good + bad + 2))
        a, b, c = parts
        return np.asarray(a + b - c)


@dataclass(frozen=True, slots=True)
class Counts:
    """Of ``count`` ratings: how many answers meet each rule, how many of those are liked, and how many of all are."""

    count: int
    met: Numbers  # [h, 1]
    liked: Numbers  # [h, b]
    total: Numbers  # [b]

    @property
    def agreements(self) -> Numbers:
        """``[h, b]`` liked answers that meet the rule, and others that do not."""
        return np.asarray(2 * self.liked + (self.count - self.total - self.met))

    def of(self, some: Bools) -> Counts:
        """Those of some of the rules."""
        return Counts(self.count, self.met[some], self.liked[some], self.total)


def strata(values: Floats, kinds: Ints | None) -> list[tuple[Ints, Floats]]:
    """Rows of each kind of feedback among ``values [n, …]`` in [-1, 1], and to which share each of them is liked. ``kinds [n]``; None: all are ratings."""
    if kinds is None:
        return [(np.arange(len(values)), (1 + values) / 2)]
    found = []
    for kind in (RATED, COMPARED, GUESSED):
        rows = np.flatnonzero(np.asarray(kinds) == kind)
        if len(rows):
            some = values[rows] if kind == RATED else np.sign(values[rows])
            found.append((rows, (1 + some) / 2))
    return found


class Likelihood:
    """log P(ratings | rule) of rules about the text (``WrongTaps``) and of judged ones (``TwoShares``), for ``count`` ratings.

    Counts in single precision, of which there are many, give likelihoods in single precision.
    """

    def __init__(self, count: int) -> None:
        self.count, self.taps, self.shares = count, WrongTaps.of(count), TwoShares.of(count)

    def counts(self, holds: Bools, good: Numbers) -> Counts:
        """Of rules that the answers meet, ``[n, h]``, and of shares ``good [n, b]`` in [0, 1] to which each is liked."""
        met = holds.sum(axis=0, dtype=good.dtype)[:, None]
        return Counts(self.count, met, holds.T.astype(good.dtype) @ good, good.sum(axis=0))

    def __call__(self, counts: Counts, judged: Bools) -> Numbers:
        """``[h, b]``; ``judged [h]``: which rules are of the second kind."""
        agreements = counts.agreements
        single = agreements.dtype == np.float32
        logs: Numbers = self.taps.nearest(agreements) if single else self.taps.likelihoods(agreements)
        if judged.any():
            logs[judged] = self.shares.likelihoods(counts.liked[judged], counts.met[judged], counts.total)
        return logs

    def without(self, counts: Counts, judged: Bools, met: bool, liked: bool) -> Numbers:
        """``[h, b]`` that of all ratings but one: of an answer that meets the rule or does not, and is liked or is not. ``self`` is for one rating fewer.

        Where there is no such answer, the number means nothing.
        """
        rest = Counts(self.count, counts.met - met, counts.liked - (met and liked), counts.total - liked)
        return self(rest, judged)


def reader_values(samples: Sequence[Sample]) -> Floats:
    """``[n]`` what was said of the samples, in [-1, 1], with scores by rank. What is no rating by itself (edits, comparisons, means of several
    people, credit from a later turn) stays as it is."""
    values = np.array([one.feedback_value for one in samples], dtype=np.float64)
    strongest: dict[int, float] = {}
    for sample in samples:
        for part in sample.parts:
            strongest[part.feedback_id] = max(strongest.get(part.feedback_id, 0.0), abs(part.value))
    places = [i for i, one in enumerate(samples) if _is_rating(one, strongest)]
    if any(0 < abs(values[i]) < 1 for i in places):
        values[places] = by_rank(values[places])
    return values


def feedback_kinds(samples: Sequence[Sample]) -> Ints:
    """``[n]`` the kind of feedback that each sample's value comes from (``rating_likelihood``): of several the most direct."""
    return np.array([_kind(sample) for sample in samples], dtype=np.int64)


def _kind(sample: Sample) -> int:
    kinds = {part.kind for part in sample.parts}
    if not kinds or kinds & {"rating", "reward", "judge"}:
        return RATED
    return COMPARED if kinds & {"preference", "edit"} else GUESSED


def _is_rating(sample: Sample, strongest: dict[int, float]) -> bool:
    if len(sample.parts) != 1:
        return False
    [part] = sample.parts
    return part.kind == "rating" and abs(part.value) >= strongest[part.feedback_id]


def ranks(values: ArrayLike) -> Floats:
    """``[n]`` → ranks from 1 to n; equal values share the mean of theirs."""
    x = np.asarray(values, dtype=np.float64)
    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[place], dtype=np.float64)


def by_rank(values: Floats) -> Floats:
    """``[n]`` values in [-1, 1] by their ranks, the ends held and the mean at 0."""
    if len(values) <= FEW or np.ptp(values) == 0:
        return values
    place = ranks(values)
    place = (place - place.min()) / np.ptp(place)
    mean = place.mean()
    ranked = np.where(place >= mean, (place - mean) / (1 - mean), (place - mean) / mean)
    share = min((len(values) - FEW) / (MANY - FEW), 1.0)
    return np.asarray(share * ranked + (1 - share) * values)
