"""The plan of a run that distils: which answers the adapter learns, and which sentence the base is told as its teacher.

Answers come from one of three places. Where enough answers of other models may be learned and are graded well, they are learned, and no sentence is
looked for. Where a sentence surely helps (``instructed.py``), answers drawn under it and filtered by the ensemble are learned after the prompt without it
(``distilled.py``). Where none does, and the ratings speak for words, the base teaches these (``word_guide.py``). Else (a taste that is hard to put in words) the best of answers under several sentences and none are learned. The best of
the policy's own answers follow, as long as those improve (``rpo_rounds.py``).

Where the settings ask for it, the base under the sentence teaches the adapter its whole distribution in place of all that (``guided.py``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from clawback.rewards.instructions import Instruction, candidates
from clawback.rl.algorithms.rpo import Rpo
from clawback.sources.distilled import (
    BASE,
    Chosen,
    DistilSettings,
    anchors,
    best_of,
    chosen,
    gathered,
    nothing,
    of_other_models,
    with_base_answers,
)
from clawback.sources.graded import Grading, Prompt
from clawback.sources.instructed import Arm, PromptMessages, follows, search
from clawback.sources.rpo_rounds import RpoRounds
from clawback.sources.targets import AnswerTarget, DirectEvidence, with_worse
from clawback.trainer.examples import Plan, SourceSequence

if TYPE_CHECKING:
    from clawback.sources.graded import Graded
    from clawback.sources.guided import Guide
    from clawback.sources.word_guide import WordGuide
    from clawback.trainer.run import TrainingRun

NAME = "distil"


def distil(
    grading: Grading,
    conversations: PromptMessages,
    remarks: Sequence[str],
    run: TrainingRun,
    shown: DirectEvidence,
) -> Plan | None:
    """The plan that distils good answers: of other models where enough may be learned, else drawn under the best sentence, or under several where none
    surely helps. None: too few are good."""
    settings = DistilSettings.of(run.recipe)
    others = of_other_models(grading, run, shown, conversations.messages)
    targets = with_worse(grading, shown.targets)
    good = best_of(chosen(grading, others, settings), settings.other_answers)
    if 2 * len(good.answers) >= settings.other_answers:
        rounds = dataclasses.replace(
            settings, refine_rounds=min(settings.refine_rounds, settings.other_rounds)
        )
        note = f"{len(good.answers)} answers of other models, chosen from {len(others)}{shown.note}"
        return _rpo(grading, dataclasses.replace(good, targets=targets), rounds, conversations, note)
    arms, sure = _arms(grading, conversations, remarks, settings, run)
    best, told = arms[0], sure
    if not sure and (words := _words(grading, settings, run)):
        note = f"the words {', '.join(map(repr, words.words))} and their like teach at {words.strength:g} times their strength{shown.note}"
        return _taught(grading, words, [], targets, list(conversations.messages), note)
    guide = _guide(grading, conversations, best, settings) if sure else None
    if guide is None:
        good = gathered(grading, conversations, arms, _base_rewards(grading), progress=sure, others=others)
        helpful = [arm for arm in arms if arm.instruction.text and follows(arm, grading.spread)]
        if helpful and not sure:
            best = max(helpful, key=lambda arm: arm.gain)
            guide = _guide(grading, conversations, best, settings)
        told = sure or bool(helpful)
    gain = f"{best.instruction.text!r} (expected rating {best.gain:+.2f} ± {best.error:.2f} against the base)"
    if guide is not None:
        note = f"{gain} teaches at {guide.strength:g} times its strength{shown.note}"
        return _taught(grading, guide, best.answers, targets, list(conversations.messages), note)
    if len(good.answers) < settings.distil_batch:
        return None
    why = "drawn under several sentences, for no sentence surely helps"
    if told:
        why = f"drawn under {'' if sure else 'several sentences, most of all '}{gain}"
    note = f"{len(good.answers)} answers {why}{shown.note}"
    good = dataclasses.replace(good, targets=targets)
    return _rpo(grading, good, settings, conversations, note, best.instruction.text if told else "")


def fold(grading: Grading, conversations: PromptMessages, prompt: str, run: TrainingRun) -> Plan | None:
    """The plan that folds a learned prompt into the adapter: answers drawn under it, the best to each question, learned without it. None where too few
    are good."""
    settings = DistilSettings.of(run.recipe)
    arm = Arm(Instruction(prompt, 0.0))
    good = gathered(grading, conversations, [arm], {})
    if len(good.answers) < settings.distil_batch:
        return None
    return Plan(
        Rpo(kl=settings.hold_kl),
        RpoRounds(
            grading,
            dataclasses.replace(good, worst={}),
            dataclasses.replace(settings, refine_rounds=0),
            tell=run.tell,
        ),
        NAME,
        f"{len(good.answers)} answers drawn under the learned prompt, which is folded into the adapter",
        # What is imitated, and preferred to nothing, takes twice the rate.
        rate=2 * settings.rate(grading.policy.info.total_parameters),
        decay=True,
        instruction=prompt,
    )


def _arms(
    grading: Grading,
    conversations: PromptMessages,
    remarks: Sequence[str],
    settings: DistilSettings,
    run: TrainingRun,
) -> tuple[list[Arm], bool]:
    """The sentences that were tried, the best first, and whether that one surely helps; else the base without any is the first.

    Of somebody whose words the reader does not know, and whose ratings show it nothing, their own sentences alone are tried: by such grades a sentence
    of the list wins by chance.
    """
    whole = [one for one in grading.base_graded if one.complete] or grading.base_graded
    tried = candidates(
        grading.texts([one.encoded for one in whole]),
        np.array([one.reward for one in whole]),
        remarks,
        settings.sentences,
        run.recipe.conditions.rules.sentences,
    )
    reader = grading.ensemble
    if grading.unread_words and reader is not None and not reader.trust.trusted:
        tried = [one for one in tried if one.by_owner] or tried
    arms = search(
        grading,
        conversations,
        _base_rewards(grading),
        tried,
        first=settings.first,
        most=settings.most,
    )
    if arms and follows(arms[0], grading.spread):
        return arms, True
    return [Arm(Instruction("", 0.0), list(grading.base_graded)), *arms], False


def _base_rewards(grading: Grading) -> dict[Prompt, float]:
    """Mean reward of the base's own answers, by prompt."""
    answered: dict[Prompt, list[float]] = {one.question: [] for one in grading.base}
    for one in [one for one in grading.base_graded if one.complete] or grading.base_graded:
        answered[one.encoded.question].append(one.reward)
    return {prompt: float(np.mean(values or [grading.typical])) for prompt, values in answered.items()}


def _guide(
    grading: Grading, conversations: PromptMessages, arm: Arm, settings: DistilSettings
) -> Guide | None:
    """The base under the sentence as a teacher; None where it is not wanted, or its head is unknown."""
    if not settings.guided_rounds:
        return None
    from clawback.sources.guided import SentenceGuide, strongest

    guide = SentenceGuide(1.0, partial(conversations.under, grading), arm.instruction.text)
    return strongest(guide, grading, anchors(grading)[1][:BASE], settings.most_forgotten)


def _words(grading: Grading, settings: DistilSettings, run: TrainingRun) -> WordGuide | None:
    """The words that the ratings speak for as a teacher; None where that is not wanted, or they speak for none."""
    if settings.word_rounds < 0 or grading.by_rules is not None:
        return None
    from clawback.sources.guided import strongest
    from clawback.sources.word_guide import word_guide

    guide = word_guide(grading, [grading.policy.encode(one) for one in run.samples])
    return guide and strongest(guide, grading, anchors(grading)[1][:BASE], settings.most_forgotten)


def _taught(
    grading: Grading,
    guide: Guide,
    answers: Sequence[Graded],
    targets: Sequence[AnswerTarget],
    prompts: Sequence[Prompt],
    note: str,
) -> Plan:
    """The plan that learns from the guide, along ``answers`` and the base's answers first, then the targets: pairs in the same steps would drown it, for
    their gradient is by far the larger."""
    from clawback.sources.guided import GuidedRounds

    settings = DistilSettings.of(grading.recipe)
    complete = [one.encoded for one in [*answers, *grading.base_graded] if one.complete]
    rounds = GuidedRounds(grading, guide, complete[: settings.distil_prompts], settings, prompts)
    direct = RpoRounds(grading, nothing(targets), dataclasses.replace(settings, refine_rounds=0))
    return Plan(
        Rpo(kl=settings.hold_kl),
        SourceSequence([rounds, direct]) if targets else rounds,
        NAME,
        note,
        rate=settings.rate(grading.policy.info.total_parameters),
        # Both directions of the divergence count: one alone pulls up too little of what the policy hardly ever says.
        cover=1.0,
        decay=True,
        instruction=guide.instruction,
    )


def _rpo(
    grading: Grading,
    good: Chosen,
    settings: DistilSettings,
    conversations: PromptMessages,
    note: str,
    sentence: str = "",
) -> Plan:
    """The plan that learns good answers and targets, then rounds of the policy's own answers."""
    source = RpoRounds(
        grading,
        with_base_answers(grading, good),
        settings,
        list(conversations.messages),
        grading.tell,
        under=partial(conversations.under, grading, sentence=sentence) if sentence else None,
    )
    rate = settings.rate(grading.policy.info.total_parameters)
    return Plan(Rpo(kl=settings.hold_kl), source, NAME, note, rate=rate, decay=True, instruction=sentence)
