"""A judge's win rate of one version over another: each pair in both orders, corrected for length.

**Order.** A judge that favours the first (or second) position reverses its verdict when the two change places; such a
pair is a tie. The favoured position is reported.

**Length.** Judges like long answers. As in length-controlled AlpacaEval (Dubois et al. 2024, arXiv:2404.04475) the chance that A wins is modelled as

    logit P(A is preferred) = θ + φ · tanh(Δ / s)        Δ = words of A − words of B, s their standard deviation

and the win rate at equal length is σ(θ). Theirs has a term for how hard each instruction is, fitted over many models; with two versions it cannot be told
from θ and is left out. φ has a normal prior (variance 1/λ, λ = 0.1 pairs), as a few pairs of which the longer always wins would else send it to infinity; θ
has one a hundred times weaker.

**Intervals** are from a bootstrap over prompts.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RIDGE = (1e-3, 1e-1)
"""λ of θ and of φ."""
STEPS = 50


@dataclass(frozen=True, slots=True)
class PairJudgement:
    """One prompt. ``first``, ``second``: whether A was preferred when it stood first, and when it stood second."""

    first: bool
    second: bool
    longer: float
    """Words of A less words of B."""

    @property
    def won(self) -> float:
        return (self.first + self.second) / 2


@dataclass(frozen=True, slots=True)
class WinRate:
    """Of A over B; ties count half."""

    pairs: int
    rate: float
    low: float
    high: float
    controlled: float
    """At equal length."""
    controlled_low: float
    controlled_high: float
    length_effect: float
    """φ: over 0 where the judge prefers what is longer."""
    ties: float
    """Share of pairs of which it said the opposite when they changed places."""
    leans_first: float
    """Share of all verdicts for what stood first; 0.5 is fair."""
    longer: float
    """Mean of words of A less words of B."""


def win_rate(judged: Sequence[PairJudgement], draws: int = 1000, seed: int = 0) -> WinRate:
    """Raises ``ValueError`` without any."""
    if not judged:
        raise ValueError("nothing was judged")
    rng = random.Random(seed)
    theta, phi = fit(judged)
    plain, controlled = [], []
    for _ in range(draws):
        again = rng.choices(judged, k=len(judged))
        plain.append(_mean(again))
        controlled.append(_sigmoid(fit(again)[0]))
    count = len(judged)
    return WinRate(
        pairs=count,
        rate=_mean(judged),
        low=_quantile(plain, 0.025),
        high=_quantile(plain, 0.975),
        controlled=_sigmoid(theta),
        controlled_low=_quantile(controlled, 0.025),
        controlled_high=_quantile(controlled, 0.975),
        length_effect=phi,
        ties=sum(one.first != one.second for one in judged) / count,
        leans_first=sum(one.first + (not one.second) for one in judged) / (2 * count),
        longer=statistics.fmean(one.longer for one in judged),
    )


def fit(judged: Sequence[PairJudgement]) -> tuple[float, float]:
    """θ and φ by Newton's method: the penalised log-likelihood is concave, so a step that lowers it is halved."""
    spread = statistics.pstdev([one.longer for one in judged]) or 1.0
    x = [math.tanh(one.longer / spread) for one in judged]
    y = [one.won for one in judged]

    def value(theta: float, phi: float) -> float:
        fits = sum(won * z - _softplus(z) for won, z in zip(y, (theta + phi * a for a in x), strict=True))
        return fits - RIDGE[0] * theta**2 / 2 - RIDGE[1] * phi**2 / 2

    theta = phi = 0.0
    for _ in range(STEPS):
        p = [_sigmoid(theta + phi * a) for a in x]
        g0 = sum(won - q for won, q in zip(y, p, strict=True)) - RIDGE[0] * theta
        g1 = sum((won - q) * a for won, q, a in zip(y, p, x, strict=True)) - RIDGE[1] * phi
        w = [q * (1 - q) for q in p]
        h00 = sum(w) + RIDGE[0]
        h01 = sum(v * a for v, a in zip(w, x, strict=True))
        h11 = sum(v * a * a for v, a in zip(w, x, strict=True)) + RIDGE[1]
        det = h00 * h11 - h01 * h01
        step0, step1 = (h11 * g0 - h01 * g1) / det, (h00 * g1 - h01 * g0) / det
        size, now = 1.0, value(theta, phi)
        while size > 1e-6 and value(theta + size * step0, phi + size * step1) < now:
            size /= 2
        theta, phi = theta + size * step0, phi + size * step1
        if abs(step0) + abs(step1) < 1e-9:
            break
    return theta, phi


def _mean(judged: Sequence[PairJudgement]) -> float:
    return statistics.fmean(one.won for one in judged)


def _sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def _softplus(z: float) -> float:
    return max(z, 0.0) + math.log1p(math.exp(-abs(z)))


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
