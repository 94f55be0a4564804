"""Whether what was liked gained more than what was not: an exact rank test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist

NORMAL = NormalDist()
EXACT_UP_TO = 20_000
"""Arrangements that are counted one by one; more are approximated by the normal law."""


def rank_test(liked: Sequence[float], disliked: Sequence[float], observed_counts: float = 0.5) -> float:
    """One-sided p-value that liked shifts rank above disliked ones (Wilcoxon, Mann and Whitney).

    Exact by counting every arrangement; those that are as good as the observed one count by ``observed_counts``: half of them give the mid-p,
    which is unbiased in small samples, all of them the p-value that keeps its error.
    """
    values = [*liked, *disliked]
    ranks = mid_ranks(values)
    observed = sum(ranks[: len(liked)])
    if math.comb(len(values), len(liked)) <= EXACT_UP_TO:
        sums = [sum(chosen) for chosen in combinations(ranks, len(liked))]
        above = sum(s > observed + 1e-9 for s in sums)
        same = sum(abs(s - observed) <= 1e-9 for s in sums)
        return (above + observed_counts * same) / len(sums)
    n, a, b = len(values), len(liked), len(disliked)
    variance = a * b / (n * (n - 1)) * sum((r - (n + 1) / 2) ** 2 for r in ranks)
    return 1 - NORMAL.cdf((observed - a * (n + 1) / 2) / math.sqrt(max(variance, 1e-12)))


def mid_ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the middle of theirs."""
    order = sorted(values)
    first = {v: i for i, v in reversed(list(enumerate(order, 1)))}
    last = {v: i for i, v in enumerate(order, 1)}
    return [(first[v] + last[v]) / 2 for v in values]
