"""How a run learns from a few dozen ratings: a reward model is fitted, then an instruction is distilled or fresh answers are graded.

A rating says that one answer was good, but not what was good about it. Pushing that answer up or down mostly changes what
it happened to say. So:

0. **Collect what needs no reading** (``targets.py``). Edits, comparisons and, where the person allows it, answers of other models are learned as
   they are, beside all that follows.
1. **Fit.** A reward ensemble is fitted on the features and ratings of the rated answers, and on the remarks about them (``reward_ensemble.py``). If it
   explains the ratings no better than the same ratings permuted, and nothing was said in words, the run learns edits and comparisons alone;
   where there are none, it ends before anything is drawn (``first_reading.py``). Else the base answers the person's prompts a few times over, which shows
   how its answers vary (``features.style_features``), and the ensemble is fitted again on both.
2. **Distil.** The ensemble is turned into candidate sentences (``instructed.py``). The best answers that the base gives under the one that helps are learned
   without it; answers of other models that are graded well take their place; the best of the adapter's own answers follow (``distillation_plan.py``).
3. **Or draw fresh answers.** Models of a few million parameters follow few instructions, and fresh answers cost them little. In rounds: some prompts, several
   fresh answers of the policy to each, graded by the mean of the ensemble less its uncertainty, each against the others of its prompt (GRPO), some optimizer steps.

What limits drift, and so preserves facts (measured in research/studies/2026-11-21-keeping-facts.md):

* The KL to the base is exact and over the whole vocabulary (``lm_head.py``). Where the base is certain, as it is about facts,
  it holds every token in place; where style is decided, it costs the few nats that a change of style has to cost.
* Advantages are divided by one number, the spread of rewards among the base's answers, instead of each group's own. Once
  all answers to a prompt are good, nothing is left to push, where GRPO's own division would blow up what noise remains.
* A fifth of the training examples are answers of the base. Nothing else preserves an answer that the policy no longer gives, and a prompt that
  begins it for the model (a template, a quotation) would get a broken continuation: two fifths of the perplexity that runs added to ordinary text were of that kind
  (research/studies/2026-11-22-what-is-no-longer-said.md).
* The learning rate falls to zero, and the head's token features are everyday tokens: no topic's own words.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from clawback.errors import TrainingError
from clawback.features.style_features import Floats
from clawback.pictures import pictures
from clawback.records import Turn
from clawback.rl import advantages, algorithms
from clawback.rl.algorithms.grpo import Grpo
from clawback.rl.algorithms.kto import Kto
from clawback.rl.algorithms.reinforce import Reinforce
from clawback.rl.algorithms.rpo import Rpo
from clawback.sources import distillation_plan, first_reading
from clawback.sources.distillation_plan import distil, fold
from clawback.sources.distilled import HELD, DistilSettings, nothing
from clawback.sources.first_reading import Inputs
from clawback.sources.fresh_answers import RolloutSettings, RolloutSource
from clawback.sources.graded import Grading, GradingSettings, Prompt
from clawback.sources.instructed import PromptMessages
from clawback.sources.ratings import from_ratings
from clawback.sources.rpo_rounds import RpoRounds
from clawback.sources.rule_grades import rule_grades
from clawback.sources.targets import AnswerTarget, DirectEvidence, may_learn, room_for, with_worse
from clawback.templates import Encoded
from clawback.trainer.examples import Plan

if TYPE_CHECKING:
    from clawback.records import Message, Sample
    from clawback.rewards.reward_ensemble import RewardEnsemble
    from clawback.trainer.run import TrainingRun

NAME = "rollouts"
PASSES = 3
"""Times at most that ratings are learned as they are: 32 in nine passes took the base's knowledge and brought nothing."""


@dataclass(frozen=True)
class _Start:
    """What is known of a run before anything is drawn."""

    inputs: Inputs
    conversations: Mapping[Prompt, Sequence[Message]]
    """Every different prompt once: token ids → messages."""
    grading: Grading | None = None
    """None where no fresh answers can be drawn."""
    reader: RewardEnsemble | None = None
    """What the rated answers tell by themselves (``first_reading.read``)."""
    unreadable: str = ""
    """Why nothing can be read, in a sentence."""


def _start(run: TrainingRun) -> _Start:
    inputs = Inputs.of(run.policy, run.samples, run.recipe)
    if not inputs.every:
        raise TrainingError(
            "Fresh answers cannot be scored without ratings; remarks alone are only used by opd and combined."
        )
    if not inputs.samples:
        return _Start(inputs, {}, unreadable="all rated answers were cut off")
    conversations = _messages_of_prompts(run, inputs.samples, inputs.rated)
    if not conversations:
        return _Start(inputs, conversations)
    grading = _grading(run, inputs.samples, inputs.rated, conversations)
    if run.grader is not None:
        return _Start(inputs, conversations, grading)
    reader = first_reading.read(grading, inputs)
    return _Start(inputs, conversations, grading, reader, first_reading.unreadable(inputs, reader))


def check(run: TrainingRun) -> None:
    """Raises ``NothingRead`` where ``plan`` would: it costs seconds, and nothing is drawn."""
    if first_reading.goes_on(run):
        return
    start = _start(run)
    if start.unreadable and not start.inputs.shown:
        raise first_reading.stop(start.unreadable)


def plan(run: TrainingRun) -> Plan:
    """How to learn from these ratings: by distilling a sentence or by fresh answers, where the reader is trusted, else what needs no reading.

    With the run's ``grader`` nothing is fitted, and there is no fallback. Its ``terms`` count beside head or
    grader: the head is fitted on feedback alone, or it would learn them a second time.

    A recipe whose algorithm is ``rollouts`` or ``distil`` does not fall back; it raises ``TrainingError``
    where all ratings are the same. Raises ``NothingRead`` where ``auto`` has nothing to learn from.
    """
    policy, recipe, start = run.policy, run.recipe, _start(run)
    inputs, shown, grading = start.inputs, start.inputs.shown, start.grading
    if start.unreadable and (not shown or recipe.algorithm != "auto"):
        return _unread(run, inputs.every, start.unreadable)
    if grading is None:
        return _fall_back(run, inputs.every, "fresh answers to pictures are not drawn yet")
    if start.unreadable:
        return learned_directly(grading, shown, run, inputs.every, start.unreadable)
    if start.reader is not None and start.reader.weakness and not inputs.has_words(start.reader):
        directly = ratings_as_they_are(shown, run, inputs.every, start.reader.weakness)
        if directly is not None:
            return directly
    prompts = list(start.conversations)
    run.tell({"phase": "draw", "step": 0, "steps": grading.settings.grounding})
    if run.grader is None:
        ensemble = grading.learn(
            prompts, inputs.rated, inputs.rewards, inputs.remarks, inputs.order, inputs.kinds
        )
        trust = ensemble.trust if start.reader is None else start.reader.trust
        note = f"graded by a reward ensemble: {trust.reason}"
        note += f"; remarks recognised: {ensemble.recognised_remarks}" if ensemble.recognised_remarks else ""
        if not ensemble.recognised_remarks:
            untrusted = not trust.trusted and recipe.algorithm == "auto"
            why = inputs.alike or (trust.reason if untrusted else "")
            conversations = PromptMessages(start.conversations)
            rules = rule_grades(grading, conversations, run, inputs, verdicts=bool(why))
            if rules is not None:
                grading.regrade(rules)
                grading.unread_words = bool(rules.unchecked)
                note += f", and by what was said in words ({' '.join(rules.sentences)!r})"
            elif why:
                return learned_directly(grading, shown, run, inputs.every, why)
        if ensemble.outdated:
            note += f"; {ensemble.outdated} older ratings left out, which ask for something else than the newer ones"
    else:
        grading.ground(prompts)
        note = f"graded by {run.grader.name}"
    baseline = _moved(run, inputs.rewards)
    if recipe.algorithm == distillation_plan.NAME or (
        recipe.algorithm == "auto" and policy.info.bucket != "micro"
    ):
        return _distilled(start, grading, run, note, baseline)
    return _rollouts(grading, prompts, shown, note, baseline)


def _distilled(start: _Start, grading: Grading, run: TrainingRun, note: str, baseline: float) -> Plan:
    """The plan that distils a sentence, a learned prompt or good answers; what needs no reading alone where too few are good.

    A model of a few million parameters follows few sentences, and full rounds cost it a minute: they go further (0.95 against 0.46).
    """
    inputs, folded = start.inputs, run.recipe.conditions.system
    made = (
        fold(grading, PromptMessages(start.conversations, system=True), folded, run)
        if folded
        else distil(grading, PromptMessages(start.conversations), inputs.spoken, run, inputs.shown)
    )
    if made is not None:
        return dataclasses.replace(made, note=f"{made.note}; {note}", baseline=baseline)
    few = "too few of this model's answers are good enough by the ratings"
    if run.recipe.algorithm == distillation_plan.NAME:
        raise TrainingError(f"Nothing can be distilled: {few}. Use `rollouts`, or rate some more.")
    # Rounds of fresh answers would take a model of this size hours, and the run was sized for a sentence.
    if not inputs.shown:
        return _fall_back(run, inputs.every, few)
    return learned_directly(grading, inputs.shown, run, inputs.every, few)


def _rollouts(
    grading: Grading, prompts: list[Prompt], shown: DirectEvidence, note: str, baseline: float
) -> Plan:
    """The plan that grades fresh answers round by round, with edits and comparisons beside them."""
    recipe = grading.recipe
    settings = RolloutSettings.of(recipe)
    algorithm = Grpo(
        kl=settings.exact_kl, clip_low=recipe.clip_low, clip_high=recipe.clip_high, scale_advantages=False
    )
    source = RolloutSource(grading, prompts, settings, with_worse(grading, shown.targets))
    rate = recipe.learning_rate * settings.rate
    note = f"fresh answers, {note}{shown.note}"
    return Plan(algorithm, source, NAME, note, baseline, rate=rate, cover=settings.cover, decay=True)


def learned_directly(
    grading: Grading, shown: DirectEvidence, run: TrainingRun, samples: Sequence[Sample], why: str
) -> Plan:
    """The plan where nothing can be read from the ratings: all of them as they are, or else the demonstrations and comparisons beside them."""
    if not shown or run.recipe.algorithm != "auto":
        return _unread(run, samples, why)
    if directly := ratings_as_they_are(shown, run, samples, why):
        return directly
    if not grading.base:
        run.tell({"phase": "draw", "step": 0, "steps": HELD})
        # Fresh answers only hold the policy in place, at other prompts than those that something is shown to.
        known = {one.better.question for one in shown.targets}
        grading.draw_base(sorted(grading.questions, key=known.__contains__), HELD)
    settings = dataclasses.replace(DistilSettings.of(run.recipe), refine_rounds=0)
    answers = [AnswerTarget(one) for one in shown.answers if len(one.response) <= grading.room]
    rewards = np.array([one.feedback_value for one in samples], dtype=np.float64)
    return Plan(
        Rpo(kl=settings.hold_kl),
        RpoRounds(grading, nothing(with_worse(grading, [*shown.targets, *answers])), settings, tell=run.tell),
        Rpo.name,
        f"what needs no reading alone ({shown}): {why}",
        _moved(run, rewards),
        rate=settings.rate(grading.policy.info.total_parameters),
        decay=True,
    )


def ratings_as_they_are(
    shown: DirectEvidence, run: TrainingRun, samples: Sequence[Sample], why: str
) -> Plan | None:
    """The plan that tells liked and edited answers from disliked ones by KTO. None where no edit and no liked answer of another model that may be learned is
    among the feedback, where edits and comparisons are most of it, or where no rated answer that may be learned is liked or none is disliked."""
    # What is liked of an answer that was cut, or that calls tools, is not how it ends.
    usable = [one for one in samples if one.reward <= 0 or not (one.cut or one.has_calls)]
    ratings = [one for one in usable if any(part.kind in ("rating", "reward") for part in one.parts)]
    base, learn_from = run.policy.info.base, run.recipe.learn_from
    likes = any(one.reward > 0 and may_learn(one, base, learn_from) for one in ratings)
    if not (
        (shown.edits or shown.answers)
        and likes
        and any(one.reward < 0 for one in ratings)
        and len(ratings) > len(shown.targets)
    ):
        return None
    recipe = run.recipe
    most = math.ceil(PASSES * len(usable) / (recipe.batch * recipe.accumulation))
    recipe = dataclasses.replace(recipe, steps=min(recipe.steps, most))
    algorithm = algorithms.make(Kto.name, recipe.settings(Kto.name))
    plan_of_ratings = from_ratings(dataclasses.replace(run, samples=tuple(usable), recipe=recipe), algorithm)
    note = f"{len(ratings)} ratings as they are{shown.note}: {why}"
    return dataclasses.replace(plan_of_ratings, note="; ".join(filter(None, [note, plan_of_ratings.note])))


def _unread(run: TrainingRun, samples: Sequence[Sample], why: str) -> Plan:
    """The plan where nothing can be read and nothing else is there: ``reinforce``, where the run goes on at all. Raises ``NothingRead``."""
    if not first_reading.goes_on(run):
        raise first_reading.stop(why)
    return _fall_back(run, samples, why)


def _fall_back(run: TrainingRun, samples: Sequence[Sample], why: str) -> Plan:
    recipe = run.recipe
    if recipe.algorithm in (NAME, distillation_plan.NAME):
        raise TrainingError(
            f"{recipe.algorithm} needs fresh answers that can be graded, and has none: {why}. Train with reinforce, or rate some more."
        )
    algorithm = Reinforce(kl=recipe.kl, ema_decay=recipe.ema_decay, importance_cap=recipe.importance_cap)
    try:
        plan = from_ratings(dataclasses.replace(run, samples=tuple(samples)), algorithm)
    except TrainingError as error:
        raise TrainingError(f"Nothing can be learned from these ratings: {why}. {error}") from None
    note = f"reinforce on the ratings themselves: {why}{f'; {plan.note}' if plan.note else ''}"
    return dataclasses.replace(plan, note=note)


def _moved(run: TrainingRun, rewards: Floats) -> float:
    """The moving average of ratings after this run."""
    return advantages.ema(torch.tensor(rewards), run.baseline, run.recipe.ema_decay)[1]


def _grading(
    run: TrainingRun,
    samples: Sequence[Sample],
    rated: Sequence[Encoded],
    prompts: Mapping[Prompt, Sequence[Message]],
) -> Grading:
    """What draws and grades. How long an answer may be follows from rated answers that are the policy's own; without any, from what the base draws."""
    room, own = room_for(run.policy, samples, rated)
    # Token ids of a prompt → what the person said in it, for a grader that reads text.
    questions = {prompt: Turn("", tuple(messages), "").prompt for prompt, messages in prompts.items()}
    grading = Grading(run, GradingSettings.of(run.recipe), room, questions)
    grading.follows_base = not own
    return grading


def _messages_of_prompts(
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
