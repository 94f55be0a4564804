"""Active learning: which answer, or which pair of answers, to ask about next.

**Answers.** A posterior over what the person may want is computed from their ratings so far (``rewards.rule_posterior``),
and the next question is the answer whose rating is most informative about all others
(``feedback.information``). From four times as many captured answers, 16 ratings chosen like this are worth 24
that were not, and 24 are worth 48 (research/studies/2026-11-21-more-from-the-same-taps.md).

Only the text of the answers is used, with words in place of a model's tokens: it needs no model, and takes
milliseconds.

**Pairs**: Gaussian process preference learning. Every answer has a value f, and of two answers a person prefers the first with probability σ(f(a) − f(b)) (Bradley & Terry 1952). f is a
Gaussian process over the reader's views of an answer (``rewards.views``; for preferences: Chu & Ghahramani 2005; for choosing what to ask,
with the same kernels: Houlsby et al. 2011, "Bayesian active learning for classification and preference learning"). A rating says on which
side of the mean answer an answer is: σ(±f), f centred over the answers. An observation of weight w counts as its likelihood to the power w.

The posterior is Laplace's (Rasmussen & Williams 2006, algorithms 3.1 and 3.2). Which view a taste is about, and how strongly it shows, is not
known: every kernel at every scale is a model, and each counts by its marginal likelihood. The mixture's mean and covariance are those of the
belief; ``feedback.information.best_pairs`` chooses from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clawback.features.style_features import Features
from clawback.feedback import information
from clawback.feedback.information import Belief
from clawback.rewards import rule_posterior
from clawback.rewards.views import Answers, Views

READ = 2000
"""Characters of an answer that are looked at."""
_WORD = re.compile(r"\w+|[^\w\s]")


def word_ids(texts: Sequence[str]) -> list[list[int]]:
    """Words and marks, numbered in the order in which they occur: in place of a model's tokens."""
    numbers: dict[str, int] = {}
    return [
        [numbers.setdefault(word, len(numbers)) for word in _WORD.findall(text.lower())] for text in texts
    ]


class Acquisition:
    """Answers, rated and not."""

    def __init__(self, texts: Sequence[str]) -> None:
        texts = [text[:READ] for text in texts]
        words = word_ids(texts)
        # The answers themselves show how answers vary. Of none, or one, nothing does.
        self.signs, manners = np.zeros((len(texts), 0), dtype=bool), 0
        if len(texts) > 1:
            features = Features.ground(words, np.zeros((len(texts), 1)), texts)
            self.signs, manners = features.signs(words, texts), features.manners
        self.space = rule_posterior.Space.of(self.signs, manners)

    def next(
        self, ratings: Mapping[int, float], left: Sequence[int], count: int = 1
    ) -> list[tuple[int, float]]:
        """Up to ``count`` of the places ``left``, best first, and what a rating of each is expected to tell (0: nothing varies).

        ``ratings``: place → rating in [-1, 1] of the answers that were rated.
        """
        if not len(self.space.literals):
            return [(place, 0.0) for place in left[:count]]
        return [(left[i], gain) for i, gain in information.best_turns(self._belief(ratings, left), count)]

    def _belief(self, ratings: Mapping[int, float], places: Sequence[int]) -> information.Belief:
        """What is expected of the answers at these places."""
        rated = list(ratings)
        taste = rule_posterior.fit(self.space, self.signs[rated], [ratings[place] for place in rated])
        return information.Belief(*taste.joint(self.signs[list(places)]), taste.noise)


Floats = NDArray[np.float64]

SCALES = (1.0, 4.0, 16.0)
"""Variances of f, in units of the logistic likelihood."""
LOGISTIC = 8 / np.pi
"""Variance of the normal noise whose Φ is nearest to σ (MacKay 1992): two answers have half of it each."""
STEPS, CLOSE = 30, 1e-8
COUNTED = 1e-3
"""Share of the likeliest model below which a model is left out."""
LEFT_OUT = ("prompt", "product")
"""Kernels that are about the question: two answers to one prompt have it in common."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """``first`` is better than ``second`` (both are places of answers; None: than the mean answer) where ``better``, else worse."""

    first: int
    second: int | None
    better: bool
    weight: float = 1.0


class Comparable:
    """Answers that are compared: their kernels, which do not depend on what was said of them."""

    def __init__(self, prompts: Sequence[str], texts: Sequence[str]) -> None:
        self.count = len(texts)
        self.kernels: list[Floats] = []
        if self.count < 2:
            return
        texts = [text[:READ] for text in texts]
        answers = Answers(word_ids(texts), texts, np.zeros((self.count, 0)), list(prompts))
        views = Views.ground(answers)
        seen = views(answers)
        kernels = [
            _centred(kernel(seen, seen))
            for kernel in views.kernels
            if not (kernel.kind in LEFT_OUT or kernel.views[0] in LEFT_OUT)
        ]
        self.kernels = [_correlations(kernel) for kernel in kernels if np.trace(kernel) > self.count * 1e-9]
        if len(self.kernels) > 1:
            self.kernels.append(np.mean(self.kernels, axis=0))

    def belief(self, observations: Sequence[Comparison]) -> Belief | None:
        """What is believed of all answers; None where nothing tells them apart."""
        if not self.kernels:
            return None
        rows = np.zeros((len(observations), self.count))
        for row, one in zip(rows, observations, strict=True):
            row[one.first] = 1.0 if one.better else -1.0
            if one.second is not None:
                row[one.second] -= row[one.first]
        weights = np.array([one.weight for one in observations])
        fits = [Fit.of(scale * kernel, rows, weights) for kernel in self.kernels for scale in SCALES]
        logs = np.array([fit.evidence for fit in fits])
        shares = np.exp(logs - logs.max())
        shares = np.where(shares > COUNTED, shares, 0.0) / shares[shares > COUNTED].sum()
        mean, second = np.zeros(self.count), np.zeros((self.count, self.count))
        for fit, share in zip(fits, shares, strict=True):
            if share:
                mean += share * fit.mean
                second += share * (fit.covariance() + np.outer(fit.mean, fit.mean))
        return Belief(mean, second - np.outer(mean, mean), LOGISTIC / 2)


@dataclass(frozen=True, slots=True)
class Fit:
    """Laplace's posterior of one model."""

    kernel: Floats  # [n, n]
    rows: Floats  # [m, n] each observation as a sum of values that is positive where it is as likely as not
    curvature: Floats  # [m] −d²/df² of the log likelihood
    mean: Floats  # [n]
    evidence: float
    """Log marginal likelihood."""

    @classmethod
    def of(cls, kernel: Floats, rows: Floats, weights: Floats) -> Fit:
        """From a kernel over answers ``[n, n]``, observations ``[m, n]`` and their weights ``[m]``."""
        count = len(rows)
        cross = kernel @ rows.T  # [n, m]
        among = rows @ cross
        values, slope, root, weighted = np.zeros(count), 0.5 * weights, np.sqrt(weights / 4), np.zeros(count)
        factor: np.ndarray[Any, Any] = np.eye(count)
        for _ in range(STEPS):
            right = 1 / (1 + np.exp(-values))
            slope, root = weights * (1 - right), np.sqrt(weights * right * (1 - right))
            factor = np.asarray(np.linalg.cholesky(np.eye(count) + root[:, None] * among * root), np.float64)
            target = root**2 * values + slope
            weighted = target - root * _solved(factor, root * (among @ target))
            previous, values = values, among @ weighted
            if np.abs(values - previous).max(initial=0.0) < CLOSE:
                break
        likelihood = -weights @ np.logaddexp(0.0, -values)
        evidence = float(likelihood - 0.5 * weighted @ values - np.log(np.diag(factor)).sum())
        return cls(kernel, rows, root**2, cross @ weighted, evidence)

    def covariance(self) -> Floats:
        """``[n, n]`` of the values of all answers."""
        cross, root = self.kernel @ self.rows.T, np.sqrt(self.curvature)
        factor = np.linalg.cholesky(np.eye(len(root)) + root[:, None] * (self.rows @ cross) * root)
        half = np.linalg.solve(factor, root[:, None] * cross.T)
        return np.asarray(self.kernel - half.T @ half, dtype=np.float64)


def _solved(factor: Floats, target: Floats) -> Floats:
    """``(L Lᵀ)⁻¹ t``."""
    return np.asarray(np.linalg.solve(factor.T, np.linalg.solve(factor, target)), dtype=np.float64)


def _centred(kernel: Floats) -> Floats:
    """The kernel of f less its mean over the answers."""
    return np.asarray(kernel - kernel.mean(0) - kernel.mean(1)[:, None] + kernel.mean(), dtype=np.float64)


def _correlations(kernel: Floats) -> Floats:
    """The kernel with every answer's variance 1: an answer unlike all others is not asked about for that alone. An answer that is the mean keeps none."""
    spread = np.sqrt(np.maximum(np.diag(kernel), 1e-12))
    return np.asarray(kernel / spread[:, None] / spread, dtype=np.float64)
