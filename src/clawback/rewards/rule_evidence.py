"""How well the rules of ``rule_posterior`` explain ratings, and how well they predict ratings that they have not seen; of many ratings at once.

*Evidence* is the Bayes factor of "some rule is wanted" against "each rating is a coin toss". *Left out* are the predictions of each rating from all others:
with the rules h, their prior P(h) and the likelihood L of all ratings but the i-th,

    E[r_i | the others] = 2 Σ_h P(h) L₋ᵢ(h) h(xᵢ) / Σ_h P(h) L₋ᵢ(h) − 1

A likelihood depends on numbers of answers only, so L₋ᵢ is one of four for each rule (xᵢ meets it or not, was liked or not), and all of
the sums are matrix products. Permuted ratings cost as little.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clawback.rewards.rating_likelihood import Counts, Likelihood
from clawback.rewards.rule_posterior import ROWS, Bools, Floats, Space, rules_met

Singles = NDArray[np.float32]

_CASES = ((True, True), (False, True), (True, False), (False, False))
"""Whether an answer meets a rule, and whether it was liked."""


def evidence(space: Space, signs: ArrayLike, ratings: ArrayLike, remarks: Floats | None = None) -> float:
    """Natural logarithm of the Bayes factor of *some rule is wanted* against *each rating is a coin toss*, the coin's bias unknown.

    That of the coin is ∫ p^k (1 - p)^(n - k) dp = B(k + 1, n - k + 1) for k good ones of n. It holds however it was chosen what was rated
    (the likelihood principle). 0 where nothing varies. After ``remarks [h]`` it is that of the rules that they left likely.
    """
    values = np.asarray(ratings, dtype=np.float64)
    if not len(space.literals):
        return 0.0
    return RuleEvidenceOverTime(space, signs, values, remarks).of_part(0, len(values))


class RuleEvidenceOverTime:
    """The same of parts of the ratings, which are in the order in which they were given."""

    def __init__(
        self, space: Space, signs: ArrayLike, ratings: Floats, remarks: Floats | None = None
    ) -> None:
        prior = space.prior if remarks is None else space.prior + remarks
        self.prior = prior - np.logaddexp.reduce(prior) if len(prior) else prior
        self.judged, self.good = space.judged, (1 + ratings) / 2
        self.meets = rules_met(space.literals_of(signs), space.literals, space.rules).astype(np.float32)

    def of_part(self, start: int, end: int) -> float:
        """Of the ratings ``start`` to ``end - 1``."""
        return self._of(self.good[start:end], start) - self._coin(start, end)

    def turned(self, start: int, change: int, end: int) -> float:
        """Of the same, where from ``change`` on the opposite of the rule is wanted; against a coin before it and one after it."""
        good = np.concatenate([self.good[start:change], 1 - self.good[change:end]])
        return self._of(good, start) - self._coin(start, change) - self._coin(change, end)

    def _of(self, good: Floats, start: int) -> float:
        """Log-likelihood of these ratings of the answers from ``start`` on."""
        count, total = len(good), float(good.sum())
        if not len(self.prior):
            return _coin(total, count)
        rows = np.array([np.ones(count), good], dtype=np.float32)
        met, liked = (rows @ self.meets[start : start + count]).astype(np.float64)[:, :, None]
        logs = Likelihood(count)(Counts(count, met, liked, np.array([total])), self.judged)[:, 0] + self.prior
        most = logs.max()
        return float(most + np.log(np.exp(logs - most).sum()))

    def _coin(self, start: int, end: int) -> float:
        return _coin(float(self.good[start:end].sum()), end - start)


def explained(space: Space, signs: ArrayLike, ratings: ArrayLike) -> tuple[Floats, Floats]:
    """Evidence ``[b]``, and what is expected of each answer from the other ones' ratings ``[n, b]``; of ``ratings [n, b]``, each column a rating of all answers."""
    dealt = np.asarray(ratings, dtype=np.float64)
    if not len(space.literals):
        return np.zeros(dealt.shape[1]), np.zeros(dealt.shape)
    good = ((1 + dealt) / 2).astype(np.float32)
    sums = _Sums(good, space.prior - np.logaddexp.reduce(space.prior))
    there = space.literals_of(signs)
    for start in range(0, len(space.prior), ROWS):
        rows = slice(start, start + ROWS)
        sums.add(rules_met(there, space.literals[rows], space.rules[rows]), space.judged[rows], rows)
    coin = np.array([_coin(total, len(good)) for total in good.sum(axis=0).tolist()])
    return sums.evidence - coin, sums.left_out()


class _Sums:
    """Σ_h P(h) L(h); and Σ_h P(h) L₋ᵢ(h) over the rules that answer i meets, or does not meet, was it liked or not, relative to the largest term so far."""

    def __init__(self, good: Singles, prior: Floats) -> None:
        count, width = good.shape
        self.good, self.prior = good, prior.astype(np.float32)
        self.all, self.one_less = Likelihood(count), Likelihood(count - 1)
        self.evidence = np.full(width, -np.inf)
        self.largest = np.full(width, -np.inf, dtype=np.float32)
        self.sums = {case: np.zeros((count, width), dtype=np.float32) for case in _CASES}

    def add(self, meets: Bools, judged: Bools, rows: slice) -> None:
        """Rules that the answers meet, ``[n, rows]``."""
        counts, prior = self.all.counts(meets, self.good), self.prior[rows, None]
        logs = self.all(counts, judged) + prior
        most = logs.max(axis=0)
        self.evidence = np.logaddexp(self.evidence, most + np.log(np.exp(logs - most).sum(axis=0)))
        if not judged.any():
            self._leave_out(meets.astype(np.float32), counts, judged, prior)
            return
        for some in (~judged, judged):
            if some.any():
                self._leave_out(meets[:, some].astype(np.float32), counts.of(some), judged[some], prior[some])

    def _leave_out(self, meets: Singles, counts: Counts, judged: Bools, prior: Singles) -> None:
        # Of rules about the text it matters only whether rating and rule agree.
        cases = _CASES if judged[0] else _CASES[:2]
        logs = {case: self.one_less.without(counts, judged, *case) + prior for case in cases}
        largest = np.maximum.reduce([self.largest, *(each.max(axis=0) for each in logs.values())])
        shrink = np.exp(self.largest - largest)
        self.largest = largest
        inside, every = {}, {}
        for case, each in logs.items():
            weights = np.exp(each - largest)
            inside[case], every[case] = meets @ weights, weights.sum(axis=0)
        for met, liked in _CASES:
            case = (met, liked) if (met, liked) in inside else (not met, not liked)
            more = inside[case] if met else np.maximum(every[case] - inside[case], 0.0)
            self.sums[met, liked] = self.sums[met, liked] * shrink + more

    def left_out(self) -> Floats:
        """``[n, b]`` in [-1, 1]"""
        met = self.good * self.sums[True, True] + (1 - self.good) * self.sums[True, False]
        other = self.good * self.sums[False, True] + (1 - self.good) * self.sums[False, False]
        return np.asarray(2 * met / np.maximum(met + other, 1e-30) - 1, dtype=np.float64)


def _coin(good: float, count: int) -> float:
    return math.lgamma(good + 1) + math.lgamma(count - good + 1) - math.lgamma(count + 2)
