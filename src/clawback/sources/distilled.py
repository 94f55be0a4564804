"""Context distillation: what the base answers under an instruction, the policy learns to answer without it.

Several answers to a prompt are drawn under the instruction (or, where none surely helps, under several), and the
base's own are added. The best-graded one that is no stub is chosen if it ended, does not repeat itself, beats what
the base is expected to say, and is still about the question. The policy learns it after the prompt *without* the
instruction, preferred to how the worst answer to that prompt begins (``rl.algorithms.rpo``), and then the best of its
own answers (``rpo_rounds.py``). Base answers with zero reward, which only carry the KL penalty, are mixed in to keep
the policy from moving elsewhere. Edits and comparisons (``targets.py``) are learned beside them, in the same steps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from clawback.policy import scale, within
from clawback.sources.graded import Graded, Grading, Prompt, Seen
from clawback.sources.instructed import Arm, PromptMessages, draw_under, follows, picked, relevance
from clawback.sources.targets import AnswerTarget, DirectEvidence, may_learn, opening
from clawback.templates import Encoded
from clawback.trainer.examples import TrainingExample
from clawback.trainer.recipe import FULL_RATE

if TYPE_CHECKING:
    from clawback.trainer.recipe import Recipe
    from clawback.trainer.run import TrainingRun


@dataclass(frozen=True)
class Chosen:
    """Answers to learn from, one to a prompt, and what the base makes of them."""

    answers: list[Graded]
    seen: Seen
    worst: Mapping[Prompt, Graded] = field(default_factory=dict)
    """The worst answer to each prompt, for the others to be preferred to."""
    targets: Sequence[AnswerTarget] = ()
    """Feedback that is learned as it is, each with a worse answer."""

    def of(self, places: Sequence[int]) -> Chosen:
        """A subset of the answers."""
        return replace(self, answers=[self.answers[i] for i in places], seen=self.seen.of(places))


def nothing(targets: Sequence[AnswerTarget] = ()) -> Chosen:
    """No answers, and targets alone."""
    return Chosen([], Seen([], [], np.zeros((0, 0))), targets=targets)


BASE = 32
"""Answers of the base that show how relevant its answers are, or how likely they still are."""
MARGIN = 0.85
"""Of the drift that the gate allows: it measures again, other answers to other prompts, and by chance finds more."""
HELD = 32
"""Answers of the base where nothing is read: half of them hold the policy in place, half show what it forgets."""
CHUNK = 32
"""Prompts that are drawn together, so that progress can be told."""


@dataclass(frozen=True)
class DistilSettings:
    """Settings; any of them can be set in ``training.options.distilled``."""

    sentences: int = 7
    """Instructions that are tried; 0: none, the run goes on with rollouts."""
    first: int = 6
    """Prompts that each is tried on at first."""
    most: int = 24
    """Prompts in all that the last ones are tried on."""
    answers: int = 2
    """Answers drawn to each prompt under the sentence that won."""
    untold: int = 3
    """The same, under several sentences, where none surely helps."""
    distil_prompts: int = 96
    distil_batch: int = 6
    """Answers an optimizer step."""
    passes: int = 1
    least_steps: int = 12
    """Optimizer steps that the first answers are learned for, where they are few."""
    refine_rounds: int = 2
    """Rounds after that, of the best of the policy's own answers."""
    refine_prompts: int = 48
    """Prompts of such a round."""
    refine_samples: int = 3
    """Answers to each of them."""
    refine_told: int = 2
    """Of these, drawn under the sentence that won, where one did."""
    guided_rounds: int = 0
    """Rounds in which the base that is told the sentence teaches along the policy's own answers, one to each of ``refine_prompts``; 0: no such teacher,
    answers drawn under the sentence are learned."""
    word_rounds: int = 2
    """The same, where no sentence surely helps and the words that the ratings speak for teach (``word_guide.py``); -1: they do not."""
    most_forgotten: float = 0.17
    """Nats a token by which the base's own answers may have become less likely: before a round, and in the end. The gate allows 0.22 (25 %) of other answers."""
    distil_rate: float = 1e-3
    """Learning rate at 135 million parameters; it falls with the fourth root of the size."""
    hold_kl: float = 0.1
    """Weight of the KL to the base on its own answers."""
    hold_share: float = 0.25
    """Answers of the base for each that is learned, as long as there are that many."""
    better: float = 0.5
    """Standard deviations of the base's rewards by which an answer has to be better than its mean, and than one that it is preferred to."""
    worse_tokens: int = 64
    """So much of an answer is what another is preferred to: how it begins decides how it goes on. One that breaks down does so later, and is taken as a whole."""
    target_passes: int = 3
    """How often each edit and comparison is learned before the rounds, as long as they are few; in each round, once."""
    other_answers: int = 64
    """Answers of other models that are learned at most; with half as many nothing is drawn under a sentence."""
    other_rounds: int = 1
    """Rounds after such answers."""
    least_relevance: float = 0.05
    """Quantile of the base's own relevance below which an answer is not about its prompt."""

    @classmethod
    def of(cls, recipe: Recipe) -> DistilSettings:
        size, full = recipe.size, cls()
        sized = {
            "first": max(4, round(full.first * size)),
            "most": max(8, round(full.most * size)),
            "answers": full.answers if size >= 0.5 else 1,
            "untold": full.untold if size >= 0.5 else 2,
            "distil_prompts": max(24, round(full.distil_prompts * size)),
            "refine_rounds": full.refine_rounds if size >= 0.5 else 0,
            "refine_prompts": max(16, round(full.refine_prompts * size)),
            "other_answers": max(24, round(full.other_answers * size)),
            "distil_rate": full.distil_rate * (FULL_RATE if recipe.full else 1.0),
        }
        settings = recipe.part("distilled")
        given = {f.name: settings[f.name] for f in dataclasses.fields(cls) if f.name in settings}
        return cls(**{**sized, **given})

    @property
    def trials(self) -> int:
        """Answers that are drawn to choose among the sentences, about: half of the sentences go each time that the prompts double."""
        trials, done, size, racing = 0, 0, self.first, self.sentences
        while racing and done < self.most:
            some = min(size, self.most - done)
            trials, done, size, racing = trials + racing * some, done + some, 2 * size, max(1, racing // 2)
        return trials

    def rounds(self, prompts: int) -> int:
        """Rounds on so many prompts: as many as it takes to ask each of them, for what is asked twice is learned by heart."""
        return min(self.refine_rounds, -(-prompts // self.refine_prompts))

    def least(self, grading: Grading) -> float:
        """Predicted rating above which an answer is worth learning."""
        return grading.typical + self.better * grading.spread

    def repeats(self, targets: int) -> int:
        """How often each of so many targets is learned before the rounds: less often where one pass of them makes the fewest steps by itself."""
        return max(1, min(self.target_passes, self.least_steps * self.distil_batch // max(1, targets)))

    def opening(self, worse: Graded) -> Encoded:
        """What another answer is preferred to of one that is worse."""
        one = worse.encoded
        return replace(one, response=one.response[: self.worse_tokens]) if worse.complete else one

    def rate(self, parameters: int) -> float:
        return self.distil_rate * math.pow(135e6 / max(parameters, 1e6), 0.25)


def gathered(
    grading: Grading,
    conversations: PromptMessages,
    arms: Sequence[Arm],
    base: Mapping[Prompt, float],
    *,
    progress: bool = True,
    others: Sequence[Graded] = (),
) -> Chosen:
    """Fresh answers to the person's prompts, beside all that was drawn before; the best for each prompt.

    Args:
        arms: sentences, with what was drawn under each; more is added.
        base: mean reward of the base's own answers, by prompt, as far as it has answered.
        others: answers that somebody else gave, to choose from as well.
        progress: all are drawn under the first sentence. Else each sentence is taken the more often, the more of its answers are worth learning.
    """
    settings = DistilSettings.of(grading.recipe)
    each = settings.answers if progress else 1
    chance = np.random.default_rng(grading.seed)
    prompts = list(conversations.messages)[-settings.distil_prompts :]
    usual = dict.fromkeys(prompts, grading.typical) | dict(base)
    for start in range(0, len(prompts), CHUNK):
        grading.tell(
            {"phase": "draw", "step": start, "steps": len(prompts), "sentence": arms[0].instruction.text}
        )
        some = prompts[start : start + CHUNK]
        if progress:
            taken = [(prompt, arms[0]) for prompt in some]
        else:
            least, count = settings.least(grading), settings.untold * len(some)
            often = [prompt for prompt in some for _ in range(settings.untold)]
            taken = list(zip(often, picked(arms, least, count, chance), strict=True))
        asked = [(prompt, arm.instruction.text) for prompt, arm in taken]
        answers = draw_under(grading, conversations, asked, each, grading.generator(start, 8))
        for place, (_, arm) in enumerate(taken):
            arm.add(answers[place * each : (place + 1) * each], usual)
        if (
            not progress
            and settings.guided_rounds
            and any(follows(a, grading.spread) for a in arms if a.instruction.text)
        ):
            break  # a sentence that helps teaches more than what else would be drawn
    made = [*(one for arm in arms for one in arm.answers), *grading.base_graded]
    rejected = grading.base_graded if grading.unread_words else made
    return replace(chosen(grading, [*made, *others], settings), worst=worst(grading, rejected))


def of_other_models(
    grading: Grading, run: TrainingRun, shown: DirectEvidence, prompts: Mapping[Prompt, object]
) -> list[Graded]:
    """Answers of other models that may be learned, graded: liked ones, and captured ones that nobody rated. None longer than what the policy may write."""
    rated = {sample.turn_id for sample in run.samples}
    policy = grading.policy
    fitting = [*shown.answers]
    for sample in run.captured:
        learnable = may_learn(sample, policy.info.base, run.recipe.learn_from)
        if sample.turn_id not in rated and learnable and sample.ends:
            fitting.append(policy.encode(sample))
    fitting = [one for one in fitting if one.question in prompts and 0 < len(one.response) <= grading.room]
    return grading.judged(fitting, [True] * len(fitting)) if fitting else []


def best_of(good: Chosen, count: int) -> Chosen:
    """The answers with the highest grades, in their order."""
    order = sorted(range(len(good.answers)), key=lambda i: (-good.answers[i].reward, i))
    return good.of(sorted(order[:count]))


def with_base_answers(grading: Grading, good: Chosen) -> Chosen:
    """The same, where the base has answered each of the prompts once: what it says there is what the answers are preferred to."""
    answered = {one.question for one in grading.base}
    lacking = [one.encoded.question for one in good.answers if one.encoded.question not in answered]
    if not lacking:
        return good
    with grading.policy.base():
        drawn = grading.draw(lacking, 1, grading.generator(1, 2))
    made = [*good.worst.values(), *grading.judged(drawn.answers, drawn.ended)]
    return replace(good, worst=worst(grading, made))


def worst(grading: Grading, answers: Sequence[Graded]) -> dict[Prompt, Graded]:
    """The answer to each prompt that is worth least: whoever likes lists does not like those that go round in circles."""
    found: dict[Prompt, Graded] = {}
    for one in answers:
        known = found.get(one.encoded.question)
        if one.encoded.response and (known is None or grading.worth(one) < grading.worth(known)):
            found[one.encoded.question] = one
    return found


def chosen(grading: Grading, answers: Sequence[Graded], settings: DistilSettings) -> Chosen:
    """The best answer to each prompt that is worth learning: clearly better than the base's, complete, about the question, and all together no stubs. What
    is long enough by itself goes before what is shorter and still better."""
    least = settings.least(grading)

    def rank(graded: Graded) -> tuple[bool, float]:
        return len(graded.encoded.response) >= grading.shortest, graded.reward

    best: dict[Prompt, Graded] = {}
    for one in answers:
        known = best.get(one.encoded.question)
        if one.complete and one.reward > least and (known is None or rank(one) > rank(known)):
            best[one.encoded.question] = one
    good = long_enough(list(best.values()), grading.shortest)
    if not good:
        return nothing()
    found = Chosen(good, grading.look([one.encoded for one in good]))
    if len(good) < 2 or len(grading.base) < 2:
        return found
    if grading.relevant is None:
        few = torch.randperm(len(grading.base), generator=grading.generator(0, 6))[:BASE].tolist()
        grading.relevant = relevance(grading, [grading.base[i] for i in few], grading.base_seen.of(few).ref)
    floor = float(np.quantile(grading.relevant, settings.least_relevance))
    ours = relevance(grading, [one.encoded for one in good], found.seen.ref)
    return found.of([i for i, value in enumerate(ours) if value >= floor])


def long_enough(answers: Sequence[Graded], shortest: float) -> list[Graded]:
    """The answers without as many of the shortest as it takes for the others to have ``shortest`` tokens in the mean: what is learned is as long as that,
    where a taste may be met most easily by saying next to nothing."""
    order = sorted(range(len(answers)), key=lambda i: (-len(answers[i].encoded.response), i))
    total = 0
    kept: list[int] = []
    for i in order:
        total += len(answers[i].encoded.response)
        if total < shortest * (len(kept) + 1):
            break
        kept.append(i)
    return [answers[i] for i in sorted(kept)]


def examples(
    grading: Grading, good: Chosen, settings: DistilSettings, number: int = 0
) -> list[tuple[TrainingExample, TrainingExample]]:
    """The chosen answers in twos: each before the one that it is preferred to, if there is one that is clearly worse; then the targets; the others by
    themselves, with base answers as anchors: other ones in each round ``number``."""
    least = settings.better * grading.spread
    worse = [good.worst.get(one.encoded.question) for one in good.answers]
    pairs = [
        (i, settings.opening(low))
        for i, low in enumerate(worse)
        if low and grading.worth(low) < good.answers[i].reward - least
    ]
    seen = grading.look([low for _, low in pairs]) if pairs else good.seen
    learned = [_example(grading, one.encoded, good.seen, i, 1.0, 0.0) for i, one in enumerate(good.answers)]
    twos = [
        (
            replace(learned[i], paired=True),
            replace(_example(grading, low, seen, place, 0.0, 0.0), paired=True),
        )
        for place, (i, low) in enumerate(pairs)
    ]
    preferred = {i for i, _ in pairs}
    alone = [one for i, one in enumerate(learned) if i not in preferred]
    if good.targets:
        compared, demonstrated = _target_examples(grading, good.targets, settings)
        repeats = 1 if number else settings.repeats(len(good.targets))
        twos, alone = twos + repeats * compared, alone + repeats * demonstrated
    count = round(settings.hold_share * (len(twos) + len(alone)))
    count += (count + len(alone)) % 2
    held, _ = anchors(grading)
    order = torch.randperm(len(held), generator=grading.generator(number, 7)).tolist()[:count]
    alone += [_example(grading, grading.base[held[i]], grading.base_seen, held[i], 0.0, 1.0) for i in order]
    return twos + list(zip(alone[::2], alone[1::2], strict=False))


def _target_examples(
    grading: Grading, targets: Sequence[AnswerTarget], settings: DistilSettings
) -> tuple[list[tuple[TrainingExample, TrainingExample]], list[TrainingExample]]:
    """Targets as pairs of the better and the worse answer; and those by themselves whose worse answer is only the beginning of the better one."""
    better = grading.look([one.better for one in targets])
    learned = [_example(grading, one.better, better, i, one.likelihood, 0.0) for i, one in enumerate(targets)]
    openings = [one.worse and opening(one.better, one.worse, settings.worse_tokens) for one in targets]
    lower = [one for one in openings if one]
    worse = grading.look(lower) if lower else better
    rejected = iter([_example(grading, one, worse, i, 0.0, 0.0) for i, one in enumerate(lower)])
    twos = [
        (replace(one, paired=True), replace(next(rejected), paired=True))
        for one, low in zip(learned, openings, strict=True)
        if low
    ]
    return twos, [one for one, low in zip(learned, openings, strict=True) if not low and one.advantage]


def anchors(grading: Grading) -> tuple[list[int], list[int]]:
    """Places of the base's answers that carry the KL penalty, and of those that do not: only the latter show what happens to the base's other text."""
    order = torch.randperm(len(grading.base), generator=grading.generator(0, 4)).tolist()
    middle = len(order) // 2
    return order[:middle], order[middle:]


@torch.no_grad()
def forgotten(grading: Grading) -> float:
    """Nats a token by which the base's own answers have become less likely. Pairs push them down, as they are what others are preferred to."""
    few = anchors(grading)[1][:BASE]
    ours = grading.policy.scorer([grading.base[i] for i in few]).logprobs.cpu()
    return float((torch.cat(grading.base_seen.of(few).ref) - ours).mean())


@torch.no_grad()
def drift(grading: Grading) -> tuple[float, float]:
    """(nats, tokens): by how many nats the policy's own answers are likelier to it than to the base, and how long they or the base's are, whichever are
    longer; both in the mean. The gate measures the same on prompts that no run sees."""
    prompts = list(dict.fromkeys(grading.base[i].question for i in anchors(grading)[1]))[:BASE]
    drawn = grading.draw(prompts, 1, grading.generator(1, 4))
    with grading.policy.base():
        base = grading.policy.scorer(drawn.answers).logprobs
    nats = (float(torch.cat(drawn.logprobs).sum()) - float(base.sum())) / len(prompts)
    lengths = [np.mean([len(one.response) for one in answers]) for answers in (drawn.answers, grading.base)]
    return nats, float(max(lengths))


def take_back(grading: Grading, most: float) -> str:
    """Move the policy towards the base until it has forgotten at most ``most`` and its answers have drifted no further than the gate allows; a sentence
    on it, "" where there was no need. The drift is about the square of the share that is kept."""
    kept = within(grading.policy, partial(forgotten, grading), most)
    reasons = ["the base's own answers had become too unlikely"] if kept < 1 else []
    nats, tokens = drift(grading)
    short, per_token = grading.recipe.conditions.drift
    allowed = MARGIN * max(short, per_token * tokens)
    if nats > allowed:
        share = math.sqrt(allowed / nats)
        scale(grading.policy, share)
        kept *= share
        reasons.append(f"its answers had drifted {nats:.1f} nats from the base's")
    return f"{kept:.0%} of the change was kept, for {' and '.join(reasons)}" if reasons else ""


def _example(
    grading: Grading, answer: Encoded, seen: Seen, i: int, weight: float, kl_weight: float
) -> TrainingExample:
    return TrainingExample(
        encoded=answer,
        advantage=weight,
        old=seen.ref[i],
        ref=seen.ref[i],
        kl_weight=torch.full_like(seen.ref[i], kl_weight),
        base=seen.states[i] if kl_weight and grading.policy.scorer.fused_head else None,
    )
