"""A person who likes one thing *and* another: Bayes over all conjunctions of up to three signs of an answer.

A ridge adds up: what meets two of three wishes gets two thirds of the reward. Somebody who wants short bullets without an apology calls
everything else bad. So every conjunction h of one to three literals (a sign is there, or it is not) is a hypothesis about what is good, and

    P(h | ratings) ∝ P(h) Π_i P(r_i | h),     P(h) = Π over its literals of 1/20 (of manner) or 1/120 (a token)

where a rating agrees with h with probability 1 − ε, and a rating between −1 and 1 counts in parts for each side. Remarks speak to the same
hypotheses: one that names a sign of h which the answer lacks has probability 1 − δ, any other δ. What is expected of an answer is
then 2 Σ_h P(h | …) h(x) − 1: all of it sums over a table of at most some ten thousand rows, nothing is fitted.

On tastes that are conjunctions that is worth about twice the ratings; what is not one, the ridge beside it has to find (docs/studies/0002-more-from-the-same-taps.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

WRONG_TAP = 0.12
"""ε: share of ratings that say the opposite of what their person likes."""
WRONG_REMARK = 0.05
"""δ: probability of a remark about something that is not part of the taste, or not missing."""
LITERAL = 20.0
"""A priori odds against any one literal of manner being part of a taste."""
TOKEN = 6.0
"""Further odds against a token."""
NOISE = 4 * WRONG_TAP * (1 - WRONG_TAP)
"""Variance of one tap about what its person likes."""
RARE = 0.02
"""A conjunction that holds for fewer of the base's answers than this, or misses fewer, is no hypothesis: nothing could be said of it."""
VARIES = 0.08
"""A sign that fewer of the base's answers have than this, or lack, is part of no hypothesis."""
MOST_TOKENS = 150
"""Tokens that are looked at, those nearest to being in half of the answers."""
KEPT = 2000
"""Hypotheses that predictions are made with, the likeliest."""
_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Space:
    """All hypotheses. A literal below ``len(columns)`` says that this column is set, one above that it is not; the last is always true."""

    columns: Ints  # [k] columns of the signs that vary
    literals: Ints  # [h, 3]
    prior: Floats  # [h] log P(h), not normalised

    @classmethod
    def of(cls, signs: ArrayLike, manners: int) -> Space:
        """From the signs ``[S, m]`` of answers of the base, of which the first ``manners`` are of manner and the others tokens."""
        seen = np.asarray(signs, dtype=bool)
        if not len(seen):
            seen = np.zeros((1, seen.shape[1]), dtype=bool)  # of no answers nothing varies, as of one
        share = seen.mean(axis=0)
        varying = np.flatnonzero((share > VARIES) & (share < 1 - VARIES))
        tokens = varying[varying >= manners]
        tokens = tokens[np.argsort(np.abs(share[tokens] - 0.5), kind="stable")[:MOST_TOKENS]]
        columns = np.sort(np.concatenate([varying[varying < manners], tokens]))
        k = len(columns)
        true = 2 * k
        plain = np.flatnonzero(columns < manners)
        cheap, dear = (
            np.concatenate([plain, plain + k]),
            np.setdiff1d(np.arange(2 * k), [*plain, *(plain + k)]),
        )
        rows = [(a, true, true) for a in range(2 * k)]
        rows += [(a, b, true) for a, b in itertools.combinations(cheap, 2)]
        rows += [(a, b, true) for a in cheap for b in dear]
        rows += list(itertools.combinations(cheap, 3))
        literals = np.array(rows, dtype=np.int64).reshape(-1, 3)
        holds = _holds(_literals(seen[:, columns]), literals).mean(axis=0)
        literals = literals[(holds > RARE) & (holds < 1 - RARE)]
        cost = np.full(2 * k + 1, np.log(LITERAL))
        cost[dear] += np.log(TOKEN)
        cost[true] = 0.0
        return cls(columns, literals, -cost[literals].sum(axis=1))

    def literals_of(self, signs: ArrayLike) -> Bools:
        """``[n, 2 k + 1]`` of answers with ``signs [n, m]``."""
        return _literals(np.asarray(signs, dtype=bool)[:, self.columns])

    def remarked(self, wanted: Mapping[int, bool], signs: ArrayLike) -> Floats:
        """``[h]`` log-likelihood of one remark about an answer.

        Args:
            wanted: column of the signs → whether it should be set: any one of these may be what is meant.
            signs: ``[m]`` of the answer. Where it meets all that is asked for, the remark is taken as a wish all the same.
        """
        k = len(self.columns)
        meant = np.zeros(2 * k + 1, dtype=bool)
        for place, column in enumerate(self.columns):
            if int(column) in wanted:
                meant[place if wanted[int(column)] else place + k] = True
        lacking = ~self.literals_of(np.atleast_2d(np.asarray(signs)))[0]
        if (meant & lacking).any():
            meant &= lacking
        if not meant.any():
            return np.zeros(len(self.literals))  # nothing that varies here: it says nothing
        return np.log(np.where(meant[self.literals].any(axis=1), 1 - WRONG_REMARK, WRONG_REMARK))


@dataclass(frozen=True, slots=True)
class Conjunctions:
    """The likeliest hypotheses after all that was said, and how likely they are."""

    space: Space
    literals: Ints  # [kept, 3]
    weights: Floats  # [kept], sum 1

    def met(self, signs: ArrayLike) -> Bools:
        """``[n, h]`` which of the hypotheses each answer meets."""
        return _holds(self.space.literals_of(signs), self.literals)

    def predict(self, signs: ArrayLike) -> tuple[Floats, Floats]:
        """Mean ``[n]`` and standard deviation ``[n]`` of what the person thinks of answers with ``signs [n, m]``, in [-1, 1]."""
        mean = 2 * (self.met(signs) @ self.weights) - 1
        return mean, np.sqrt(np.maximum(1 - mean**2, 0.0))

    def joint(self, signs: ArrayLike) -> tuple[Floats, Floats]:
        """Mean ``[n]`` and covariance ``[n, n]`` of the same: what a rating of one answer would say about another."""
        worth = 2.0 * self.met(signs) - 1  # [n, h]
        mean = worth @ self.weights
        return mean, (worth * self.weights) @ worth.T - np.outer(mean, mean)


def fit(space: Space, signs: ArrayLike, ratings: ArrayLike, remarks: Floats | None = None) -> Conjunctions:
    """What ratings in [-1, 1] of answers with ``signs [n, m]``, and ``remarks [h]`` (log-likelihoods), say of each hypothesis."""
    log = space.prior + _likelihoods(space, signs, np.asarray(ratings, dtype=np.float64))
    if remarks is not None:
        log = log + remarks
    order = np.argsort(-log, kind="stable")[:KEPT]
    weights = np.exp(log[order] - log[order[:1]])
    return Conjunctions(space, space.literals[order], weights / weights.sum())


def evidence(space: Space, signs: ArrayLike, ratings: ArrayLike) -> float:
    """Natural logarithm of the Bayes factor of *some conjunction is wanted* against *each tap is a coin's toss*, the coin's bias unknown.

    That of the coin is ∫ p^k (1 - p)^(n - k) dp = B(k + 1, n - k + 1) for k good ones of n. It holds however it was chosen what was rated
    (the likelihood principle). 0 where nothing varies.
    """
    ratings = np.asarray(ratings, dtype=np.float64)
    if not len(space.literals):
        return 0.0
    prior = space.prior - np.logaddexp.reduce(space.prior)
    wanted = float(np.logaddexp.reduce(prior + _likelihoods(space, signs, ratings)))
    good, every = float(((1 + ratings) / 2).sum()), len(ratings)
    return wanted - (math.lgamma(good + 1) + math.lgamma(every - good + 1) - math.lgamma(every + 2))


def _likelihoods(space: Space, signs: ArrayLike, ratings: Floats) -> Floats:
    """[h] log P(ratings | h)"""
    good = (1 + ratings) / 2
    agree, oppose = np.log(1 - WRONG_TAP), np.log(WRONG_TAP)
    where, elsewhere = good * agree + (1 - good) * oppose, good * oppose + (1 - good) * agree
    holds = _holds(space.literals_of(signs), space.literals)
    made: Floats = holds.T @ (where - elsewhere) + elsewhere.sum()
    return made


def _literals(signs: Bools) -> Bools:
    """[n, k] → [n, 2 k + 1]: set, not set, and always true."""
    return np.hstack([signs, ~signs, np.ones((len(signs), 1), dtype=bool)])


def _holds(literals: Bools, hypotheses: Ints) -> Bools:
    """[n, 2 k + 1], [h, 3] → [n, h]"""
    parts = []
    for start in range(0, max(len(hypotheses), 1), _ROWS):
        a, b, c = hypotheses[start : start + _ROWS].T
        parts.append(literals[:, a] & literals[:, b] & literals[:, c])
    return np.hstack(parts)
