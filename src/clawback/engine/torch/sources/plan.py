"""How a run learns from a few dozen ratings: fit a reward model, find an instruction and distil it; or grade fresh answers.

A rating says that one answer was good, but not what was good about it. Pushing that answer up or down mostly changes what
it happened to say. So:

1. **Fit.** The base answers the person's prompts a few times over. That shows how its answers vary (``rewards.features``). A reward ensemble is
   fitted on the features and ratings of the rated answers, and on the remarks about them (``reward_ensemble.py``). If it
   explains the ratings no better than the same ratings permuted, and no remark was understood, the run falls back to ``reinforce`` on
   the ratings themselves, and says so.
2. **Instruct.** What the ensemble has learned is turned into candidate sentences, and answers drawn under each show which of them helps (``instructed.py``).
3. **Distil.** Answers drawn under the best sentence and filtered by the ensemble are what the adapter learns, after the prompt without the
   sentence (``distilled.py``): one pass, little drift. Then the best of its own answers, as long as those improve (``rpo_rounds.py``).
   Where no sentence surely helps (a taste that is hard to put in words), the best of answers under several sentences and none are distilled.
4. **Or draw fresh answers.** Models of a few million parameters follow few instructions, and fresh answers cost them little. In rounds: some prompts, several
   fresh answers of the policy to each, graded by the mean of the ensemble less its uncertainty, each against the others of its prompt (GRPO), some optimizer steps.

What limits drift, and so preserves facts (measured in docs/studies/0001-keeping-facts.md):

* The KL to the base is exact and over the whole vocabulary (``exact_kl.py``). Where the base is certain, as it is about facts,
  it holds every token in place; where style is decided, it costs the few nats that a change of style has to cost.
* Advantages are divided by one number, the spread of rewards among the base's answers, instead of each group's own. Once
  all answers to a prompt are good, nothing is left to push, where GRPO's own division would blow up what noise remains.
* A fifth of the training examples are answers of the base. Nothing else preserves an answer that the policy no longer gives, and a prompt that
  begins it for the model (a template, a quotation) would get a broken continuation: two fifths of the perplexity that runs added to ordinary text were of that kind
  (docs/studies/0003-what-is-no-longer-said.md).
* The learning rate falls to zero, and the head's token features are everyday tokens: no topic's own words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from clawback.engine.torch.models.chat import Encoded
from clawback.engine.torch.sources.distilled import DistilSettings, gathered, with_base_answers
from clawback.engine.torch.sources.examples import Plan
from clawback.engine.torch.sources.graded import Grading, GradingSettings, Prompt
from clawback.engine.torch.sources.instructed import Arm, Conversations, follows, search
from clawback.engine.torch.sources.ratings import from_ratings
from clawback.engine.torch.sources.rollouts import Rollouts, RolloutSettings
from clawback.engine.torch.sources.rpo_rounds import RpoRounds
from clawback.errors import TrainingError
from clawback.pictures import pictures
from clawback.records import BETTER, Turn
from clawback.rewards.instructions import Instruction, candidates
from clawback.rl import advantages
from clawback.rl.algorithms.grpo import Grpo
from clawback.rl.algorithms.reinforce import Reinforce
from clawback.rl.algorithms.rpo import Rpo

if TYPE_CHECKING:
    from clawback.engine.run import TrainingRun
    from clawback.records import Message, Sample

NAME = "rollouts"
DISTIL = "distil"
SYSTEM = "system"
"""Name in a recipe's ``extra`` of a learned prompt that the run folds into the adapter."""


def plan(run: TrainingRun) -> Plan:
    """How to learn from these ratings: by distilling a sentence or by fresh answers, where the reward head is trusted, else by ``reinforce``.

    With the run's ``grader`` nothing is fitted, and there is no fallback. Its ``terms`` count beside head or
    grader: the head is fitted on feedback alone, or it would learn them a second time.

    A recipe whose algorithm is ``rollouts`` or ``distil`` does not fall back; it raises ``TrainingError``
    where all ratings are the same.
    """
    policy, recipe, grader = run.policy, run.recipe, run.grader
    words = [(one, hint) for one in run.samples for hint in one.hints if not hint.startswith(BETTER)]
    every = [one for one in run.samples if one.rated]
    if not every:
        raise TrainingError(
            "Fresh answers cannot be scored without ratings; remarks alone are only used by opd and combined."
        )
    samples = [one for one in every if not one.cut]  # what grades complete answers has seen complete ones
    if not samples:
        fallback = Reinforce(kl=recipe.kl, ema_decay=recipe.ema_decay, importance_cap=recipe.importance_cap)
        return _fall_back(run, every, fallback, "all rated answers were cut off")
    rated = [policy.encode(one) for one in samples]
    rewards = np.array([one.said for one in samples], dtype=np.float64)
    fallback = Reinforce(kl=recipe.kl, ema_decay=recipe.ema_decay, importance_cap=recipe.importance_cap)
    remarks = [(policy.encode(one), hint) for one, hint in words]
    alike = ""
    if np.ptp(rewards) == 0 and grader is None:
        alike = f"all {len(rewards)} ratings are {'good' if rewards[0] > 0 else 'bad'}, so there is nothing to compare"
    if alike and not remarks:
        return _fall_back(run, every, fallback, alike)

    asked = _asked(run, samples, rated)
    if not asked:
        return _fall_back(run, every, fallback, "fresh answers to pictures are not drawn yet")
    grading = Grading(
        run, GradingSettings.of(recipe), policy.room([one.response for one in rated]), _questions(asked)
    )
    run.tell({"phase": "draw", "step": 0, "steps": grading.settings.grounding})
    if grader is None:
        order = [sample.newest for sample in samples]
        ensemble = grading.learn(list(asked), rated, rewards, remarks, order)
        trust = ensemble.trust
        if not ensemble.heard and (alike or (not trust.trusted and recipe.algorithm == "auto")):
            return _fall_back(run, every, fallback, alike or trust.reason)
        note = f"graded by a reward ensemble: {trust.reason}"
        note += f"; remarks recognised: {ensemble.heard}" if ensemble.heard else ""
        if ensemble.outdated:
            note += f"; {ensemble.outdated} older ratings left out, which ask for something else than the newer ones"
    else:
        grading.ground(list(asked))
        note = f"graded by {grader.name}"
    _, moved = advantages.ema(torch.tensor(rewards), run.baseline, recipe.ema_decay)
    if recipe.algorithm == DISTIL or (recipe.algorithm == "auto" and policy.info.bucket != "micro"):
        # A model of a few million parameters follows few sentences, and full rounds cost it a minute: they go further (0.95 against 0.46).
        folded = str(recipe.extra.get(SYSTEM, ""))
        made = (
            fold(grading, Conversations(asked, system=True), folded, run)
            if folded
            else distil(
                grading,
                Conversations(asked),
                [hint for one, hint in words if hint not in one.foreign_hints],
                run,
            )
        )
        if made is not None:
            return dataclasses.replace(made, note=f"{made.note}; {note}", baseline=moved)
        few = "too few of this model's answers are good enough by the ratings"
        if recipe.algorithm == DISTIL:
            raise TrainingError(f"Nothing can be distilled: {few}. Use `rollouts`, or rate some more.")
        # Rounds of fresh answers would take a model of this size hours, and the run was sized for a sentence.
        return _fall_back(run, every, fallback, few)
    settings = RolloutSettings.of(recipe)
    algorithm = Grpo(
        kl=settings.exact_kl, clip_low=recipe.clip_low, clip_high=recipe.clip_high, scale_advantages=False
    )
    rate = recipe.learning_rate * settings.rate
    source = Rollouts(grading, list(asked), settings)
    return Plan(
        algorithm, source, NAME, f"fresh answers, {note}", moved, rate=rate, cover=settings.cover, decay=True
    )


def distil(
    grading: Grading, conversations: Conversations, remarks: Sequence[str], run: TrainingRun
) -> Plan | None:
    """The plan that distils answers drawn under the best sentence, or where none surely helps under several; None where too few are good."""
    settings = DistilSettings.of(run.recipe)
    whole = [one for one in grading.base_graded if one.whole] or grading.base_graded
    answered: dict[Prompt, list[float]] = {one.asked: [] for one in grading.base}
    for one in whole:
        answered[one.encoded.asked].append(one.reward)
    base = {prompt: float(np.mean(values or [grading.typical])) for prompt, values in answered.items()}
    arms = search(
        grading,
        conversations,
        base,
        candidates(
            grading.texts([one.encoded for one in whole]),
            np.array([one.reward for one in whole]),
            remarks,
            settings.sentences,
        ),
        first=settings.first,
        most=settings.most,
        seed=grading.seed,
        tell=run.tell,
    )
    sure = bool(arms) and follows(arms[0], grading.spread)
    if not sure:
        # The base without any sentence is one of them.
        arms = [Arm(Instruction("", 0.0), list(grading.base_graded)), *arms]
    good = gathered(grading, conversations, arms, base, settings, run.tell, told=sure)
    if len(good.answers) < settings.distil_batch:
        return None
    best = arms[0] if sure else max(arms, key=lambda arm: arm.gain)
    told = bool(best.instruction.text) and (sure or follows(best, grading.spread))
    why = "drawn under several sentences, for no sentence surely helps"
    if told:
        why = (
            f"drawn under {'' if sure else 'several sentences, most of all '}{best.instruction.text!r} "
            f"(expected rating {best.gain:+.2f} ± {best.error:.2f} against the base)"
        )
    return Plan(
        Rpo(kl=settings.hold_kl),
        RpoRounds(
            grading,
            with_base_answers(grading, good),
            settings,
            list(conversations.messages),
            run.tell,
            under=partial(conversations.under, grading, sentence=best.instruction.text) if told else None,
        ),
        DISTIL,
        f"{len(good.answers)} answers {why}",
        rate=settings.rate(grading.policy.info.total_parameters),
        decay=True,
        instruction=best.instruction.text if told else "",
    )


def fold(grading: Grading, conversations: Conversations, prompt: str, run: TrainingRun) -> Plan | None:
    """The plan that folds a learned prompt into the adapter: answers drawn under it, the best to each question, learned without it. None where too few
    are good."""
    settings = DistilSettings.of(run.recipe)
    arm = Arm(Instruction(prompt, 0.0))
    good = gathered(grading, conversations, [arm], {}, settings, run.tell)
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
        DISTIL,
        f"{len(good.answers)} answers drawn under the learned prompt, which is folded into the adapter",
        # What is imitated, and preferred to nothing, takes twice the rate.
        rate=2 * settings.rate(grading.policy.info.total_parameters),
        decay=True,
        instruction=prompt,
    )


def _fall_back(run: TrainingRun, samples: Sequence[Sample], algorithm: Reinforce, why: str) -> Plan:
    if run.recipe.algorithm in (NAME, DISTIL):
        raise TrainingError(
            f"{run.recipe.algorithm} needs fresh answers that can be graded, and has none: {why}. Train with reinforce, or rate some more."
        )
    made = from_ratings(dataclasses.replace(run, samples=samples), algorithm)
    return dataclasses.replace(made, note=f"reinforce on the ratings themselves: {why}")


def _asked(
    run: TrainingRun, samples: Sequence[Sample], rated: Sequence[Encoded]
) -> dict[Prompt, Sequence[Message]]:
    """Every different prompt once, rated ones first: token ids → messages. None with pictures: the sampler of a run reads text."""
    policy = run.policy
    found: dict[Prompt, Sequence[Message]] = {}
    for one, sample in zip(rated, samples, strict=True):
        if not one.pixels:
            found.setdefault(one.prompt, sample.messages)
    for messages in run.prompts:
        if not (policy.chat.eyes and any(pictures(message.get("content")) for message in messages)):
            found.setdefault(tuple(policy.chat.prompt(messages, policy.max_prompt)), messages)
    found.pop((), None)
    return found


def _questions(asked: Mapping[Prompt, Sequence[Message]]) -> dict[Prompt, str]:
    """Token ids of a prompt → what the person said in it, for a grader that reads text."""
    return {prompt: Turn("", tuple(messages), "").prompt for prompt, messages in asked.items()}
