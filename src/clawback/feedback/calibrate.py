"""How far raters and judges agree, and the weight of each: from what each person thinks of the answers that both have rated.

**Agreement** between raters, and a rater's own consistency:

Cohen's κ          1 − Σ w O / Σ w E over the table of two raters (Cohen 1960; weighted: Cohen 1968)
Krippendorff's α   1 − (n − 1) Σ o_ck δ²_ck / Σ n_c n_k δ²_ck over the coincidences of all raters (Krippendorff 2011)
drift              Kendall's τ_b between time and rating, with its normal approximation under ties (Mann–Kendall)

**Opinions.** A person may change their mind, in any place: the terminal, the page, an agent, a message. So of one person and one turn

- the newest rating counts (``good``, ``bad`` and scores alike),
- the newest edit counts,
- of a good rating and an edit, which contradict each other, the newer one counts; a bad rating and an edit agree, and both count,
- of preferences between the same two turns the newest counts.

Newest is what was said last, whenever it was stored. What is taken back is not there, so the word before it counts again. Different persons
are never merged: the mean of their opinions is the reward (``aggregate``).

**Judges.** A judge's weight follows from the sign on which it does worse. With ``n₊`` common turns that the person liked, of which the judge
voted +1 on ``a₊``, and the same for what they disliked, each rate has a Beta posterior (prior Beta(10, 6), mean 0.625):

    p± = (10 + a±) / (16 + n±)          mean of Beta(10 + a±, 6 + n± − a±)
    weight = max(0, 2 min(p₊, p₋) − 1)

- Where the two rates are alike, ``2p − 1`` is what the person would say on average where the judge says +1.
- With no common turn the weight is ¼, and a few move it little.
- A judge that always says +1 agrees with a contented person nine times in ten, which says nothing. Here only what it says of
  disliked turns counts against it: ``p₋ = 10 / (16 + n₋)``, so four of them take its weight to 0.

**People.** Cohen's κ (linear) of what a person likes and dislikes with what every other person does, on the n ratings in common, drawn towards 1 by
ten ratings in full agreement: ``max(0, (10 + n κ) / (10 + n))``, over the largest of these. So whoever agrees most counts in full, and so do two who are
alone with each other, however little they agree: nobody can say which of them is the odd one out. (κ is small, too, where nearly all ratings are of one
sign; what all have in common must not make every rating small.) Who never rated what others rated counts in full.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from clawback.records import Feedback

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


Middles = Mapping[tuple[str, str], float]
"""(person, scale) → the value that is 0 for that person."""
HINT_SOURCE = "hint:"
"""What the source of a candidate that a judge model extracted begins with."""


def standing(feedback: Iterable[Feedback]) -> list[Feedback]:
    """The words that count, oldest first. Critiques are no opinion with a number: all of them stay."""
    newest: dict[tuple[object, ...], Feedback] = {}
    for given in sorted(feedback, key=lambda f: f.moment):
        newest[_subject(given)] = given
    for (kind, turn, person, *_), rating in list(newest.items()):
        edit = newest.get(("edit", turn, person))
        if kind == "rating" and edit is not None and rating.value > 0:
            del newest["edit" if rating.moment > edit.moment else "rating", turn, person]
    return sorted(newest.values(), key=lambda f: f.moment)


def _subject(opinion: Feedback) -> tuple[object, ...]:
    """What a later word of the same person replaces."""
    if opinion.kind in ("rating", "edit"):
        return opinion.kind, opinion.turn_id, opinion.author
    if opinion.kind == "preference":
        return opinion.kind, frozenset((opinion.turn_id, opinion.other_turn_id)), opinion.author
    return opinion.kind, opinion.turn_id, opinion.author, opinion.id, id(opinion)


def ratings(feedback: Iterable[Feedback], middles: Middles | None = None) -> list[Feedback]:
    """The newest rating of each person and turn, oldest first, with centred scores."""
    every = [f for f in feedback if f.kind == "rating"]
    return standing(centred(every, middles))


def middles_of(feedback: Iterable[Feedback]) -> dict[tuple[str, str], float]:
    """What is usual for each person on each scale, by the scores that stand among these."""
    from clawback import scales

    groups: dict[tuple[str, str], list[float]] = {}
    for given in standing(f for f in feedback if f.kind == "rating"):
        if given.scale:
            groups.setdefault((given.author, given.scale), []).append(given.value)
    return {group: scales.middle(values) for group, values in groups.items()}


def centred(feedback: Iterable[Feedback], middles: Middles | None = None) -> list[Feedback]:
    """The same feedback with each score's value centred by the person who gave it (by these scores themselves, without ``middles``)."""
    every = list(feedback)
    if not any(f.scale for f in every):
        return every
    from clawback import scales

    zero = middles_of(every) if middles is None else middles
    return [
        replace(f, value=scales.centred(f.value, zero.get((f.author, f.scale), 0.0)))
        if f.scale and f.kind == "rating"
        else f
        for f in every
    ]


def hints_of(opinions: Sequence[Feedback]) -> tuple[str, ...]:
    """The hints among what was said of a turn: the person's own critiques, newest first, then candidates, longest first."""
    standing = [f for f in opinions if f.kind == "critique" and f.undone_at is None and f.text.strip()]
    own = [f for f in standing if not f.source.startswith(HINT_SOURCE)]
    read = [f for f in standing if f.source.startswith(HINT_SOURCE)]
    ordered = sorted(own, key=lambda f: f.moment, reverse=True) + sorted(
        read, key=lambda f: (-len(f.text), f.id)
    )
    return tuple(dict.fromkeys(f.text.strip() for f in ordered))


PRIOR = (10.0, 6.0)
"""Agreements and disagreements, on each sign, that a judge starts with."""
FULL = 10
"""Common turns in full agreement that a person starts with."""
NEITHER = 0.125
"""Below it nothing was liked or disliked: the middle two of ten scores."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """A judge's agreement with its person. ``good`` and ``bad``: (votes that agree, common turns) by what the person said."""

    source: str
    votes: int
    good: tuple[int, int]
    bad: tuple[int, int]

    @property
    def common(self) -> int:
        return self.good[1] + self.bad[1]

    @property
    def weight(self) -> float:
        """In [0, 1]; ¼ before anything is known."""
        return max(0.0, 2 * min(_rate(*self.good), _rate(*self.bad)) - 1)


def _rate(agreed: int, common: int) -> float:
    return (PRIOR[0] + agreed) / (sum(PRIOR) + common)


PRIOR_WEIGHT = Reliability("", 0, (0, 0), (0, 0)).weight


def reliability(ratings: Mapping[int, float], votes: Iterable[Feedback]) -> dict[str, Reliability]:
    """Source → how it stands beside the person.

    Args:
        own: turn → what the person's own feedback makes of it, in [-1, 1]; near 0 it is neither liked nor disliked.
        votes: the judges' rows; one whose value is 0 is no vote.
    """
    counts: dict[str, list[int]] = {}
    for vote in votes:
        if vote.value == 0:
            continue
        row = counts.setdefault(vote.source, [0, 0, 0, 0, 0])  # votes, agreed₊, n₊, agreed₋, n₋
        row[0] += 1
        said = ratings.get(vote.turn_id, 0.0)
        if sign(said):
            at = 1 if said > 0 else 3
            row[at] += (vote.value > 0) == (said > 0)
            row[at + 1] += 1
    return {s: Reliability(s, n, (a, b), (c, d)) for s, (n, a, b, c, d) in sorted(counts.items())}


def agreed(feedback: Iterable[Feedback]) -> dict[str, float]:
    """Person → weight of their ratings, for those who rated what others rated, too."""
    by_person: dict[str, dict[int, float]] = {}
    for rating in ratings(feedback):
        by_person.setdefault(rating.author, {})[rating.turn_id] = rating.value
    weights = {}
    for person, values in by_person.items():
        kappa, common = kappa_with(values, [v for other, v in by_person.items() if other != person])
        if kappa is not None:
            weights[person] = weight(kappa, common)
    most = max(weights.values(), default=0.0)
    return {person: value / most for person, value in weights.items()} if most else {}


def kappa_with(
    values: Mapping[int, float], others: Sequence[Mapping[int, float]]
) -> tuple[float | None, int]:
    """Linear-weighted κ of likes and dislikes (turn → value) with those of all others, and how many pairs that were. None: not defined."""
    pairs = [(value, of[turn]) for turn, value in values.items() for of in others if turn in of]
    return cohen_kappa([sign(a) for a, _ in pairs], [sign(b) for _, b in pairs], "linear"), len(pairs)


def weight(kappa: float, common: int) -> float:
    """``max(0, (10 + n κ) / (10 + n))``."""
    return max(0.0, (FULL + common * kappa) / (FULL + common))


def sign(value: float) -> int:
    """-1, 0 or 1."""
    return 0 if abs(value) < NEITHER else (1 if value > 0 else -1)
