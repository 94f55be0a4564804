"""The gate's measurements: fresh answers of both versions, graded by what the ratings say, and checks that they are still useful."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clawback.gate.fresh import (
    Conversation,
    Fresh,
    VersionPair,
    draw,
    elsewhere,
    question,
    totals,
)
from clawback.gate.guards import AnswerStatistics
from clawback.gate.questions import MOST, Question, ShownAnswers, informative, matched, same
from clawback.gate.rule import Evidence
from clawback.progress import OnProgress
from clawback.records import BETTER, GATE_ANSWERS, Sample

if TYPE_CHECKING:
    # Rolling back and asking what is wrong must work without what training needs: nothing heavy is imported here.
    from clawback.gate.fresh import FreshAnswers
    from clawback.models import Completion
    from clawback.policy import Policy
    from clawback.rewards import views
    from clawback.rewards.reward_ensemble import Contrast, RewardEnsemble
    from clawback.rewards.views import Judge

LEAST_KNOWN = 8
"""Of fewer answers that can be compared nothing is told."""
MOST_LIKED = 48
"""Of the answers that were rated good, the newest are looked at;"""
FEWEST_LIKED = 4
"""and none where there are fewer: some ratings are wrong."""


@dataclass(frozen=True, slots=True)
class GateRatings:
    """What the versions are judged by: all rated samples, and those of them that were kept out of training."""

    samples: Sequence[Sample]
    held: Sequence[Sample]
    judge: Judge | None = None
    """Verdicts on answers, for a reader that was fitted with them."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """How answers are drawn."""

    max_tokens: int | None
    """The longest answer; None goes by the rated ones (``Policy.room``)."""
    seed: int
    count: int = GATE_ANSWERS
    """Of each version; prompts are repeated up to it."""


def measure(
    policy: Policy,
    pair: VersionPair,
    ratings: GateRatings,
    prompts: Sequence[Conversation],
    drawing: Drawing,
    tell: OnProgress = lambda _: None,
) -> tuple[Evidence, ShownAnswers]:
    """Compare two versions.

    The reader that grades fresh answers is fitted on *all* ratings, those held out of training included: it has more data than the candidate was
    trained on, but shares most of it. So its grades choose what the person is asked about, and do not decide.

    Args:
        policy: the base model, or a policy on it; it is left with the candidate's adapter.
        prompts: conversations to answer.
    """
    conversations = [prompts[i % len(prompts)] for i in range(drawing.count)]
    ids = [policy.encode(s).response for s in ratings.samples]
    limits = {"max_tokens": drawing.max_tokens or policy.room(ids), "seed": drawing.seed}
    fresh = draw(policy, pair, ratings.held, conversations, limits, tell)
    rated, liked = looked(policy, ratings.samples, ids), enjoyed(policy, ratings.samples)
    return weigh(fresh, ratings, rated, liked, drawing.seed, pair.folded)


def weigh(
    fresh: Fresh,
    ratings: GateRatings,
    rated: views.Answers,
    liked: AnswerStatistics | None,
    seed: int = 0,
    folded: bool = False,
) -> tuple[Evidence, ShownAnswers]:
    """Weigh the sampled answers by what the ratings say; no language model takes part.

    Args:
        rated: the answers of the samples, as the reward model's input.
        liked: statistics of those that were liked.
        folded: as in ``VersionPair``.
    """
    from clawback.rewards.instructions import wishes

    prompts, candidate, live, base = fresh.prompts, fresh.candidate, fresh.live, fresh.base
    longest = max(map(len, rated.ids), default=0)
    ground = comparable(longest, base.completions)
    if len(ground) < LEAST_KNOWN:
        ground = list(range(len(prompts)))
    ensemble = read(seen(prompts, base, ground), rated, ratings.samples, seed, ratings.judge)
    both = comparable(longest, candidate.completions, live.completions)
    reference = seen(prompts, live, both)
    if folded:
        reference = halfway(reference, seen(prompts, base, ground[: len(both)]))
    contrast = compare(ensemble, seen(prompts, candidate, both), reference, paired=not folded)
    shown, pairs = _shown(ensemble, fresh, both if len(both) >= LEAST_KNOWN else range(len(prompts)))
    liked_shifts, disliked_shifts = _shifts(fresh, ratings, ensemble.outdated)
    count = len(fresh.neutral)
    tokens = sum(len(c.ids) for c in base.completions[:count])
    evidence = Evidence(
        good=sum(s.reward > 0 for s in ratings.samples),
        bad=sum(s.reward < 0 for s in ratings.samples),
        liked=liked_shifts,
        disliked=disliked_shifts,
        read_p=ensemble.trust.p,
        gain=contrast.gain,
        gain_sd=contrast.sd,
        better=contrast.better,
        kl=candidate.kl,
        perplexity_ratio=math.exp(min((sum(base.base[:count]) - sum(fresh.neutral)) / max(tokens, 1), 50.0)),
        candidate=sampled(prompts, candidate.completions, candidate.base, candidate.elsewhere),
        live=sampled(prompts, live.completions, live.base, live.elsewhere),
        base=sampled(prompts, base.completions, base.base, base.elsewhere),
        enjoyed=liked,
        folded=folded,
        prompt_kl=live.kl if folded else 0.0,
        questions=len(shown.questions),
        alike=alike(pairs, shown.candidate, shown.live),
        weak_reader=not ensemble.recognised_remarks
        and (bool(ensemble.weakness) or any(map(wishes, ratings.samples))),
        prompts=len({question(m) for m in prompts}),
    )
    return evidence, shown


def _shown(
    ensemble: RewardEnsemble, fresh: Fresh, places: Sequence[int]
) -> tuple[ShownAnswers, list[Question]]:
    """The answers at these places, and all pairs of them."""
    prompts = [fresh.prompts[i] for i in places]
    sides = fresh.candidate, fresh.live
    grades = [graded(ensemble, seen(fresh.prompts, answers, places)) for answers in sides]
    candidate, live = ([answers.completions[i] for i in places] for answers in sides)
    pairs, chosen = asking(prompts, candidate, live, *grades)
    return ShownAnswers(prompts, candidate, live, chosen), pairs


def _shifts(fresh: Fresh, ratings: GateRatings, outdated: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """By how much liked and disliked samples that were kept out of training became likelier; without the ``outdated`` oldest ratings."""
    current = {s.turn_id for s in sorted(ratings.samples, key=lambda s: s.newest)[outdated:]}
    shifts = [(d, s.reward) for d, s in zip(fresh.shifts, ratings.held, strict=True) if s.turn_id in current]
    liked = tuple(shift for shift, reward in shifts if reward > 0)
    return liked, tuple(shift for shift, reward in shifts if reward < 0)


def texts(answers: Sequence[Completion]) -> list[str]:
    return [one.text for one in answers]


def graded(ensemble: RewardEnsemble, answers: views.Answers) -> list[float]:
    """The reader's grades, by which questions are chosen."""
    from clawback.rewards.reward_ensemble import RULES

    return [float(grade) for grade in ensemble.reward(answers, RULES, 0.0)] if answers.texts else []


def asking(
    prompts: Sequence[Conversation],
    candidate: Sequence[Completion],
    live: Sequence[Completion],
    grades: Sequence[float],
    their_grades: Sequence[float],
) -> tuple[list[Question], list[Question]]:
    """All pairs of answers, and those to ask about, in their order."""
    asked = [question(messages) for messages in prompts]
    pairs = matched(asked, grades, their_grades)
    return pairs, informative(pairs, asked, texts(candidate), texts(live))[:MOST]


def alike(pairs: Sequence[Question], candidate: Sequence[Completion], live: Sequence[Completion]) -> float:
    """The share of the pairs in which both answers read the same."""
    return sum(same(pair, texts(candidate), texts(live)) for pair in pairs) / max(len(pairs), 1)


def halfway(live: views.Answers, base: views.Answers) -> views.Answers:
    """The live version's answers and as many of the base's: their mean is half way between the two. With fewer of the base's it lies nearer to the
    live version, which asks for more."""
    import numpy as np

    return replace(
        live,
        ids=[*live.ids, *base.ids],
        texts=[*live.texts, *base.texts],
        hidden=np.concatenate([live.hidden, base.hidden]),
        prompts=[*live.prompts, *base.prompts],
    )


def comparable(longest: int, *groups: Sequence[Completion]) -> list[int]:
    """Places at which the answers of all groups ended, or were cut off only where they were longer than any that was rated: ``longest`` tokens.

    GateRatings are of whole answers, so what is wanted of an answer's length or its end is not there to be seen in one that was cut off before.
    Cutting both of a pair alike would hide it in both: a version that learned to be short would be shown as long as the other. How many were
    cut off is measured for itself, and guarded (``Sampled.finished``).
    """
    return [
        i
        for i, made in enumerate(zip(*groups, strict=True))
        if all(one.finished or len(one.ids) >= longest for one in made)
    ]


def seen(prompts: Sequence[Conversation], answers: FreshAnswers, places: Sequence[int]) -> views.Answers:
    """The answers as the reward model's input."""
    from clawback.rewards.views import Answers

    chosen = [answers.completions[i] for i in places]
    return Answers(
        [one.answer_ids for one in chosen],
        [one.text for one in chosen],
        answers.hidden[list(places)],
        [question(prompts[i]) for i in places],
    )


def looked(policy: Policy, samples: Sequence[Sample], ids: Sequence[Sequence[int]]) -> views.Answers:
    from clawback.rewards.views import Answers

    states = policy.features([s.messages for s in samples], [list(i) for i in ids]).double().numpy()
    asked = [question(s.messages) for s in samples]
    return Answers(ids, [s.response for s in samples], states, asked, words=policy.word_vectors)


def read(
    base: views.Answers,
    rated: views.Answers,
    samples: Sequence[Sample],
    seed: int = 0,
    judge: Judge | None = None,
) -> RewardEnsemble:
    """The reward model of a run, fitted on all ratings and remarks."""
    from clawback.rewards.rating_likelihood import feedback_kinds, reader_values
    from clawback.rewards.reward_ensemble import Ratings, ReadingSettings, learn

    remarks = [
        (ids, s.response, hint)
        for ids, s in zip(rated.ids, samples, strict=True)
        for hint in s.hints
        if not hint.startswith(BETTER)
    ]
    # As a run does: how answers vary is seen on the rated ones, too, and scores count by rank.
    return learn(
        base.with_others(rated),
        rated,
        Ratings(reader_values(samples), [s.newest for s in samples], feedback_kinds(samples)),
        remarks,
        ReadingSettings(seed=seed),
        judge,
    )


def compare(
    ensemble: RewardEnsemble, candidate: views.Answers, reference: views.Answers, *, paired: bool = True
) -> Contrast:
    """The reward model's comparison of two versions' answers; ``paired``: to the same prompts in the same order."""
    from clawback.rewards.reward_ensemble import RULES, Contrast

    if len(candidate.texts) < LEAST_KNOWN:
        return Contrast(0.0, 1.0, 0.5)  # nothing can be told apart
    return ensemble.contrast(
        ensemble.views.view(candidate), ensemble.views.view(reference), RULES, paired=paired
    )


def sampled(
    prompts: Sequence[Conversation],
    answers: Sequence[Completion],
    base: Sequence[float],
    elsewhere: Sequence[float] | None,
) -> AnswerStatistics:
    """Statistics of answers. ``base``: log-prob of each under the base model, given its own prompt; ``elsewhere``: of the first of them, given another."""
    from clawback.rewards import overoptimization

    count = max(len(answers), 1)
    tokens = max(sum(len(c.ids) for c in answers), 1)
    questions = [question(messages) for messages in prompts]
    return AnswerStatistics(
        finished=sum(c.finished for c in answers) / count,
        empty=sum(not c.text.strip() for c in answers) / count,
        repeating=sum(overoptimization.repeats(c.text) for c in answers) / count,
        length=sum(len(c.answer_ids) for c in answers) / count,
        complete=sum(overoptimization.ends_whole(c.text) for c in answers) / count,
        copied=sum(overoptimization.copies(q, c.text) for q, c in zip(questions, answers, strict=True))
        / count,
        canned=overoptimization.canned(questions, [c.text for c in answers]),
        logprob=sum(base) / tokens,
        relevance=None if elsewhere is None else _relevance(answers, base, elsewhere),
    )


def _relevance(answers: Sequence[Completion], base: Sequence[float], elsewhere: Sequence[float]) -> float:
    """What its prompt adds to the log-prob of an answer, nats a token."""
    count = len(elsewhere)
    return (sum(base[:count]) - sum(elsewhere)) / max(sum(len(c.ids) for c in answers[:count]), 1)


def enjoyed(policy: Policy, samples: Sequence[Sample]) -> AnswerStatistics | None:
    """The newest answers that were rated good, whoever gave them; None where there are too few."""
    from clawback.models import Completion

    good = [s for s in samples if s.reward > 0 and s.response.strip()][-MOST_LIKED:]
    if len(good) < FEWEST_LIKED:
        return None
    ids = [tuple(policy.encode(s).response) for s in good]
    made = [Completion(s.response, i, (), True) for s, i in zip(good, ids, strict=True)]
    asked = [s.messages for s in good]
    return sampled(asked, made, totals(policy, asked, made, base=True), elsewhere(policy, asked, made))
