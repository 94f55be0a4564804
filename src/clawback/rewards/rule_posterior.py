"""A posterior over rules: all conjunctions of up to three signs of an answer (binary features), and some other rules.

A ridge regression is additive: an answer that meets two of three wishes gets two thirds of the reward. But somebody who wants short bullets without an
apology rates everything else bad. So every conjunction h of one to three literals (a sign is there, or it is not) is a hypothesis about what is good, and

    P(h | ratings) ∝ P(h) Π_i P(r_i | h),     P(h) = Π over its literals of 1/20 (of style) or 1/120 (a token)

where a rating agrees with h with probability 1 − ε, and a rating between −1 and 1 counts in parts for each side. The share ε of wrong taps is
not known: it is integrated over, uniform between 0 and ½. With the agreement ``a`` of n ratings (the number of those that agree),

    P(ratings | h) = 2 ∫₀^½ (1 − ε)^a ε^(n − a) dε

An ε that is fixed speaks against a true rule once more taps are wrong than it says, the more so the more ratings there are. Remarks are evidence on the same
hypotheses: one that names a sign of h which the answer lacks has probability 1 − δ, any other δ. The expected rating of an answer is
then 2 Σ_h P(h | …) h(x) − 1: all of it sums over a table of at most some ten thousand rows, nothing is fitted.

A judge's verdict on a proposed attribute is a literal like others, of rules with a likelihood of their own (``rewards.rating_likelihood``). Where there are
further signs than style and tokens (``SignLayout``), three more kinds of rule are hypotheses: a statistic between two of its cuts, that *not*
both of two style signs hold (so: one thing *or* another), and that a style sign holds exactly where one of the question does (a list where
steps are asked for). Each kind has prior odds of its own, so that the many rare rules do not crowd out the few common ones.

On tastes that are conjunctions this is worth about twice the ratings; other tastes are left to the model beside it (research/studies/2026-11-21-more-from-the-same-taps.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clawback.rewards.rating_likelihood import MOST_WRONG, Likelihood, Numbers, strata

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

WRONG_REMARK = 0.05
"""δ: probability of a remark about something that is not part of the taste, or not missing."""
LITERAL = 20.0
"""A priori odds against any one style literal being part of a taste."""
TOKEN = 6.0
"""Further odds against a token."""
STATISTIC = 8.0
"""Further odds against a statistic."""
OTHER = 10.0
"""Further odds against a rule that is no conjunction."""
RARE = 0.02
"""A conjunction that holds for fewer of the base's answers than this, or misses fewer, is no hypothesis: nothing could be said of it."""
VARIES = 0.08
"""A sign that fewer of the base's answers have than this, or lack, is part of no hypothesis."""
MOST_TOKENS = 150
"""Tokens that are looked at, those nearest to being in half of the answers."""
KEPT = 2000
"""Hypotheses that predictions are made with, the likeliest."""
ROWS = 20_000
"""Rules that are looked at together: what bounds the memory."""

MANNER, TOKEN_SIGN, STATISTIC_SIGN, ASKED_SIGN, JUDGED_SIGN = range(5)
"""What a sign is of: how an answer is put, a token that occurs, a statistic above a cut, the question, what somebody judges."""
_ALL, _NOT_ALL, _DIFFER = range(3)
"""A rule is met where all its literals hold, where not all do, where exactly one of its first two does."""


@dataclass(frozen=True, slots=True)
class SignLayout:
    """What the columns of a table of signs are."""

    kinds: Ints  # [m]
    cut_of: Ints  # [m] which number a column is a cut of; -1: none

    @classmethod
    def manners_first(cls, manners: int, count: int) -> SignLayout:
        """Style features, then tokens."""
        kinds = np.where(np.arange(count) < manners, MANNER, TOKEN_SIGN)
        return cls(kinds, np.full(count, -1, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Space:
    """All hypotheses. A literal below ``len(columns)`` says that this column is set, one above that it is not; the last is always true."""

    columns: Ints  # [k] columns of the signs that vary
    literals: Ints  # [h, 3]
    prior: Floats  # [h] log P(h), not normalised
    rules: Ints  # [h] how the literals make a rule
    judged: Bools  # [h] whether a literal of it is somebody's verdict

    @classmethod
    def of(cls, signs: ArrayLike, layout: int | SignLayout) -> Space:
        """From the signs ``[S, m]`` of answers of the base. ``layout``: what they are; a number says that the first so many are style features and
        the others tokens."""
        seen = np.asarray(signs, dtype=bool)
        if not len(seen):
            seen = np.zeros((1, seen.shape[1]), dtype=bool)  # of no answers nothing varies, as of one
        if isinstance(layout, int):
            layout = SignLayout.manners_first(layout, seen.shape[1])
        share = seen.mean(axis=0)
        varying = (share > VARIES) & (share < 1 - VARIES)
        tokens = np.flatnonzero(varying & (layout.kinds == TOKEN_SIGN))
        tokens = tokens[np.argsort(np.abs(share[tokens] - 0.5), kind="stable")[:MOST_TOKENS]]
        columns = np.sort(np.concatenate([np.flatnonzero(varying & (layout.kinds != TOKEN_SIGN)), tokens]))
        k = len(columns)
        kinds, own = layout.kinds[columns], layout.cut_of[columns]
        literals, rules = _rules(kinds, own)
        there, holds = _literals(seen[:, columns]), np.zeros(len(literals))
        for start in range(0, len(literals), ROWS):
            part = slice(start, start + ROWS)
            holds[part] = rules_met(there, literals[part], rules[part]).mean(axis=0)
        kept = (holds > RARE) & (holds < 1 - RARE)
        literals, rules = literals[kept], rules[kept]
        cost = np.full(2 * k + 1, np.log(LITERAL))
        cost[: 2 * k] += np.log(np.array([1.0, TOKEN, STATISTIC, 1.0, 1.0]))[np.tile(kinds, 2)]
        of_judge = np.append(np.tile(kinds == JUDGED_SIGN, 2), False)
        cost[of_judge] = np.log(max(of_judge.sum(), 1))
        cost[2 * k] = 0.0
        prior = -cost[literals].sum(axis=1) - np.where(rules == _ALL, 0.0, np.log(OTHER))
        # An interval of one number is one thing to want, not two.
        inner = np.append(np.tile(own, 2), -1)[literals]
        between = (inner[:, 0] >= 0) & (inner[:, 0] == inner[:, 1])
        prior[between] += np.log(LITERAL)
        # One of the judged attributes is wanted as likely as one of all other rules: who proposed them has read something.
        judged = np.asarray(of_judge[literals].any(axis=1))
        if judged.any() and not judged.all():
            prior[judged] += np.logaddexp.reduce(prior[~judged])
        return cls(columns, literals, prior, rules, judged)

    def literals_of(self, signs: ArrayLike) -> Bools:
        """``[n, 2 k + 1]`` of answers with ``signs [n, m]``."""
        return _literals(np.asarray(signs, dtype=bool)[:, self.columns])

    def expecting(self, odds: Mapping[tuple[int, bool], float]) -> Space:
        """The same hypotheses, where it is known beforehand what may be wanted.

        Args:
            odds: (column of the signs, whether it should be set) → logarithm by which a hypothesis with that literal is likelier; with several such it is the largest.
        """
        k = len(self.columns)
        bonus = np.zeros(2 * k + 1)
        for place, column in enumerate(self.columns):
            bonus[place] = odds.get((int(column), True), 0.0)
            bonus[place + k] = odds.get((int(column), False), 0.0)
        likelier = np.where(self.rules == _ALL, bonus[self.literals].max(axis=1), 0.0)
        return replace(self, prior=self.prior + likelier)

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
        named = meant[self.literals].any(axis=1) & (self.rules == _ALL)
        return np.log(np.where(named, 1 - WRONG_REMARK, WRONG_REMARK))


@dataclass(frozen=True, slots=True)
class RulePosterior:
    """The likeliest hypotheses after all that was said, and how likely they are."""

    space: Space
    literals: Ints  # [kept, 3]
    weights: Floats  # [kept], sum 1
    rules: Ints  # [kept]
    wrong: float
    """Expected share ε of wrong taps."""

    @property
    def noise(self) -> float:
        """Variance of one rating about its person's taste."""
        return 4 * self.wrong * (1 - self.wrong)

    def met(self, signs: ArrayLike) -> Bools:
        """``[n, h]`` which of the hypotheses each answer meets."""
        return rules_met(self.space.literals_of(signs), self.literals, self.rules)

    def predict(self, signs: ArrayLike) -> tuple[Floats, Floats]:
        """Mean ``[n]`` and standard deviation ``[n]`` of what the person thinks of answers with ``signs [n, m]``, in [-1, 1]."""
        mean = 2 * (self.met(signs) @ self.weights) - 1
        return mean, np.sqrt(np.maximum(1 - mean**2, 0.0))

    def contrast(
        self, answers: ArrayLike, reference: ArrayLike, *, paired: bool = False
    ) -> tuple[Floats, Floats, Floats]:
        """By how much more of the answers with signs ``answers [n, m]`` are what is wanted than of ``reference [n', m]``, in units of a rating, rule by
        rule: weights (sum 1), means and variances of having drawn so many. ``paired``: row by row they answer the same prompts."""
        one, other = self.met(answers), self.met(reference)
        if paired:
            count = len(one)
            gained, lost = (one & ~other).sum(axis=0), (~one & other).sum(axis=0)
            mean = (gained - lost) / (count + 1)
            # Half a prompt that changed is added: of 96 that did not, one may still.
            return self.weights, 2 * mean, 4 * ((gained + lost + 0.5) / (count + 1) - mean**2) / count
        # Of n answers in which k were met, (k + ½) / (n + 1): none in 96 is no proof of never.
        a, b = ((m.sum(axis=0) + 0.5) / (len(m) + 1) for m in (one, other))
        return self.weights, 2 * (a - b), 4 * (a * (1 - a) / len(one) + b * (1 - b) / len(other))

    def joint(self, signs: ArrayLike) -> tuple[Floats, Floats]:
        """Mean ``[n]`` and covariance ``[n, n]`` of the same: what a rating of one answer would say about another."""
        worth = 2.0 * self.met(signs) - 1  # [n, h]
        mean = worth @ self.weights
        return mean, (worth * self.weights) @ worth.T - np.outer(mean, mean)


def fit(
    space: Space,
    signs: ArrayLike,
    ratings: ArrayLike,
    remarks: Floats | None = None,
    kinds: Ints | None = None,
) -> RulePosterior:
    """What ratings in [-1, 1] of answers with ``signs [n, m]``, and ``remarks [h]`` (log-likelihoods), say of each hypothesis.

    ``kinds [n]``: of ``rating_likelihood``; without them all are ratings.
    """
    holds = rules_met(space.literals_of(signs), space.literals, space.rules)
    log = space.prior if remarks is None else space.prior + remarks
    agreed: list[tuple[Likelihood, Numbers]] = []
    for rows, good in strata(np.asarray(ratings, dtype=np.float64), kinds):
        likelihood = Likelihood(len(rows))
        counts = likelihood.counts(holds[rows], good[:, None])
        log = log + likelihood(counts, space.judged)[:, 0]
        agreed.append((likelihood, counts.agreements[:, 0]))
    order = np.argsort(-log, kind="stable")[:KEPT]
    weights = np.exp(log[order] - log[order[:1]])
    weights /= weights.sum()
    wrong = MOST_WRONG / 2
    if len(order) and agreed:
        # Of the first kind there is: a rating, where somebody has rated.
        likelihood, agreements = agreed[0]
        wrong = float(weights @ likelihood.taps.means(agreements[order]))
    return RulePosterior(space, space.literals[order], weights, space.rules[order], wrong)


def _literals(signs: Bools) -> Bools:
    """[n, k] → [n, 2 k + 1]: set, not set, and always true."""
    return np.hstack([signs, ~signs, np.ones((len(signs), 1), dtype=bool)])


def rules_met(literals: Bools, hypotheses: Ints, rules: Ints) -> Bools:
    """``[n, 2 k + 1]``, ``[h, 3]``, ``[h]`` → ``[n, h]`` which rules each answer meets."""
    parts = []
    for start in range(0, max(len(hypotheses), 1), ROWS):
        a, b, c = hypotheses[start : start + ROWS].T
        kind = rules[start : start + ROWS]
        made = literals[:, a] & literals[:, b] & literals[:, c]
        if kind.any():
            differ = kind == _DIFFER
            made ^= kind == _NOT_ALL
            made[:, differ] = literals[:, a[differ]] ^ literals[:, b[differ]]
        parts.append(made)
    return np.hstack(parts)


def _rules(kinds: Ints, numbers: Ints) -> tuple[Ints, Ints]:
    """Literals ``[h, 3]`` of all rules over columns of these kinds, and how they make rules ``[h]``."""
    k = len(kinds)
    true = 2 * k
    of = np.tile(kinds, 2)
    cheap = np.flatnonzero(of == MANNER)
    judged = np.flatnonzero(of == JUDGED_SIGN)
    dear = np.flatnonzero((of == TOKEN_SIGN) | (of == STATISTIC_SIGN) | (of == JUDGED_SIGN))
    asked = np.flatnonzero(kinds == ASKED_SIGN)
    two = _combinations(cheap, 2)
    between = [
        (a, k + b)
        for a, b in itertools.permutations(np.flatnonzero(numbers >= 0), 2)
        if numbers[a] == numbers[b]
    ]
    manners = cheap[cheap < k]
    wide = len(asked) > 0 or len(between) > 0
    blocks = [
        (_ALL, np.flatnonzero(of != ASKED_SIGN)[:, None]),
        (_ALL, two),
        (_ALL, _product(cheap, dear)),
        (_ALL, _combinations(judged, 2)),
        (_ALL, _combinations(cheap, 3)),
        (_ALL, np.array(between, dtype=np.int64).reshape(-1, 2)),
        (_NOT_ALL, two if wide else two[:0]),
        (_DIFFER, _product(manners, np.concatenate([asked, asked + k]))),
    ]
    padded = [np.pad(rows, ((0, 0), (0, 3 - rows.shape[1])), constant_values=true) for _, rows in blocks]
    return np.vstack(padded), np.concatenate([np.full(len(rows), kind) for kind, rows in blocks])


def _combinations(of: Ints, count: int) -> Ints:
    return np.array(list(itertools.combinations(of, count)), dtype=np.int64).reshape(-1, count)


def _product(first: Ints, other: Ints) -> Ints:
    """[a · b, 2]"""
    return np.stack([np.repeat(first, len(other)), np.tile(other, len(first))], axis=1)
