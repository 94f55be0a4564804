"""Quality measures for reward models: Spearman's ρ with its interval, error, calibration. NumPy alone.

Rows that share a prompt are not independent, so every resampling is by prompt (cluster bootstrap).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clawback.rewards.rating_likelihood import Floats, ranks

Measure = Callable[[Floats, Floats], float]

DRAWS = 1000


def shares(values: ArrayLike) -> Floats:
    """``[n]`` → (rank − ½) / n in (0, 1): what a skewed score becomes when only its order is to be learned."""
    x = np.asarray(values, dtype=np.float64)
    return (ranks(x) - 0.5) / max(len(x), 1)


def spearman(predicted: ArrayLike, true: ArrayLike) -> float:
    """Spearman's ρ: Pearson's correlation of the ranks. 0 where one side is all the same."""
    a, b = ranks(predicted), ranks(true)
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size else 0.0


def mse(predicted: ArrayLike, true: ArrayLike) -> float:
    return float(np.mean((np.asarray(predicted, dtype=np.float64) - np.asarray(true, dtype=np.float64)) ** 2))


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def draws(groups: Sequence[Hashable], count: int = DRAWS, seed: int = 0) -> list[NDArray[np.int64]]:
    """``count`` times the rows of as many groups as there are, drawn with replacement."""
    names: dict[Hashable, list[int]] = {}
    for row, name in enumerate(groups):
        names.setdefault(name, []).append(row)
    members = [np.array(rows, dtype=np.int64) for rows in names.values()]
    rng = np.random.default_rng(seed)
    return [
        np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))])
        for _ in range(count)
    ]


def interval(
    predicted: ArrayLike,
    true: ArrayLike,
    groups: Sequence[Hashable],
    measure: Measure = spearman,
    count: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """The measure, and the 2.5 and 97.5 % points of its bootstrap over groups."""
    p, t = np.asarray(predicted, dtype=np.float64), np.asarray(true, dtype=np.float64)
    found = [measure(p[rows], t[rows]) for rows in draws(groups, count, seed)]
    low, high = np.quantile(found, [0.025, 0.975])
    return Interval(measure(p, t), float(low), float(high))


def ahead(
    scores: ArrayLike,
    reference: ArrayLike,
    true: ArrayLike,
    groups: Sequence[Hashable],
    count: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """By how much our ρ exceeds theirs on the same rows, and its 95 % interval from paired draws."""
    a, b, t = (np.asarray(x, dtype=np.float64) for x in (scores, reference, true))
    found = [spearman(a[rows], t[rows]) - spearman(b[rows], t[rows]) for rows in draws(groups, count, seed)]
    low, high = np.quantile(found, [0.025, 0.975])
    return Interval(spearman(a, t) - spearman(b, t), float(low), float(high))


@dataclass(frozen=True, slots=True)
class Isotonic:
    """A rising step function through what was seen, straight between its points and flat beyond them. Both ``[k]``."""

    at: tuple[float, ...]
    values: tuple[float, ...]

    def __call__(self, scores: ArrayLike) -> Floats:
        x = np.asarray(scores, dtype=np.float64)
        return np.interp(x, self.at, self.values) if self.at else x


def isotonic(scores: ArrayLike, true: ArrayLike) -> Isotonic:
    """The rising function of the scores that is nearest to ``true`` by squares: pool adjacent violators (Ayer et al. 1955)."""
    x, place, count = np.unique(np.asarray(scores, dtype=np.float64), return_inverse=True, return_counts=True)
    means = np.bincount(place, weights=np.asarray(true, dtype=np.float64)) / count
    blocks: list[tuple[float, float, int]] = []  # mean, weight, how many different scores
    for mean, weight in zip(means.tolist(), count.astype(np.float64).tolist(), strict=True):
        size = 1
        while blocks and blocks[-1][0] >= mean:
            before, heavy, many = blocks.pop()
            mean, weight, size = (
                (mean * weight + before * heavy) / (weight + heavy),
                weight + heavy,
                size + many,
            )
        blocks.append((mean, weight, size))
    fitted = np.repeat([b[0] for b in blocks], [b[2] for b in blocks])
    # Only the ends of a flat stretch say anything.
    inner = np.ones(len(x), dtype=bool)
    inner[1:-1] = (fitted[1:-1] != fitted[:-2]) | (fitted[1:-1] != fitted[2:])
    return Isotonic(tuple(x[inner].tolist()), tuple(fitted[inner].tolist()))


@dataclass(frozen=True, slots=True)
class Bin:
    """One row of a reliability table: how many, what was predicted on average, what was true on average."""

    count: int
    predicted: float
    true: float


def reliability(predicted: ArrayLike, true: ArrayLike, bins: int = 5) -> tuple[Bin, ...]:
    """Rows in order of what was predicted, cut into ``bins`` of (nearly) the same size."""
    p, t = np.asarray(predicted, dtype=np.float64), np.asarray(true, dtype=np.float64)
    cut = np.array_split(np.argsort(p, kind="stable"), min(bins, max(len(p), 1)))
    return tuple(Bin(len(rows), float(p[rows].mean()), float(t[rows].mean())) for rows in cut if len(rows))


def calibration_error(table: Sequence[Bin]) -> float:
    """Σ (share of the bin) · |predicted − true|: the expected calibration error of that table."""
    total = sum(b.count for b in table)
    return sum(b.count * abs(b.predicted - b.true) for b in table) / total if total else 0.0
