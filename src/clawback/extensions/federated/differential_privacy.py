"""Differential privacy of a federated round: updates are clipped, noise is added to their mean, and ε is computed.

The unit is a *person*: with or without everything that one of n people ever said, the output is nearly as
likely. Each update is scaled down to norm C at most, all have the same weight, and normal noise of standard
deviation z·C per coordinate is added to their sum. Over T rounds in which everybody takes part that is T
Gaussian mechanisms with multiplier z (add or remove one person): together exactly one with μ = √T / z, so
that δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) (Balle & Wang 2018, arXiv:1805.06530, th. 8; Dong et al. 2022).
No sampling, so no accountant is needed. Whoever adds the noise sees the updates: the participant who combines
them has to be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from clawback.errors import UsageError
from clawback.extensions.federated.aggregate import Array, Arrays, Update, vector


def clipped(update: Update, norm: float) -> Update:
    """B scaled down so that all of it together has this norm at most."""
    if norm <= 0:
        raise UsageError("A clip is a norm above 0.")
    size = float(np.linalg.norm(vector(update.b)))
    factor = min(1.0, norm / size) if size else 1.0
    return Update(update.a, {name: factor * value for name, value in update.b.items()}, update.scale)


def noised(mean: Update, count: int, clip: float, noise: float, rng: np.random.Generator) -> Update:
    """The mean of ``count`` updates clipped to ``clip``, with noise z: N(0, (z·C/n)²) on every coordinate of B."""
    if count < 1 or noise < 0:
        raise UsageError("Noise is a number of at least 0, for one update at least.")
    deviation = noise * clip / count
    b: dict[str, Array] = {n: v + deviation * rng.standard_normal(v.shape) for n, v in sorted(mean.b.items())}
    return Update(mean.a, b, mean.scale)


def epsilon(noise: float, rounds: int, delta: float) -> float:
    """ε of (ε, δ)-differential privacy for a person who takes part in every round. Infinite without noise."""
    if not 0 < delta < 1:
        raise UsageError("δ is between 0 and 1, and below one by the number of people to mean anything.")
    if rounds <= 0:
        return 0.0
    if noise <= 0:
        return float("inf")
    mu = math.sqrt(rounds) / noise
    low, high = 0.0, mu * mu / 2 + 40 * mu
    while high - low > 1e-9 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(middle, mu) > delta else (low, middle)
    return high


def _delta(eps: float, mu: float) -> float:
    """Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)."""
    tail = _log_phi(-mu / 2 - eps / mu)
    return math.exp(_log_phi(mu / 2 - eps / mu)) - math.exp(min(0.0, eps + tail))


def _log_phi(x: float) -> float:
    """Log of the normal distribution function; far out by its asymptotic series, where erfc is 0."""
    if x > -30:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log1p(-1 / (x * x))


def table(
    people: Sequence[int], noises: Sequence[float], rounds: int
) -> list[tuple[int, float, float, float]]:
    """(people, z, ε at δ = 1/(10·people), standard deviation of the noise in clips): what it costs to be honest with few."""
    return [(n, z, epsilon(z, rounds, 1 / (10 * n)), z / n) for n in people for z in noises]


def size(arrays: Arrays) -> float:
    """Norm of an update: what a clip is chosen by."""
    return float(np.linalg.norm(vector(arrays)))
