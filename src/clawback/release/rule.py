"""The gate's decision rule: pure numbers in, a decision with its reasons out.

**Guards first.** A candidate that drifted too far, repeats itself, falls silent, breaks off, rambles, says the same to everybody or no longer
answers the question is rejected, however well it scores: a collapsed model can score well on anything, and empty answers do not satisfy a taste.
The guards compare with the base model's answers *and* with the answers that were liked: whoever likes short ones gets short ones, but no stubs.

**Then one number, the probability that the candidate is better**, from two questions:

1. *Do the ratings generalise beyond the answers they were given for?* The reward model of the run (``rewards.reward_ensemble``: Gaussian processes
   on several views of an answer, Bayes over rules of its features) explains them better than noise by some Bayes factor; permutations of the ratings
   over the same answers show how often chance reaches that. That p-value gives ``z_read``, and with z ~ N(0, 1) for ratings that say
   nothing and N(1.7, 1.1²) for those of a person with a taste there is a likelihood ratio. Then the turns that were held out of training: what
   was liked should have become likelier than what was disliked, by the rank sum of the log-prob shifts, ``z_held``. It is added to ``z_read`` with weights
   ``1 : w = √(held back / all)`` (Stouffer; Lipták 1958), allowing for the ratings that they share,
   ``z = (z_read + w z_held) / √(1 + w² + 2ρw)``. With the prior that four persons in five have a taste, that gives the probability ``s`` that the ratings
   say something.
2. *Does the candidate do better by what they say?* Each of the reward model's members has a probability that the candidate's fresh answers are rated higher
   than the live version's, and a weight, by how well it explains the ratings: ``b`` is the weighted mean. A run learns from the likeliest explanation, and with
   few good ratings that is now and then wrong; the members with other explanations have their weight in ``b``.

``P(better) = s b + (1 - s) / 2``: if the ratings say nothing, it is a coin toss. The candidate is accepted when that is at
least ``confidence``. With ratings of one sign nothing is ever accepted.

**A prompt that was folded into the weights** should no longer be needed, and the answers need not be better than with it. So the gain is measured from half way
between the base model alone and the live version under the prompt: more than half of the prompt's effect must remain without it.
Its drift may be as large as the prompt's own.

**Or more ratings are asked for.** 32 ratings cannot tell a taste that is hard to detect from coin tosses; 16 more can, since the candidate has learned from none
of them. So a candidate that is neither good enough nor hopeless waits, and is judged again after 16 and after 32 more. They are of its own answers and the live version's
(``human_eval``), so they also say directly which are better: nothing has to be read out of them, and a taste that no feature can express is heard as well. The reward
model is fitted on them, and the odds are multiplied by the square root of the Bayes factor of the two shares of good ratings (``proportions``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

from clawback.config import Gate
from clawback.release.proportions import Counts, larger

NORMAL = NormalDist()
LARGEST_Z = 3.5
"""No single piece of evidence from a few dozen ratings is more certain than this."""
HAVE_A_TASTE = 0.8
"""Share of people whose ratings are taken to say something, before anything is known about them."""
WITH_A_TASTE = NormalDist(1.7, 1.1)
"""Where ``z`` lies for 32 ratings, one in ten wrong, of simulated people with tastes of one to three parts (docs/gate.md)."""
SHARED = 0.4
"""Correlation of ``z_read`` and ``z_held`` where ratings say nothing: the reward model has seen the held-out ones, too."""
EXACT_UP_TO = 20_000
"""Arrangements that are counted one by one; more are approximated by the normal law."""

HOPELESS = 0.4
"""A candidate that is better with less probability is not worth waiting for."""
BEFORE = 0.25
"""Of a rating that counts of one of the live version's answers that was given as it came, not beside the candidate's: some people rate mostly what annoys them
(a power prior; Ibrahim and Chen 2000)."""
TWICE = 0.5
"""Power of the Bayes factor of the two shares: the reward model has been fitted on these ratings, too."""
MOST_LOOKS = 3
"""How often a candidate is judged in all. More would let chance through in the end: one look in twenty at nothing looks good."""

LEAST_OF_EACH_SIGN = 2
EMPTY_MORE = 0.05
MORE = 0.10
"""By how much the share of answers that do not end, break off, repeat themselves or the question, or are canned may exceed the base's."""
SHORTER_THAN = 0.35
"""Of the length of liked answers or of the base's, whichever are shorter."""
SHORTER_THAN_BASE = 0.15
"""The same where too few answers were liked to know how long they are."""
LONGER_THAN, LONGER_BY = 2.0, 40.0
"""Times the length of liked answers or of the base's, whichever are longer; and tokens on top, which count where answers have a line or two."""
LESS_RELEVANT = 0.5
"""Of what the question adds to the log-prob of the base's answers (or of liked ones, if that is less)."""
LESS_LIKELY = 1.0
"""Nats a token under the base model that answers may be less likely than its own, or than liked ones."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """How some answers are: shares in [0, 1], lengths in tokens, log-probs in nats a token under the base model."""

    finished: float
    empty: float
    repeating: float
    length: float
    whole: float = 1.0
    """Share that ends where a sentence, an item, code or the like ends."""
    copied: float = 0.0
    """Share that says little but what was asked."""
    canned: float = 0.0
    """Share that was said to another prompt word for word, too."""
    logprob: float | None = None
    """Under the base, given the prompt. None: not measured, as in reports from before it was."""
    relevance: float | None = None
    """By how much the log-prob is higher than given another one of the prompts. 0: whatever was asked, the same is said."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Good and bad ratings of two versions' answers."""

    candidate: Counts = (0, 0)
    """Of the candidate's own."""
    live: Counts = (0, 0)
    """Of the live version's that were put beside them (``human_eval``)."""
    before: Counts = (0, 0)
    """Of the live version's that were rated as they came."""


NOT_COMPARED = Compared()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the rule looks at."""

    good: int
    bad: int
    """All ratings that stand, by sign; the reward model is fitted on these."""
    liked: tuple[float, ...]
    disliked: tuple[float, ...]
    """Shift of the log-prob per token, candidate less live, of each held-back turn."""
    read_p: float
    """Permutation p-value of how well the ratings are explained by what is seen in the answers."""
    gain: float
    """Expected rating of the candidate's fresh answers less that of the live version's."""
    gain_sd: float
    better: float
    """Probability that the candidate's are rated higher, by everything that the ratings may be about, each by how well it explains them."""
    kl: float
    """Drift of the candidate from the base, nats an answer, on its own answers."""
    perplexity_ratio: float
    """Of the base model's own answers: under the candidate over under the base."""
    candidate: Sampled
    live: Sampled
    base: Sampled
    enjoyed: Sampled | None = None
    """The answers that were rated good. None where there are too few of them to compare with."""
    folded: bool = False
    """The candidate holds what the live version's prompt says. ``gain`` and ``better`` are against the middle between the live version with its prompt and
    the base model without: what is asked for is that more than half of what the prompt gives is kept."""
    compared: Compared = NOT_COMPARED
    prompt_kl: float = 0.0
    """How far the prompt takes the live version's answers from the base model without it, nats an answer; 0: not measured."""


@dataclass(frozen=True, slots=True)
class Decision:
    accepted: bool
    probability: float
    """That the candidate is better, if the guards were passed; 0 where nothing can be said."""
    reasons: tuple[str, ...]
    """The one that decided comes first."""
    asks: int = 0
    """Ratings after which it should be judged again; until then it is neither accepted nor rejected."""


def decide(evidence: Evidence, settings: Gate, looks: int = MOST_LOOKS) -> Decision:
    """Accept, reject or ask for more ratings, and why. ``looks``: how often it has been judged, this time included."""
    alarms = guards(evidence, settings)
    if min(evidence.good, evidence.bad) < LEAST_OF_EACH_SIGN:
        least = LEAST_OF_EACH_SIGN
        why = f"not enough ratings: {evidence.good} good and {evidence.bad} bad, and at least {least} of each are needed"
        return Decision(False, 0.0, (why, *alarms))
    said, tests = says_something(evidence)
    probability = said * evidence.better + (1 - said) / 2
    probability, told = with_own(probability, evidence)
    beside = "half of what the prompt gives" if evidence.folded else "the live version"
    pieces = (
        f"fresh answers: predicted rating {evidence.gain:+.2f} ± {evidence.gain_sd:.2f} against {beside}; better with probability "
        f"{shown(evidence.better)} if the ratings follow a pattern (probability {shown(said)})",
        *told,
        *tests,
    )
    if alarms:
        return Decision(False, probability, (*alarms, *pieces))
    what = "better than the live version"
    if evidence.folded:
        what = "above half of the prompt's gain"
    sure = f"{what} with probability {shown(probability)} ({settings.confidence:g} is needed)"
    if probability >= settings.confidence:
        return Decision(True, probability, (sure, *pieces))
    if probability >= HOPELESS and looks < MOST_LOOKS and settings.more_ratings:
        more = settings.more_ratings
        return Decision(
            False, probability, (f"undecided: {sure}; {more} more ratings are needed", *pieces), more
        )
    return Decision(False, probability, (f"not shown to be {sure}", *pieces))


def with_own(probability: float, evidence: Evidence) -> tuple[float, tuple[str, ...]]:
    """The probability that the candidate is better when the ratings of its own answers are counted as well, and a sentence about them."""
    ours, live, before = evidence.compared.candidate, evidence.compared.live, evidence.compared.before
    if evidence.folded or not sum(ours):
        return probability, ()
    theirs = (live[0] + BEFORE * before[0], live[1] + BEFORE * before[1])
    # Never quite sure: what comes after could not change it otherwise.
    probability = min(max(probability, 1e-6), 1 - 1e-6)
    odds = probability / (1 - probability) * larger(ours, theirs) ** TWICE
    beside = f", of the live version's {live[0]:g} of {sum(live):g}" if sum(live) else ""
    beside += f" ({before[0]:g} of {sum(before):g} before)" if sum(before) else ""
    return odds / (1 + odds), (
        f"rated beside each other: {ours[0]:g} of {sum(ours):g} of its own answers were good{beside}; "
        f"by everything else it is better with probability {shown(probability)}",
    )


def says_something(evidence: Evidence) -> tuple[float, tuple[str, ...]]:
    """The probability that the ratings generalise beyond the answers they were given for, and a sentence for each test."""
    held = len(evidence.liked) + len(evidence.disliked)
    weight = math.sqrt(held / max(evidence.good + evidence.bad, 1))
    said = [
        f"permutation test: ratings in random order are explained as well in {evidence.read_p:.1%} of cases"
    ]
    z_held = 0.0
    if evidence.liked and evidence.disliked:
        p = rank_test(evidence.liked, evidence.disliked)
        z_held = z_of(p)
        said.append(
            f"held-out ratings: log-prob of {len(evidence.liked)} liked turns {mean(evidence.liked):+.3f} nats per token, "
            f"of {len(evidence.disliked)} disliked {mean(evidence.disliked):+.3f} (p = {p:.3f})"
        )
    else:
        weight = 0.0
        said.append("held-out ratings: too few of each sign to test")
    z_read = z_of(evidence.read_p)
    z = (z_read + weight * z_held) / math.sqrt(1 + weight**2 + 2 * SHARED * weight)
    odds = HAVE_A_TASTE / (1 - HAVE_A_TASTE) * likelihood(z)
    return odds / (1 + odds), tuple(said)


def likelihood(z: float) -> float:
    """The likelihood ratio of ``z``: a person with a taste against ratings that say nothing."""
    z = within(z)
    return WITH_A_TASTE.pdf(z) / NORMAL.pdf(z)


def guards(evidence: Evidence, settings: Gate) -> tuple[str, ...]:
    """What is wrong with the candidate's answers, whatever their score."""
    ours, base, liked = evidence.candidate, evidence.base, evidence.enjoyed or evidence.base
    # Longer answers have more room to repeat themselves and run into the limit more often: what is allowed grows with them.
    longer = max(1.0, ours.length / max(base.length, 1.0))
    # A prompt that is live has taken its answers this far from the base's already: whoever does the same without it may go as far.
    by_length = settings.max_kl_per_token * max(ours.length, base.length)
    most_kl = max(settings.max_kl, by_length, evidence.prompt_kl)
    least = (
        SHORTER_THAN * min(base.length, liked.length) if evidence.enjoyed else SHORTER_THAN_BASE * base.length
    )
    most = LONGER_THAN * max(base.length, liked.length) + LONGER_BY
    beside = f"the base model's {base.length:.0f}" + (
        f", liked ones {liked.length:.0f}" if evidence.enjoyed else ""
    )
    checks = (
        (
            not math.isfinite(evidence.kl) or evidence.kl > most_kl,
            f"it drifted {evidence.kl:.1f} nats per answer from the base model (at most {most_kl:g})",
        ),
        (
            not math.isfinite(evidence.perplexity_ratio)
            or evidence.perplexity_ratio > settings.max_perplexity_ratio,
            f"the perplexity of the base model's text rose by {evidence.perplexity_ratio - 1:.0%} "
            f"(at most {settings.max_perplexity_ratio - 1:.0%})",
        ),
        (
            1 - ours.finished > (1 - base.finished) * longer + MORE,
            f"{1 - ours.finished:.0%} of its answers do not end ({1 - base.finished:.0%} of the base model's)",
        ),
        (ours.empty > base.empty + EMPTY_MORE, f"{ours.empty:.0%} of its answers are empty"),
        (
            ours.repeating > base.repeating * longer + MORE,
            f"{ours.repeating:.0%} of its answers repeat themselves ({base.repeating:.0%} of the base model's)",
        ),
        (
            not least <= ours.length <= most,
            f"its answers are {ours.length:.0f} tokens long, {beside} ({least:.0f} to {most:.0f} are allowed)",
        ),
        (
            ours.whole < min(base.whole, liked.whole) - MORE,
            f"{1 - ours.whole:.0%} of its answers break off ({1 - base.whole:.0%} of the base model's)",
        ),
        (
            ours.copied > max(base.copied, liked.copied) + MORE,
            f"{ours.copied:.0%} of its answers repeat the question ({base.copied:.0%} of the base model's)",
        ),
        (
            ours.canned > max(base.canned, liked.canned) + MORE,
            f"{ours.canned:.0%} of its answers are the same for different questions ({base.canned:.0%} of the base model's)",
        ),
        *_under_the_base(ours, base, liked),
    )
    return tuple(sentence for wrong, sentence in checks if wrong)


def _under_the_base(ours: Sampled, base: Sampled, liked: Sampled) -> tuple[tuple[bool, str], ...]:
    """What the base model makes of the answers: are they still about what was asked, and still language?"""
    if ours.relevance is None or base.relevance is None or ours.logprob is None or base.logprob is None:
        return ()
    needed = LESS_RELEVANT * min(
        base.relevance, base.relevance if liked.relevance is None else liked.relevance
    )
    least = min(base.logprob, base.logprob if liked.logprob is None else liked.logprob) - LESS_LIKELY
    return (
        (
            not math.isfinite(ours.relevance) or ours.relevance < needed,
            f"its answers have little to do with the question: relevance {ours.relevance:.2f} nats per token, "
            f"the base model's {base.relevance:.2f}",
        ),
        (
            not math.isfinite(ours.logprob) or ours.logprob < least,
            f"its answers are unlikely text to the base model: {ours.logprob:.2f} nats per token, its own {base.logprob:.2f}",
        ),
    )


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
    """Two digits, and never 0 or 1."""
    return "over 0.99" if probability > 0.99 else "under 0.01" if probability < 0.01 else f"{probability:.2f}"


def within(z: float) -> float:
    return max(-LARGEST_Z, min(z, LARGEST_Z))


def z_of(p: float) -> float:
    """Φ⁻¹(1 - p), within ± ``LARGEST_Z``."""
    return within(NORMAL.inv_cdf(min(max(1 - p, 1e-9), 1 - 1e-9)))


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
