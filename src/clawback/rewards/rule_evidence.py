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

from clawback.rewards.rating_likelihood import Counts, Likelihood, Numbers, strata
from clawback.rewards.rule_posterior import ROWS, Bools, Floats, Ints, Space, rules_met

Singles = NDArray[np.float32]

_CASES = ((True, True), (False, True), (True, False), (False, False))
"""Whether an answer meets a rule, and whether it was liked."""


def evidence(
    space: Space,
    signs: ArrayLike,
    ratings: ArrayLike,
    remarks: Floats | None = None,
    kinds: Ints | None = None,
) -> float:
    """Natural logarithm of the Bayes factor of *some rule is wanted* against *each rating is a coin toss*, the coin's bias unknown.

    That of the coin is ∫ p^k (1 - p)^(n - k) dp = B(k + 1, n - k + 1) for k good ones of n. It holds however it was chosen what was rated
    (the likelihood principle). 0 where nothing varies. After ``remarks [h]`` it is that of the rules that they left likely.
    """
    values = np.asarray(ratings, dtype=np.float64)
    if not len(space.literals):
        return 0.0
    return RuleEvidenceOverTime(space, signs, values, remarks, kinds).of_part(0, len(values))


class RuleEvidenceOverTime:
    """The same of parts of the ratings, which are in the order in which they were given."""

    def __init__(
        self,
        space: Space,
        signs: ArrayLike,
        ratings: Floats,
        remarks: Floats | None = None,
        kinds: Ints | None = None,
    ) -> None:
        prior = space.prior if remarks is None else space.prior + remarks
        self.prior = prior - np.logaddexp.reduce(prior) if len(prior) else prior
        self.judged, self.values, self.kinds = space.judged, ratings, kinds
        self.meets = rules_met(space.literals_of(signs), space.literals, space.rules).astype(np.float32)

    def of_part(self, start: int, end: int) -> float:
        """Of the ratings ``start`` to ``end - 1``."""
        return self._of(self.values[start:end], start) - self._coin(start, end)

    def turned(self, start: int, change: int, end: int) -> float:
        """Of the same, where from ``change`` on the opposite of the rule is wanted; against a coin before it and one after it."""
        values = np.concatenate([self.values[start:change], -self.values[change:end]])
        return self._of(values, start) - self._coin(start, change) - self._coin(change, end)

    def _strata(self, values: Floats, start: int) -> list[tuple[Ints, Floats]]:
        return strata(values, None if self.kinds is None else self.kinds[start : start + len(values)])

    def _of(self, values: Floats, start: int) -> float:
        """Log-likelihood of these ratings of the answers from ``start`` on."""
        if not len(self.prior):
            return sum(_coin(float(good.sum()), len(good)) for _, good in self._strata(values, start))
        logs = self.prior
        for places, good in self._strata(values, start):
            count, total = len(good), float(good.sum())
            rows = np.array([np.ones(count), good], dtype=np.float32)
            met, liked = (rows @ self.meets[start + places]).astype(np.float64)[:, :, None]
            counts = Counts(count, met, liked, np.array([total]))
            logs = logs + Likelihood(count)(counts, self.judged)[:, 0]
        most = logs.max()
        return float(most + np.log(np.exp(logs - most).sum()))

    def _coin(self, start: int, end: int) -> float:
        parts = self._strata(self.values[start:end], start)
        return sum(_coin(float(good.sum()), len(good)) for _, good in parts)


def explained(
    space: Space, signs: ArrayLike, ratings: ArrayLike, kinds: Ints | None = None
) -> tuple[Floats, Floats]:
    """Evidence ``[b]``, and what is expected of each answer from the other ones' ratings ``[n, b]``; of ``ratings [n, b]``, each column a rating of all answers."""
    dealt = np.asarray(ratings, dtype=np.float64)
    if not len(space.literals):
        return np.zeros(dealt.shape[1]), np.zeros(dealt.shape)
    parts = [_Sums(places, good.astype(np.float32)) for places, good in strata(dealt, kinds)]
    prior = (space.prior - np.logaddexp.reduce(space.prior)).astype(np.float32)
    there, evidence = space.literals_of(signs), np.full(dealt.shape[1], -np.inf)
    for start in range(0, len(prior), ROWS):
        rows = slice(start, start + ROWS)
        meets, judged = rules_met(there, space.literals[rows], space.rules[rows]), space.judged[rows]
        counts = [part.counts(meets) for part in parts]
        each = [part.all(count, judged) for part, count in zip(parts, counts, strict=True)]
        logs = sum(each, start=prior[rows, None])
        most = logs.max(axis=0)
        evidence = np.logaddexp(evidence, most + np.log(np.exp(logs - most).sum(axis=0)))
        for part, count, own in zip(parts, counts, each, strict=True):
            # Of one kind alone: numbers that are taken off again would cost digits.
            part.add(meets, judged, count, prior[rows, None] if len(parts) == 1 else logs - own)
    found = np.zeros(dealt.shape)
    for part in parts:
        evidence = evidence - np.array(
            [_coin(total, len(part.good)) for total in part.good.sum(axis=0).tolist()]
        )
        found[part.places] = part.left_out()
    return evidence, found


class _Sums:
    """Of one kind of feedback, Σ_h P(h) L₋ᵢ(h) over the rules that answer i meets, or does not meet, was it liked or not, relative to the largest
    term so far. What the other kinds say of a rule counts as its prior."""

    def __init__(self, places: Ints, good: Singles) -> None:
        count, width = good.shape
        self.places, self.good = places, good
        self.all, self.one_less = Likelihood(count), Likelihood(count - 1)
        self.largest = np.full(width, -np.inf, dtype=np.float32)
        self.sums = {case: np.zeros((count, width), dtype=np.float32) for case in _CASES}

    def counts(self, meets: Bools) -> Counts:
        """Of rules that all answers meet, ``[n, h]``."""
        return self.all.counts(meets[self.places], self.good)

    def add(self, meets: Bools, judged: Bools, counts: Counts, prior: Numbers) -> None:
        """Rules that all answers meet, ``[n, h]``, and their ``prior [h, 1 or b]``."""
        own = meets[self.places]
        if not judged.any():
            self._leave_out(own.astype(np.float32), counts, judged, prior)
            return
        for some in (~judged, judged):
            if some.any():
                self._leave_out(own[:, some].astype(np.float32), counts.of(some), judged[some], prior[some])

    def _leave_out(self, meets: Singles, counts: Counts, judged: Bools, prior: Numbers) -> None:
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
