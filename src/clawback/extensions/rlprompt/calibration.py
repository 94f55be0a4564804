"""Calibration of predicted ratings into probabilities: about seven in ten answers with 0.7 are liked.

The models are regressions on ratings of −1 and 1. Their means m go through a logistic function of a squashed mean (Platt 1999, moderated as in MacKay 1992):

    p = σ((a x + b) / √(1 + π v / 8))      x = 2 tanh(1.5 m),  v the posterior variance of a x + b,  a ~ N(1, 1),  b ~ N(0, 1)

Squashed, because ratings are noisy: where one rating in ten is a mistake, no answer is liked for certain, however large a linear model's
prediction. With few ratings a and b are not known well, and every p is nearer to a half. The constants were chosen on simulated people that
are not among those that ``research/benchmarks/2026-11-23-prompts.md`` reports.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

SQUASH = 1.5
_STEPS = 50


@dataclass(frozen=True, slots=True)
class Calibration:
    """``slope`` a, ``offset`` b, and their posterior covariance ``[2, 2]``."""

    slope: float
    offset: float
    covariance: Floats

    def __call__(self, means: ArrayLike) -> Floats:
        """``[n]`` probabilities that an answer is liked, from what the model expects of each."""
        x = _squashed(means)
        along = np.stack([x, np.ones_like(x)])  # [2, n]
        variance = np.einsum("in,ij,jn->n", along, self.covariance, along)
        return _sigmoid((self.slope * x + self.offset) / np.sqrt(1 + np.pi * variance / 8))


AS_IT_STANDS = Calibration(1.0, 0.0, np.zeros((2, 2)))


def calibrated(means: ArrayLike, ratings: ArrayLike) -> Calibration:
    """``means``: what was expected of each answer without its own rating; ``ratings``: in [-1, 1]."""
    x, target = _squashed(means), (np.asarray(ratings, dtype=np.float64) + 1) / 2
    rows, prior = np.stack([x, np.ones_like(x)]), np.array([1.0, 0.0])
    w, covariance = _fit(rows, target, prior)
    if w[0] > 0:
        return Calibration(float(w[0]), float(w[1]), covariance)
    # A model that is worse than nothing is not turned round: then it is how often anything is liked.
    w, alone = _fit(rows[1:], target, prior[1:])
    return Calibration(0.0, float(w[0]), np.diag([0.0, alone[0, 0]]))


def _fit(rows: Floats, target: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """The most probable weights ``[k]`` of ``rows [k, n]`` and their covariance ``[k, k]``, by Newton's method."""
    w = prior.copy()
    for _ in range(_STEPS):
        p = _sigmoid(w @ rows)
        curve = (rows * (p * (1 - p))) @ rows.T + np.eye(len(w))
        step = np.linalg.solve(curve, rows @ (target - p) - (w - prior))
        w = w + step
        if abs(step).max() < 1e-8:
            break
    return w, np.asarray(np.linalg.inv(curve))


def _squashed(means: ArrayLike) -> Floats:
    return np.asarray(2 * np.tanh(SQUASH * np.asarray(means, dtype=np.float64)))


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)))
