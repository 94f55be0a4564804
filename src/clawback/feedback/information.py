"""Active learning: chooses the turn, or the pair, whose rating is the most informative.

The belief about the candidates' expected ratings is a Gaussian with mean ``m [n]`` and covariance
``K [n, n]`` (``rewards.acquisition``). A rating is that plus noise of variance ``σ²``. Two measures of what a rating tells:

    variance      Σ_j K_ji² / (K_ii + σ²)          by how much a rating of i shrinks the variance of all (Cohn et al. 1996)
    information   H[Φ(m/√(σ² + v))] − E_f H[Φ(f/σ)]   in bits, with f ~ N(m, v): what a rating good/bad tells of i
                                                  (BALD: Houlsby et al. 2011, eq. 2; the expectation by Gauss–Hermite quadrature)

Turns are chosen by ``variance``, since a rating is asked for to learn about the others; pairs by ``information``, since the answer is a
rating of the difference. In a batch each choice is made as if the ones before had been answered (K conditioned on them), so that near
copies are not asked about twice. Where nothing is known yet: the newest unrated turns, one a conversation first, short ones last (``newest``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from clawback.records import Turn

    Floats = NDArray[np.float64]

Measure = Literal["variance", "information"]
SHORT = 8
"""Words under which an answer is asked about last: "Done." teaches little."""
QUADRATURE = 32
"""Nodes: exact for polynomials up to degree 63."""


@dataclass(frozen=True, slots=True)
class Belief:
    """The belief about expected ratings: ``mean [n]`` and ``covariance [n, n]`` of the candidates, ``noise``: variance of one rating."""

    mean: Floats
    covariance: Floats
    noise: float


def newest(turns: Sequence[Turn]) -> list[Turn]:
    """Where nothing is known yet: one of each conversation, then a second of each, …; the newest first within a round, and what is short
    after all that is not. ``turns``: newest first."""
    seen: dict[str, int] = {}
    order = []
    for turn in turns:
        short = len(turn.response.split()) < SHORT
        round_ = 0 if short else seen.get(turn.session, 0)
        if not short:
            seen[turn.session] = round_ + 1
        order.append((short, round_, -turn.id, turn))
    return [turn for *_, turn in sorted(order, key=lambda one: one[:3])]


def best_turns(belief: Belief, count: int, measure: Measure = "variance") -> list[tuple[int, float]]:
    """(place, gain) of the turns to ask about, chosen greedily; each as if those before had been answered."""
    import numpy as np

    mean, k = belief.mean, np.array(belief.covariance, dtype=np.float64)
    open_ = np.ones(len(mean), dtype=bool)
    chosen: list[tuple[int, float]] = []
    while len(chosen) < count and open_.any():
        own = np.maximum(np.diag(k), 0.0)
        if measure == "variance":
            gains = np.sum(k * k, axis=0) / (own + belief.noise)
        else:
            gains = information(mean, own, belief.noise)
        place = int(np.argmax(np.where(open_, gains, -np.inf)))
        chosen.append((place, float(gains[place])))
        open_[place] = False
        k = condition(k, _unit(place, len(mean)), belief.noise)
    return chosen


def best_pairs(belief: Belief, pairs: Sequence[tuple[int, int]], count: int) -> list[tuple[int, float]]:
    """(index into ``pairs``, bits) of the comparisons to ask for, greedily. A comparison is a rating of the difference of two
    ratings, with twice the noise of one."""
    import numpy as np

    mean, k = belief.mean, np.array(belief.covariance, dtype=np.float64)
    first, second = (np.array([p[i] for p in pairs], dtype=np.intp) for i in (0, 1))
    open_ = np.ones(len(pairs), dtype=bool)
    chosen: list[tuple[int, float]] = []
    while len(chosen) < count and open_.any():
        apart = np.maximum(k[first, first] + k[second, second] - 2 * k[first, second], 0.0)
        gains = information(mean[first] - mean[second], apart, 2 * belief.noise)
        best = int(np.argmax(np.where(open_, gains, -np.inf)))
        chosen.append((best, float(gains[best])))
        open_[best] = False
        along = _unit(int(first[best]), len(mean)) - _unit(int(second[best]), len(mean))
        k = condition(k, along, 2 * belief.noise)
    return chosen


def condition(covariance: Floats, along: Floats, noise: float) -> Floats:
    """``K − K a aᵀ K / (aᵀ K a + noise)``: the covariance after ``aᵀ f`` was observed with that noise (Bishop 2006, eq. 2.82)."""
    import numpy as np

    seen = covariance @ along
    return np.asarray(covariance - np.outer(seen, seen) / (along @ seen + noise), dtype=np.float64)


def information(mean: ArrayLike, variance: ArrayLike, noise: float) -> Floats:
    """Bits that a rating (good with probability Φ(f/√noise)) tells about ``f ~ N(mean, variance)``. [n], [n] → [n]"""
    import numpy as np

    m, v = np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE)  # for the standard normal, up to √(2π)
    f = m[..., None] + np.sqrt(v)[..., None] * nodes
    within = _entropy(_normal(f / np.sqrt(noise))) @ (weights / weights.sum())
    return np.asarray(np.maximum(_entropy(_normal(m / np.sqrt(noise + v))) - within, 0.0), dtype=np.float64)


def _entropy(p: Floats) -> Floats:
    import numpy as np

    p = np.clip(p, 1e-12, 1 - 1e-12)
    return np.asarray(-(p * np.log2(p) + (1 - p) * np.log2(1 - p)), dtype=np.float64)


def _normal(x: Floats) -> Floats:
    """Φ, element by element."""
    import math

    import numpy as np

    return np.asarray(np.vectorize(lambda z: 0.5 * math.erfc(-z / math.sqrt(2)), otypes=[float])(x))


def _unit(index: int, size: int) -> Floats:
    import numpy as np

    made = np.zeros(size)
    made[index] = 1.0
    return made
