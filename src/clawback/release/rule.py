"""The gate's rule: pure numbers in, a decision with its reasons out.

**Guards first.** A candidate that drifted too far, repeats itself, falls silent, does not end or rambles is rejected, however
well it scores: what collapses can score well on anything.

**Then one number, the probability that the candidate is better**, from two questions:

1. *Do the ratings say anything that holds beyond the answers they were given for?* That is asked in two ways. (i) Are they about something
   that is seen in answers, any conjunction of it (``rewards.conjunctions``), or is each a coin's toss? That is a Bayes factor ``B``. (ii) Does a head
   fitted on the ratings predict each of them from the others? A permutation test gives ``z_head``, and with z ~ N(0, 1) for ratings that say
   nothing and N(1.6, 1.15²) for those of a person with a taste that is a likelihood ratio ``L(z_head)``. A taste may be of one kind or of the other, so it is their
   mean that counts. Then the turns that were kept out of training: what was liked should have become likelier than what was disliked, by the
   rank sum of the log-prob shifts, ``z_held``. It is added to ``z_head`` with weights ``1 : w = √(held back / all)`` (Stouffer; Lipták 1958), allowing
   for the ratings that they share, ``z = (z_head + w z_held) / √(1 + w² + 2ρw)``, and changes the odds by ``L(z) / L(z_head)``. With four persons in five
   taken to have a taste, that is the probability ``s`` that the ratings say something.
2. *Does the candidate do better by what they say?* The head says by how much the expected rating of its fresh answers exceeds that
   of the live version's, and how unsure it is of that: ``Φ(gain / sd)``. And of all that the ratings may be about (``rewards.conjunctions``)
   there is a share under which more of its answers are what is wanted: ``a``. A run learns from what is likeliest, and with few good ratings that
   is now and then something else: the head, which saw the same ratings, is then as sure of it as the run was; ``a`` is not.
   Both have to say so: ``b = min(Φ(gain / sd), a)``.

``P(better) = s b + (1 - s) / 2``: if the ratings say nothing, it is a coin's toss. The candidate is accepted when that is at
least ``confidence``. With ratings of one sign nothing can be told, so nothing is ever accepted on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

from clawback.config import Gate

NORMAL = NormalDist()
LARGEST_Z = 3.5
"""No single piece of evidence from a few dozen taps is surer than this."""
LARGEST_LOG = 10.0
HAVE_A_TASTE = 0.8
"""Share of people whose ratings are taken to say something, before anything is known about them."""
WITH_A_TASTE = NormalDist(1.6, 1.15)
"""Where ``z`` lies for 32 ratings, one in ten wrong, of simulated people with tastes of one to three parts (docs/gate.md)."""
SHARED = 0.4
"""Correlation of ``z_head`` and ``z_held`` where ratings say nothing: the head has seen the held-back ones, too."""
EXACT_UP_TO = 20_000
"""Arrangements that are counted one by one; more are approximated by the normal law."""

LEAST_OF_EACH_SIGN = 2
UNFINISHED_MORE = 0.10
EMPTY_MORE = 0.05
REPEATING_MORE = 0.10
SHORTER_THAN, LONGER_THAN = 0.15, 3.0


@dataclass(frozen=True, slots=True)
class Sampled:
    """How one version's fresh answers are: shares in [0, 1], lengths in tokens."""

    finished: float
    empty: float
    repeating: float
    length: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the rule looks at."""

    good: int
    bad: int
    """All ratings that stand, by sign; the head is fitted on these."""
    liked: tuple[float, ...]
    disliked: tuple[float, ...]
    """Shift of the log-prob per token, candidate less live, of each held-back turn."""
    head_p: float
    """Permutation p-value of the head's leave-one-out correlation."""
    head_correlation: float
    gain: float
    """Expected rating of the candidate's fresh answers less that of the live version's."""
    gain_sd: float
    kl: float
    """Drift of the candidate from the base, nats an answer, on its own answers."""
    perplexity_ratio: float
    """Of the base model's own answers: under the candidate over under the base."""
    candidate: Sampled
    live: Sampled
    base: Sampled
    says: float = 0.0
    """Natural logarithm of the Bayes factor of ratings that are about something seen in answers against tosses of a coin."""
    agreed: float = 1.0
    """Share of what the ratings may be about under which the candidate answers better; 1 in reports from before it was asked for."""


@dataclass(frozen=True, slots=True)
class Decision:
    accepted: bool
    probability: float
    """That the candidate is better, if the guards were passed; 0 where nothing can be said."""
    reasons: tuple[str, ...]
    """The one that decided comes first."""


def decide(evidence: Evidence, settings: Gate) -> Decision:
    """Accept or reject, and why."""
    alarms = guards(evidence, settings)
    if min(evidence.good, evidence.bad) < LEAST_OF_EACH_SIGN:
        few = "good" if evidence.good < evidence.bad else "bad"
        why = f"there are {evidence.good} good and {evidence.bad} bad ratings: without more {few} ones nothing can be told"
        return Decision(False, 0.0, (why, *alarms))
    said, tests = says_something(evidence)
    better = min(NORMAL.cdf(within(evidence.gain / max(evidence.gain_sd, 1e-9))), evidence.agreed)
    probability = said * better + (1 - said) / 2
    pieces = (
        f"fresh answers: expected rating {evidence.gain:+.2f} ± {evidence.gain_sd:.2f} against the live version, if the ratings say "
        f"anything (probability {shown(said)}); better by what they may be about with probability {shown(evidence.agreed)}",
        *tests,
    )
    if alarms:
        return Decision(False, probability, (*alarms, *pieces))
    sure = f"better than the live version with probability {shown(probability)} ({settings.confidence:.2f} is asked for)"
    if probability >= settings.confidence:
        return Decision(True, probability, (sure, *pieces))
    return Decision(False, probability, (f"not shown to be {sure}", *pieces))


def says_something(evidence: Evidence) -> tuple[float, tuple[str, ...]]:
    """The probability that the ratings say anything beyond the answers they were given for, and a sentence for each test."""
    held = len(evidence.liked) + len(evidence.disliked)
    weight = math.sqrt(held / max(evidence.good + evidence.bad, 1))
    said = [
        f"a head fitted on the ratings predicts each from the others with correlation {evidence.head_correlation:+.2f} "
        f"(p = {evidence.head_p:.3f})"
    ]
    z_held = 0.0
    if evidence.liked and evidence.disliked:
        p = rank_test(evidence.liked, evidence.disliked)
        z_held = z_of(p)
        said.append(
            f"ratings kept out: {len(evidence.liked)} liked turns moved by {mean(evidence.liked):+.3f} nats a token, "
            f"{len(evidence.disliked)} disliked by {mean(evidence.disliked):+.3f} (p = {p:.3f})"
        )
    else:
        weight = 0.0
        said.append("ratings kept out: too few of each sign to say anything")
    z_head = z_of(evidence.head_p)
    z = (z_head + weight * z_held) / math.sqrt(1 + weight**2 + 2 * SHARED * weight)
    seen = math.exp(max(-LARGEST_LOG, min(evidence.says, LARGEST_LOG)))
    odds = (
        HAVE_A_TASTE
        / (1 - HAVE_A_TASTE)
        * (seen + likelihood(z_head))
        / 2
        * likelihood(z)
        / likelihood(z_head)
    )
    said.append(
        f"that they are about something seen in answers is {times(evidence.says)} as likely as that they are not"
    )
    return odds / (1 + odds), tuple(said)


def likelihood(z: float) -> float:
    """Of ``z`` for a person with a taste, over that for ratings that say nothing."""
    z = within(z)
    return WITH_A_TASTE.pdf(z) / NORMAL.pdf(z)


def times(log: float) -> str:
    """How much more likely, in words: no more digits than a few dozen ratings are worth."""
    ratio = math.exp(max(-LARGEST_LOG, min(log, LARGEST_LOG)))
    return "over 1000 times" if ratio > 1000 else "under 0.01 times" if ratio < 0.01 else f"{ratio:.2g} times"


def guards(evidence: Evidence, settings: Gate) -> tuple[str, ...]:
    """What is wrong with the candidate's answers, whatever they score."""
    ours, base = evidence.candidate, evidence.base
    checks = (
        (
            not math.isfinite(evidence.kl) or evidence.kl > settings.max_kl,
            f"it drifted {evidence.kl:.1f} nats an answer from the base model (at most {settings.max_kl:g})",
        ),
        (
            not math.isfinite(evidence.perplexity_ratio)
            or evidence.perplexity_ratio > settings.max_perplexity_ratio,
            f"ordinary text became {evidence.perplexity_ratio - 1:.0%} more perplexing to it "
            f"(at most {settings.max_perplexity_ratio - 1:.0%})",
        ),
        (
            ours.finished < base.finished - UNFINISHED_MORE,
            f"{1 - ours.finished:.0%} of its answers do not end ({1 - base.finished:.0%} of the base model's)",
        ),
        (ours.empty > base.empty + EMPTY_MORE, f"{ours.empty:.0%} of its answers are empty"),
        (
            ours.repeating > base.repeating + REPEATING_MORE,
            f"{ours.repeating:.0%} of its answers repeat themselves",
        ),
        (
            not SHORTER_THAN * base.length <= ours.length <= LONGER_THAN * base.length,
            f"its answers are {ours.length:.0f} tokens long, the base model's {base.length:.0f}",
        ),
    )
    return tuple(sentence for wrong, sentence in checks if wrong)


def rank_test(liked: Sequence[float], disliked: Sequence[float]) -> float:
    """One-sided p-value that liked shifts rank above disliked ones (Wilcoxon, Mann and Whitney); ties count half.

    Exact by counting every arrangement, half of the ties with the observed one (mid-p: unbiased in small samples).
    """
    values = [*liked, *disliked]
    ranks = mid_ranks(values)
    observed = sum(ranks[: len(liked)])
    if math.comb(len(values), len(liked)) <= EXACT_UP_TO:
        sums = [sum(chosen) for chosen in combinations(ranks, len(liked))]
        above = sum(s > observed + 1e-9 for s in sums)
        same = sum(abs(s - observed) <= 1e-9 for s in sums)
        return (above + 0.5 * same) / len(sums)
    n, a, b = len(values), len(liked), len(disliked)
    variance = a * b / (n * (n - 1)) * sum((r - (n + 1) / 2) ** 2 for r in ranks)
    return 1 - NORMAL.cdf((observed - a * (n + 1) / 2) / math.sqrt(max(variance, 1e-12)))


def mid_ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the middle of theirs."""
    order = sorted(values)
    first = {v: i for i, v in reversed(list(enumerate(order, 1)))}
    last = {v: i for i, v in enumerate(order, 1)}
    return [(first[v] + last[v]) / 2 for v in values]


def shown(probability: float) -> str:
    """Two digits, and never a certainty."""
    return "over 0.99" if probability > 0.99 else "under 0.01" if probability < 0.01 else f"{probability:.2f}"


def within(z: float) -> float:
    return max(-LARGEST_Z, min(z, LARGEST_Z))


def z_of(p: float) -> float:
    """Φ⁻¹(1 - p), within ± ``LARGEST_Z``."""
    return within(NORMAL.inv_cdf(min(max(1 - p, 1e-9), 1 - 1e-9)))


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
