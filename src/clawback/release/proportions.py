"""Two shares of good ratings, and whether one is larger: a Bayes factor, in plain Python for a light install."""

from __future__ import annotations

import math

GRID = 200
"""Points in (0, 1) at which the integrals are taken. With 1,000 the logarithm of the factor differs by less than 0.03 (tests/release/test_proportions.py)."""

Counts = tuple[float, float]
"""Good ratings and bad ones; some may count in part."""


def larger(ours: Counts, theirs: Counts) -> float:
    """The Bayes factor of ``θ > θ'`` against ``θ = θ'``, where θ is the probability of a good rating in ``ours`` and θ' that in ``theirs``.

    θ' is uniform on (0, 1) a priori; θ, if it is larger, is uniform on (θ', 1) (Kass and Raftery 1995, "Bayes Factors"). The alternative is that both are equal, which is
    how it is for somebody who rates at random; where ``ours`` is the smaller share, the factor is below 1 as well. Without any rating in ``ours`` it is 1.
    """
    if not sum(ours):
        return 1.0
    points = [(i + 0.5) / GRID for i in range(GRID)]
    before = [_log_likelihood(theirs, point) for point in points]
    here = [_log_likelihood(ours, point) for point in points]
    most, peak = max(before), max(here)
    weights = [math.exp(one - most) for one in before]
    likelihood = [math.exp(one - peak) for one in here]
    same = sum(w * value for w, value in zip(weights, likelihood, strict=True))
    more = above = 0.0
    for count, (w, value) in enumerate(zip(reversed(weights), reversed(likelihood), strict=True)):
        # Half of a point's own interval lies above it.
        more += w * (above + value / 2) / (count + 0.5)
        above += value
    return more / max(same, 1e-300)


def _log_likelihood(counts: Counts, share: float) -> float:
    good, bad = counts
    return good * math.log(share) + bad * math.log1p(-share)
