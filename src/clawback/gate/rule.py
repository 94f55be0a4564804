"""The gate's decision rule, for adapters and prompts alike: pure numbers in, a decision with its reasons out.

**Guards first** (``guards``). Then what trained a version has no say in whether it goes live. The reader of a run chose what the run learned, so its
opinion of the result is none; it only chooses what is asked about, and says where there is nothing to ask. A version goes live by one of these:

1. **Held-out ratings.** What was liked has become likelier than what was not, by the exact rank test of the log-prob shifts of turns that the run has
   not learned from. If they say the opposite (p ≤ ``AGAINST``), the version is rejected, whatever else speaks for it.
2. **Rules of the owner** (``guards``). Its answers keep one of them more often than the live version's, by ``MORE_OBEDIENT`` at least, and no rule less often.
3. **A or B** (``questions``). The owner compares answers of both versions to the same prompt, blind, and an exact sequential test decides.
   At most ``questions.MOST`` are asked about a version.
4. A **trial** in real use (``release.trial``), which takes what has passed the guards and is not decided.

Together 1 to 3 accept a version that is no better with a chance of at most ``1 - confidence``: 6 % of this go to each of the first two where they can
decide at all, and what is left to the third.

**Nothing is asked where nothing can be told apart**: where the versions' answers read the same, or where the reader, on ratings that it can read, is sure that
the candidate's are worth less than ``WORTH_ASKING`` more, and no rule is kept more or less often. Such a candidate is dropped, unless its run learned from
remarks that the reader does not understand.

**A prompt that was folded into the weights** should no longer be needed, and the answers need not be better than with it. No reader has trained it, so the
reader may judge it: its answers must keep more than half of what the prompt gains, with probability ``confidence``. For that the reader has to be right,
``s``, and the candidate above the middle by what it reads, ``b``: ``s b + (1 - s) / 2``. Its drift may be as large as the prompt's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

from clawback.config import GateSection
from clawback.feedback.due import LEAST_OF_EACH_SIGN
from clawback.gate import questions
from clawback.gate.guards import AnswerStatistics, RuleObedience, alarms
from clawback.gate.questions import MOST

NORMAL = NormalDist()
EXACT_UP_TO = 20_000
"""Arrangements that are counted one by one; more are approximated by the normal law."""

SHARE = 0.06
"""Of the allowed error, for held-out ratings and for rules each."""
AGAINST = 0.05
"""p-value at which held-out ratings, or a rule, stop a version."""
MORE_OBEDIENT = 0.1
"""By how much the share of answers that keep a rule has to differ."""

WORTH_ASKING = 0.2
"""Of the expected rating, which goes from -1 to 1: ten more of a hundred answers liked. What gains less is not worth a question."""
FEWEST_PAIRS = 5
"""Pairs of answers that differ, under which no test could decide: five of five are one order in 32."""
SURE = 1.28
"""Standard errors above the reader's estimate: the bound holds in nine cases of ten."""
READABLE = 0.08
"""p-value of the permutation test up to which the reader's opinion says where there is nothing to ask (``reward_head.TRUSTED_BELOW``)."""

LARGEST_Z = 3.5
"""No single piece of evidence from a few dozen ratings is more certain than this."""
HAVE_A_TASTE = 0.8
"""Share of people whose ratings are taken to say something, before anything is known about them."""
WITH_A_TASTE = NormalDist(1.7, 1.1)
"""Where ``z`` lies for 32 ratings, one in ten wrong, of simulated people with tastes of one to three parts (docs/gate.md)."""
SHARED = 0.4
"""Correlation of ``z_read`` and ``z_held`` where ratings say nothing: the reward model has seen the held-out ones, too."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the rule looks at."""

    good: int
    bad: int
    """All ratings that stand, by sign; the reader is fitted on these."""
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
    candidate: AnswerStatistics
    live: AnswerStatistics
    base: AnswerStatistics
    enjoyed: AnswerStatistics | None = None
    """The answers that were rated good. None where there are too few of them to compare with."""
    folded: bool = False
    """The candidate holds what the live version's prompt says. ``gain`` and ``better`` are against the middle between the live version with its prompt and
    the base model without: what is asked for is that more than half of what the prompt gives is kept."""
    prompt_kl: float = 0.0
    """How far the prompt takes the live version's answers from the base model without it, nats an answer; 0: not measured."""
    answers: tuple[bool | None, ...] = ()
    """Whether the candidate's answer was preferred, of each question that was answered, in their order; None: neither."""
    questions: int = 0
    """Pairs of answers that can be asked about."""
    alike: float = 0.0
    """Share of the pairs in which both answers read the same."""
    rules: tuple[RuleObedience, ...] = ()
    """How often both versions' answers keep the rules that there are."""
    weak_reader: bool = False
    """The reader reads the ratings weakly, or the owner said something about answers that it does not understand: what a run learned from that, it cannot see."""
    prompts: int = 0
    """Different prompts that were answered;"""
    unlearned: int = 0
    """those of them that no run has drawn on or learned from."""


@dataclass(frozen=True, slots=True)
class Decision:
    accepted: bool
    probability: float
    """That the candidate is better, by what decides; ½ where nothing has been decided."""
    reasons: tuple[str, ...]
    """The one that decided comes first."""
    asks: int = 0
    """Answers after which it can be decided at the earliest; until then it is neither accepted nor rejected."""


def decide(evidence: Evidence, settings: GateSection, *, may_ask: bool = True) -> Decision:
    """Accept, reject or ask, and why. ``may_ask``: False for a version that was decided about before."""
    tripped = alarms(evidence, settings)
    if min(evidence.good, evidence.bad) < LEAST_OF_EACH_SIGN:
        least = LEAST_OF_EACH_SIGN
        why = f"not enough ratings: {evidence.good} good and {evidence.bad} bad, and at least {least} of each are needed"
        return Decision(False, 0.0, (why, *tripped))
    if evidence.folded:
        return _folded(evidence, settings, tripped)
    found = _findings(evidence)
    if tripped:
        return Decision(False, 0.0, (*tripped, *found))
    if settings.confidence <= 0.5:
        why = f"it passed the guards, and [gate] confidence is {settings.confidence:g}: no more than a coin's is asked for"
        return Decision(True, 0.5, (why, *found))
    error = 1 - settings.confidence
    for decision in (_held(evidence, error), _obeys(evidence, error)):
        if decision is not None:
            return _with(decision, found)
    return _with(_by_questions(evidence, settings, error, may_ask), found)


def _with(decision: Decision, findings: Sequence[str]) -> Decision:
    return Decision(decision.accepted, decision.probability, (*decision.reasons, *findings), decision.asks)


# ------------------------------------------------------------------------------------------------- what decides


def _held(evidence: Evidence, error: float) -> Decision | None:
    """By the held-out ratings, where they decide."""
    if not evidence.liked or not evidence.disliked:
        return None
    against = rank_test(evidence.disliked, evidence.liked, 1.0)
    if against <= AGAINST:
        return Decision(False, against, (f"held-out ratings speak against it (p = {against:.3f})",))
    p = rank_test(evidence.liked, evidence.disliked, 1.0)
    if p <= SHARE * error:
        return Decision(True, 1 - p, (f"better by held-out ratings (p = {p:.4f})",))
    return None


def _obeys(evidence: Evidence, error: float) -> Decision | None:
    """By the rules, where they decide."""
    for one in evidence.rules:
        if one.gain <= -MORE_OBEDIENT and one.p_less <= AGAINST:
            return Decision(False, one.p_less, (f"a rule is kept less often: {one}",))
    owners = [one for one in evidence.rules if one.owners]
    for one in owners:
        if one.gain >= MORE_OBEDIENT and one.p_more <= SHARE * error / len(owners):
            return Decision(True, 1 - one.p_more, (f"a rule of yours is kept more often: {one}",))
    return None


def _by_questions(evidence: Evidence, settings: GateSection, error: float, may_ask: bool) -> Decision:
    """By the answers to questions, or by asking them."""
    most = most_questions(evidence, settings)
    alpha = error_left(evidence, error)
    if evidence.answers:
        counts, sure = _counts(evidence.answers), posterior(evidence.answers)
        verdict = questions.verdict(alpha, most, evidence.answers)
        if verdict == "accepted":
            return Decision(True, sure, (counts,))
        if verdict or not may_ask:
            return Decision(False, sure, (f"not shown to be better: {counts}",))
        asks = questions.fewest(alpha, most, evidence.answers)
        return Decision(False, sure, (f"undecided: {counts}", _how(most)), asks)
    if why := indistinct(evidence):
        return Decision(False, 0.5, (why,))
    if settings.more_ratings == 0 or not may_ask:
        return Decision(
            False, 0.5, ("not shown to be better: nobody has compared its answers with the live version's",)
        )
    if not _can_accept(alpha, most):
        return Decision(
            False, 0.5, (f"not shown to be better: {most} questions cannot decide ([gate] more_ratings)",)
        )
    asks = questions.fewest(alpha, most, ())
    return Decision(
        False,
        0.5,
        (f"undecided: say which of two answers is better, {asks} to {most} times", _how(most)),
        asks,
    )


def _counts(answers: questions.Answers) -> str:
    ties = sum(one is None for one in answers)
    count = len(answers) - ties
    if not count:
        return f"in {ties} blind comparison{'' if ties == 1 else 's'} neither answer was better"
    also = f", in {ties} more neither answer was better" if ties else ""
    return f"in {questions.wins(answers)} of {count} blind comparisons its answer was preferred to the live version's{also}"


def _how(most: int) -> str:
    return f"`clawback inbox --rate` asks, {most} questions at most; neither answer says whose it is"


def most_questions(evidence: Evidence, settings: GateSection) -> int:
    """How many questions the test of this version has."""
    return min(evidence.questions, settings.more_ratings, MOST)


def error_left(evidence: Evidence, error: float) -> float:
    """The error that is left for the questions: the others have a share where they could accept at all."""
    held = len(evidence.liked), len(evidence.disliked)
    can = min(held) > 0 and 1 / math.comb(sum(held), held[0]) <= SHARE * error
    return error * (1 - SHARE * (can + any(one.owners for one in evidence.rules)))


def _can_accept(alpha: float, most: int) -> bool:
    return most > 0 and questions.boundary(alpha, most)[-1] <= most


def indistinct(evidence: Evidence) -> str:
    """Why the candidate cannot be told from the live version; "" where it can."""
    if evidence.questions < FEWEST_PAIRS:
        return (
            f"it cannot be told from the live version: {evidence.alike:.0%} of the answers read the same, "
            f"and {evidence.questions} pairs are too few to compare"
        )
    if any(
        abs(one.gain) >= MORE_OBEDIENT and min(one.p_more, one.p_less) <= AGAINST for one in evidence.rules
    ):
        return ""
    most = evidence.gain + SURE * evidence.gain_sd
    if evidence.read_p <= READABLE and most < WORTH_ASKING and not evidence.weak_reader:
        return (
            f"it cannot be told from the live version: its answers are expected to be rated {most:+.2f} higher at most, "
            f"and under {WORTH_ASKING:+.2f} is not worth a question"
        )
    return ""


def posterior(answers: questions.Answers) -> float:
    """Probability that the candidate's answer is preferred more often than not, given the decided answers and a uniform prior: that of at most so many heads
    in one toss more."""
    wins, tosses = questions.wins(answers), sum(one is not None for one in answers) + 1
    return sum(math.comb(tosses, k) for k in range(wins + 1)) / float(2**tosses)


# ------------------------------------------------------------------------------------------------- what is said


def _findings(evidence: Evidence) -> tuple[str, ...]:
    """What was found beside what decides, a sentence each."""
    on = f"{evidence.prompts} prompts, {evidence.unlearned} of them kept out of every run"
    if evidence.unlearned < evidence.prompts:
        on += f"; THE OTHER {evidence.prompts - evidence.unlearned} MAY HAVE BEEN LEARNED FROM, for lack of kept ones"
    said = [f"asked on {on}"] if evidence.prompts else []
    said += [f"rule: {one}" for one in evidence.rules]
    return (*said, _held_out(evidence), _opinion(evidence), _permuted(evidence))


def _held_out(evidence: Evidence) -> str:
    if not evidence.liked or not evidence.disliked:
        return "held-out ratings: too few of each sign to test"
    p = rank_test(evidence.liked, evidence.disliked)
    return (
        f"held-out ratings: log-prob of {len(evidence.liked)} liked turns {mean(evidence.liked):+.3f} nats per token, "
        f"of {len(evidence.disliked)} disliked {mean(evidence.disliked):+.3f} (p = {p:.3f})"
    )


def _opinion(evidence: Evidence) -> str:
    beside = "half of what the prompt gives" if evidence.folded else "the live version"
    word = "" if evidence.folded else ", an opinion that decides nothing"
    return (
        f"fresh answers: predicted rating {evidence.gain:+.2f} ± {evidence.gain_sd:.2f} against {beside}{word}; "
        f"better with probability {shown(evidence.better)} by what the ratings seem to be about"
    )


def _permuted(evidence: Evidence) -> str:
    return (
        f"permutation test: ratings in random order are explained as well in {evidence.read_p:.1%} of cases"
    )


# ------------------------------------------------------------------------------------------------- folded prompts


def _folded(evidence: Evidence, settings: GateSection, tripped: Sequence[str]) -> Decision:
    said = says_something(evidence)
    probability = said * evidence.better + (1 - said) / 2
    found = (_opinion(evidence), _permuted(evidence), _held_out(evidence))
    if tripped:
        return Decision(False, probability, (*tripped, *found))
    sure = f"above half of the prompt's gain with probability {shown(probability)} ({settings.confidence:g} is needed)"
    if probability >= settings.confidence:
        return Decision(True, probability, (sure, *found))
    return Decision(False, probability, (f"not shown to be {sure}", *found))


def says_something(evidence: Evidence) -> float:
    """The probability that the ratings generalise beyond the answers they were given for.

    The permutation p-value gives ``z_read``, the rank test of the held-out shifts ``z_held``; together ``z = (z_read + w z_held) / √(1 + w² + 2ρw)``
    with ``w = √(held back / all)`` (Stouffer; Lipták 1958), ρ for the ratings that they share. With z ~ N(0, 1) for ratings that say nothing and
    N(1.7, 1.1²) for those of a person with a taste there is a likelihood ratio.
    """
    held = len(evidence.liked) + len(evidence.disliked)
    weight = math.sqrt(held / max(evidence.good + evidence.bad, 1))
    z_held = 0.0
    if evidence.liked and evidence.disliked:
        z_held = z_of(rank_test(evidence.liked, evidence.disliked))
    else:
        weight = 0.0
    z = (z_of(evidence.read_p) + weight * z_held) / math.sqrt(1 + weight**2 + 2 * SHARED * weight)
    odds = HAVE_A_TASTE / (1 - HAVE_A_TASTE) * likelihood(z)
    return odds / (1 + odds)


def likelihood(z: float) -> float:
    """The likelihood ratio of ``z``: a person with a taste against ratings that say nothing."""
    z = within(z)
    return WITH_A_TASTE.pdf(z) / NORMAL.pdf(z)


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
