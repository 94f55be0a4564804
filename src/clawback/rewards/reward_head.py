"""The reward head: Bayesian ridge regression from features of an answer to its rating.

Features go in, ratings go in, and out comes a Gaussian for the rating of any other answer. All of it is closed form, from
one singular value decomposition, so fitting some hundred ratings takes milliseconds and always gives the same bits.

With standardised features ``X [n, d]``, centred ratings ``y [n]`` and ``X = U S Vᵀ``:

    weights        w = (XᵀX + λI)⁻¹ Xᵀy                                  ridge regression; λ = α/β of the Bayesian model
    hat matrix     H = U diag(s² / (s² + λ)) Uᵀ + 1/n                    the intercept is not penalised
    leave one out  y_i − ŷ₋ᵢ = (y_i − ŷ_i) / (1 − H_ii)                  PRESS (Allen 1974): no refitting
    variance       β⁻¹ xᵀ(XᵀX + λI)⁻¹x + β⁻¹/n                           of the prediction's mean (Bishop 2006, eq. 3.59)
    evidence       α = γ/‖w‖²,  β = (n − γ)/‖y − Xw‖²                    fixed point, γ = Σ s²/(s² + λ) (MacKay 1992)

There are more features than ratings, so directions that no rated answer varied in keep their prior variance ``1/α``:
the head is uncertain there, which pessimism against over-optimisation depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

RIDGE = 40.0
"""λ when it is not asked to be found: what pilots liked best for some dozens of ratings on standardised features."""

PERMUTATIONS = 2000
TRUSTED_BELOW = 0.08
"""Permutation p-value up to which what was read from ratings is trusted. Of people who toss a coin as many pass as this says; of tastes that can be
read from 32 ratings nearly all do (research/studies/2026-11-22-reading-real-answers.md)."""
DEALT = 399
"""Permutations where each costs a table of rules."""

_SMALLEST_SPREAD = 1e-8
_EVIDENCE_STEPS = 300


@dataclass(frozen=True, slots=True)
class Trust:
    """Whether the head predicts ratings that it has not seen, and how that was decided.

    ``correlation`` and ``r2`` (0 where something else was tested) are between ratings and their leave-one-out predictions; ``p`` is the share of
    random re-assignments of the same ratings to the answers that reach what these do.
    """

    trusted: bool
    correlation: float
    r2: float
    p: float
    reason: str


@dataclass(frozen=True, slots=True)
class RewardHead:
    """A fitted head. ``basis [k, d]`` and ``shrink [k]`` hold the posterior covariance in the directions seen."""

    centre: Floats  # [d] mean of each feature
    spread: Floats  # [d] standard deviation of each feature
    weights: Floats  # [d] on standardised features
    bias: float
    ridge: float  # λ
    noise: float  # β⁻¹, variance of one rating
    basis: Floats  # [k, d] right singular vectors
    shrink: Floats  # [k] s² / (s² + λ)
    ratings: Floats  # [n] what it was fitted on
    left_out: Floats  # [n] leave-one-out prediction of each
    trust: Trust

    def predict(self, features: ArrayLike) -> tuple[Floats, Floats]:
        """Mean ``[m]`` and variance ``[m]`` of the expected rating of answers with ``features [m, d]``.

        The variance is that of the mean: how uncertain the head is, without the noise of a single rating.
        """
        x = self._standardise(features)
        along = x @ self.basis.T  # [m, k]
        # (XᵀX + λI)⁻¹ = (I − V diag(s²/(s²+λ)) Vᵀ) / λ
        spread = (np.sum(x * x, axis=1) - np.sum(along * along * self.shrink, axis=1)) / self.ridge
        return x @ self.weights + self.bias, self.noise * (np.maximum(spread, 0.0) + 1.0 / len(self.ratings))

    def joint(self, features: ArrayLike) -> tuple[Floats, Floats]:
        """Mean ``[m]`` and covariance ``[m, m]`` of the expected ratings: ``predict``, and how they hang together."""
        x = self._standardise(features)
        along = x @ self.basis.T  # [m, k]
        spread = (x @ x.T - (along * self.shrink) @ along.T) / self.ridge
        return x @ self.weights + self.bias, self.noise * (spread + 1.0 / len(self.ratings))

    def reward(self, features: ArrayLike, pessimism: float = 0.0) -> Floats:
        """``[m]``: the prediction, less ``pessimism`` standard deviations of it."""
        mean, variance = self.predict(features)
        return np.asarray(mean - pessimism * np.sqrt(variance), dtype=np.float64)

    def _standardise(self, features: ArrayLike) -> Floats:
        x = np.atleast_2d(np.asarray(features, dtype=np.float64))
        return np.asarray((x - self.centre) / self.spread, dtype=np.float64)


def fit(
    features: ArrayLike,
    ratings: ArrayLike,
    *,
    ridge: float | None = RIDGE,
    spread: ArrayLike | None = None,
    seed: int = 0,
) -> RewardHead:
    """Fit ``features [n, d]`` to ``ratings [n]`` in [-1, 1].

    ``ridge=None`` finds λ (and the noise) by maximising the evidence. ``spread`` is what each feature is divided by, where
    that is known better than from a few rated answers (1: they are standardised already); None takes their own
    standard deviation. ``seed`` is for the permutations of the trust statistic alone.
    """
    x, y = np.asarray(features, dtype=np.float64), np.asarray(ratings, dtype=np.float64)
    if x.ndim != 2 or y.shape != (len(x),) or not len(x):
        raise ValueError(f"features [n, d] and ratings [n] are needed, not {x.shape} and {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("features and ratings must be finite numbers")
    centre = x.mean(axis=0)
    own = (
        x.std(axis=0)
        if spread is None
        else np.broadcast_to(np.asarray(spread, dtype=np.float64), x.shape[1:])
    )
    scale = np.maximum(own, _SMALLEST_SPREAD)
    bias = float(y.mean())
    u, s, basis = np.linalg.svd((x - centre) / scale, full_matrices=False)
    seen = s > s[:1].sum() * 1e-10  # directions without any spread are not directions
    u, s, basis = u[:, seen], s[seen], basis[seen]
    along = u.T @ (y - bias)  # [k] the ratings in those directions

    if ridge is None:
        ridge, noise = _evidence(s, along, y - bias)
    else:
        noise = _noise(s, along, y - bias, ridge)
    shrink = s**2 / (s**2 + ridge)
    hat = (u * shrink) @ u.T + 1.0 / len(y)  # [n, n]
    left_out = _leave_one_out(hat, y)
    return RewardHead(
        centre=centre,
        spread=scale,
        weights=basis.T @ (s / (s**2 + ridge) * along),
        bias=bias,
        ridge=float(ridge),
        noise=float(noise),
        basis=basis,
        shrink=shrink,
        ratings=y,
        left_out=left_out,
        trust=_trust(hat, y, left_out, seed),
    )


def _noise(s: Floats, along: Floats, y: Floats, ridge: float) -> float:
    """β⁻¹ for a given λ: the residual over the degrees of freedom that are left."""
    shrink = s**2 / (s**2 + ridge)
    residual = float(y @ y - along @ along + np.sum((along * (1 - shrink)) ** 2))
    return max(residual / max(len(y) - float(shrink.sum()), 1.0), 1e-12)


def _evidence(s: Floats, along: Floats, y: Floats) -> tuple[float, float]:
    """λ = α/β and β⁻¹ at a maximum of the evidence, by MacKay's fixed point. [k], [k], [n]"""
    beta, alpha = 1.0 / max(float(y.var()), 1e-12), 1.0
    for _ in range(_EVIDENCE_STEPS):
        ridge = alpha / beta
        w = s / (s**2 + ridge) * along
        residual = float(y @ y - along @ along + np.sum((along - s * w) ** 2))
        gamma = float(np.sum(s**2 / (s**2 + ridge)))
        # The ratings may hold no signal (α → ∞) or no noise (β → ∞): both stay finite numbers.
        alpha = min(gamma / max(float(w @ w), 1e-12), 1e9)
        beta = min(max(len(y) - gamma, 1e-12) / max(residual, 1e-12), 1e9)
        if abs(alpha / beta - ridge) <= 1e-9 * ridge:
            break
    return alpha / beta, 1.0 / beta


def _leave_one_out(hat: Floats, ratings: Floats) -> Floats:
    """``[..., n]``: what each rating is predicted to be by a head that has not seen it. ``ratings [..., n]``.

    The scale of the features is kept as fitted on all (it does not look at the ratings); weights and intercept are not.
    """
    diagonal = np.minimum(np.diag(hat), 1 - 1e-9)
    return np.asarray((ratings @ hat - diagonal * ratings) / (1 - diagonal), dtype=np.float64)


def _trust(hat: Floats, ratings: Floats, left_out: Floats, seed: int) -> Trust:
    """A permutation test of the leave-one-out correlation: exact, and two matrix products long.

    Predictions that were left out lean *against* their own rating by construction, so zero is no fair opponent for
    the correlation; random permutations of the ratings over the same answers are.
    """
    if len(ratings) < 4 or np.ptp(ratings) == 0:
        why = "fewer than 4 ratings" if len(ratings) < 4 else "all ratings are the same"
        return Trust(False, 0.0, 0.0, 1.0, why)
    rng = np.random.default_rng(seed)
    dealt = rng.permuted(np.tile(ratings, (PERMUTATIONS, 1)), axis=1)  # [permutations, n]
    observed = float(correlation(left_out, ratings))
    reached = int(np.sum(correlation(_leave_one_out(hat, dealt), dealt) >= observed))
    p = (1 + reached) / (1 + PERMUTATIONS)
    r2 = 1 - float(np.sum((ratings - left_out) ** 2) / np.sum((ratings - ratings.mean()) ** 2))
    trusted = p <= TRUSTED_BELOW
    verb = "predicts" if trusted else "does not predict"
    reason = (
        f"the head {verb} ratings it has not seen: leave-one-out correlation {observed:.2f}, p = {p:.3f} "
        f"({'at most' if trusted else 'more than'} {TRUSTED_BELOW:g})"
    )
    return Trust(trusted, observed, r2, p, reason)


def permutation_test(
    ratings: ArrayLike,
    explained: Callable[[Floats], Floats],
    seed: int = 0,
    trusted_below: float = TRUSTED_BELOW,
    kinds: ArrayLike | None = None,
) -> Trust:
    """A permutation test of how well ``ratings [n]`` are explained, by whatever says so of many at once: ``[n, b]`` → ``[b]``.

    Of several ``kinds [n]`` each is permuted among itself. Exact for any statistic: where ratings have nothing to do with answers, at most ``trusted_below`` of them are trusted.
    """
    y = np.asarray(ratings, dtype=np.float64)
    if len(y) < 4 or np.ptp(y) == 0:
        why = "fewer than 4 ratings" if len(y) < 4 else "all ratings are the same"
        return Trust(False, 0.0, 0.0, 1.0, why)
    rng = np.random.default_rng(seed)
    dealt = np.tile(y, (1 + DEALT, 1))  # [1 + permutations, n]
    of = np.zeros(len(y)) if kinds is None else np.asarray(kinds)
    for kind in np.unique(of):
        dealt[1:, of == kind] = rng.permuted(dealt[1:, of == kind], axis=1)
    dealt = dealt.T
    values = explained(dealt)
    p = float(np.mean(values >= values[0] - 1e-9))
    if p <= trusted_below:
        reason = f"{len(y)} ratings show a pattern (permutation test: p = {p:.3f}, at most {trusted_below:g})"
        return Trust(True, 0.0, 0.0, p, reason)
    reason = (
        f"these {len(y)} ratings show no pattern: in random order they are explained as well in {p:.0%} of cases "
        f"(at most {trusted_below:.0%} are allowed)"
    )
    return Trust(False, 0.0, 0.0, p, reason)


def combined(statistics: Sequence[Floats]) -> Floats:
    """One statistic ``[b]`` of several ``[b]`` of the same permutations: −Σ log p, with p the share of all that are as large.

    Fisher's combination over permutations (nonparametric combination: Pesarin & Salmaso 2010). What it says is tested by the same permutations, so
    that the test is exact, however much the statistics depend on each other.
    """
    made = np.zeros(len(statistics[0]))
    for values in statistics:
        below = np.searchsorted(np.sort(values), values - 1e-9)
        made -= np.log((len(values) - below) / len(values))
    return made


def correlation(a: Floats, b: Floats) -> Floats:
    """Pearson's r along the last axis; 0 where either does not vary."""
    a, b = a - a.mean(axis=-1, keepdims=True), b - b.mean(axis=-1, keepdims=True)
    size = np.sqrt(np.sum(a * a, axis=-1) * np.sum(b * b, axis=-1))
    return np.asarray(np.sum(a * b, axis=-1) / np.where(size > 1e-12, size, np.inf), dtype=np.float64)
