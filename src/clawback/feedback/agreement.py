"""Agreement between raters, and a rater's own consistency. Plain Python: there are hundreds of ratings, not millions.

Cohen's κ          1 − Σ w O / Σ w E over the table of two raters (Cohen 1960; weighted: Cohen 1968)
Krippendorff's α   1 − (n − 1) Σ o_ck δ²_ck / Σ n_c n_k δ²_ck over the coincidences of all raters (Krippendorff 2011)
drift              Kendall's τ_b between time and rating, with its normal approximation under ties (Mann–Kendall)
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Metric = Literal["nominal", "ordinal", "interval"]
Triples = frozenset[tuple[str, ...]]
NEARLY = 0.9
"""Share of word triples in common (Jaccard) from which two texts count as nearly the same."""


def cohen_kappa(
    first: Sequence[float], second: Sequence[float], weights: Literal["linear", "quadratic"] | None = None
) -> float | None:
    """Agreement of two raters on the same things beyond what their own habits would give; 1 is full, 0 is chance.

    Weights grow with the distance between two categories in their order, |i − j| or its square. None where it is not
    defined: nothing in common, or both only ever used one and the same category.
    """
    if len(first) != len(second):
        raise ValueError("both raters must have rated the same things")
    labels = sorted({*first, *second})
    place = {label: i for i, label in enumerate(labels)}
    seen = Counter((place[a], place[b]) for a, b in zip(first, second, strict=True))
    rows, columns = Counter(place[a] for a in first), Counter(place[b] for b in second)

    def cost(i: int, j: int) -> float:
        return float(i != j) if weights is None else abs(i - j) ** (1 if weights == "linear" else 2)

    observed = sum(n * cost(i, j) for (i, j), n in seen.items())
    expected = sum(rows[i] * columns[j] * cost(i, j) for i in rows for j in columns) / max(len(first), 1)
    return 1 - observed / expected if expected else None


def krippendorff_alpha(ratings: Sequence[Sequence[float | None]], metric: Metric = "nominal") -> float | None:
    """Agreement of any number of raters, each of whom may have left things out.

    Args:
        ratings: ``[raters][things]``, None where a rater said nothing.
        metric: how far apart two values are: different or not, by how many ratings lie between, or by their difference.

    None where nothing was rated twice, or all values are the same.
    """
    together: Counter[tuple[float, float]] = Counter()
    for column in zip(*ratings, strict=True):
        values = [v for v in column if v is not None]
        if len(values) < 2:
            continue
        counts = Counter(values)
        for a, n in counts.items():
            for b, m in counts.items():
                together[a, b] += n * (m - (a == b)) / (len(values) - 1)
    margins: Counter[float] = Counter()
    for (a, _), n in together.items():
        margins[a] += n
    distance = _distances(margins, metric)
    total = sum(margins.values())
    observed = sum(n * distance[pair] for pair, n in together.items())
    expected = sum(margins[a] * margins[b] * distance[a, b] for a in margins for b in margins)
    return 1 - (total - 1) * observed / expected if expected else None


def _distances(margins: Mapping[float, float], metric: Metric) -> dict[tuple[float, float], float]:
    """δ² between all values."""
    if metric == "nominal":
        return {(a, b): float(a != b) for a in margins for b in margins}
    if metric == "interval":
        return {(a, b): (a - b) ** 2 for a in margins for b in margins}
    ordered, before, total = sorted(margins), {}, 0.0
    for value in ordered:  # where the middle of a value's ratings lies in the order of all
        before[value] = total + margins[value] / 2
        total += margins[value]
    return {(a, b): (before[a] - before[b]) ** 2 for a in margins for b in margins}


def outliers(values: Sequence[float], expected: Sequence[float], sigmas: float = 2.0) -> list[int]:
    """Places where ``values − expected`` lies more than ``sigmas`` standard deviations from its mean.

    ``expected`` is what the others said of the same thing (or a model of the rater). Fewer than five tell nothing.
    """
    apart = [v - e for v, e in zip(values, expected, strict=True)]
    if len(apart) < 5:
        return []
    mean = sum(apart) / len(apart)
    spread = math.sqrt(sum((a - mean) ** 2 for a in apart) / len(apart))
    return [i for i, a in enumerate(apart) if spread > 0 and abs(a - mean) > sigmas * spread]


@dataclass(frozen=True, slots=True)
class Drift:
    """``tau`` in [-1, 1]: over 0 where later ratings are kinder. ``p``: two-sided chance of one as large without any drift."""

    tau: float
    p: float


def drift(values: Sequence[float]) -> Drift:
    """Whether ratings, in the order in which they were given, rise or fall: the Mann–Kendall test with ties, that is Kendall's
    τ_b with time. S = Σ_{i<j} sign(v_j − v_i); var S = (n(n−1)(2n+5) − Σ t(t−1)(2t+5)) / 18 over the sizes t of ties."""
    n, ties = len(values), Counter(values).values()
    score = sum((b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1 :])
    pairs = n * (n - 1) / 2
    distinct = pairs - sum(t * (t - 1) / 2 for t in ties)
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    if distinct == 0 or variance <= 0:
        return Drift(0.0, 1.0)
    return Drift(score / math.sqrt(pairs * distinct), math.erfc(abs(score) / math.sqrt(2 * variance)))


@dataclass(frozen=True, slots=True)
class AttributedRating:
    """One rating with what it was given for."""

    turn_id: int
    prompt: str
    response: str
    value: float


def contradictions(rated: Iterable[AttributedRating]) -> list[tuple[int, int]]:
    """Pairs (liked turn, disliked turn) whose prompts and whose responses are the same or nearly so."""
    liked: list[tuple[int, Triples, Triples]] = []
    disliked: list[tuple[int, Triples, Triples]] = []
    for one in rated:
        if one.value:
            shape = (triples(one.prompt), triples(one.response))
            (liked if one.value > 0 else disliked).append((one.turn_id, *shape))
    return [
        (a, b)
        for a, asked, said in liked
        for b, asked_too, said_too in disliked
        if a != b and near(said, said_too) and near(asked, asked_too)
    ]


def triples(text: str) -> Triples:
    """The word triples of a text, case and signs aside; a shorter text is one piece."""
    words = re.findall(r"\w+", text.lower())
    return frozenset(tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2)))


def near(a: Triples, b: Triples) -> bool:
    """Jaccard similarity of at least ``NEARLY``; sizes that rule it out are found without comparing."""
    small, large = sorted((len(a), len(b)))
    return small >= NEARLY * large and len(a & b) >= NEARLY * len(a | b)
