"""What the base says under an instruction becomes what the policy says without it: context distillation of the answers graded best.

Of several answers to a prompt that were drawn under the sentence, and the base's own, the one is taken that is graded best; if it ended, goes round
in no circles, beats what the base is expected to say, and is still about what was asked. The policy learns it after the prompt *without* the
sentence (``rl.algorithms.raft``). Answers of the base with nothing to gain but their KL are dealt between, to hold the policy where it should not move.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from clawback.engine.torch.models.chat import Encoded
from clawback.engine.torch.sources.examples import Example, Ratings
from clawback.engine.torch.sources.graded import Grading, Prompt, Seen
from clawback.engine.torch.sources.instructed import (
    Arm,
    Conversations,
    Graded,
    Tell,
    draw_under,
    graded,
    relevance,
)
from clawback.rewards.guards import repeats

if TYPE_CHECKING:
    from clawback.engine.recipe import Recipe


BASE = 32
"""Answers of the base that show how relevant its answers are."""
CHUNK = 32
"""Prompts that are drawn together, so that progress can be told."""


@dataclass(frozen=True)
class DistilSettings:
    """Settings; any of them can be set in a recipe's ``extra``."""

    sentences: int = 7
    """Instructions that are tried; 0: none, the run goes on with rollouts."""
    first: int = 8
    """Prompts that each is tried on at first."""
    most: int = 32
    """Prompts in all that the last ones are tried on."""
    answers: int = 2
    """Answers drawn to each prompt under the sentence that won."""
    distil_prompts: int = 160
    distil_batch: int = 6
    """Answers an optimizer step."""
    passes: int = 1
    distil_rate: float = 2e-3
    """Learning rate at 135 million parameters; it falls with the fourth root of the size."""
    hold_kl: float = 0.1
    """Weight of the KL to the base on its own answers."""
    hold_share: float = 0.25
    """Answers of the base for each that is learned."""
    least_relevance: float = 0.05
    """Quantile of the base's own relevance below which an answer is not about its prompt."""

    @classmethod
    def of(cls, recipe: Recipe) -> DistilSettings:
        size, full = recipe.size, cls()
        sized = {
            "first": max(4, round(full.first * size)),
            "most": max(8, round(full.most * size)),
            "answers": full.answers if size >= 0.5 else 1,
            "distil_prompts": max(24, round(full.distil_prompts * size)),
        }
        given = {f.name: recipe.extra[f.name] for f in dataclasses.fields(cls) if f.name in recipe.extra}
        return cls(**{**sized, **given})

    @property
    def trials(self) -> int:
        """Answers that are drawn to choose among the sentences, about: half of the sentences go each time that the prompts double."""
        trials, done, size, racing = 0, 0, self.first, self.sentences
        while racing and done < self.most:
            some = min(size, self.most - done)
            trials, done, size, racing = trials + racing * some, done + some, 2 * size, max(1, racing // 2)
        return trials

    def rate(self, parameters: int) -> float:
        return self.distil_rate * math.pow(135e6 / max(parameters, 1e6), 0.25)


def gathered(
    grading: Grading,
    conversations: Conversations,
    arms: Sequence[Arm],
    each: int,
    settings: DistilSettings,
    tell: Tell,
) -> list[Graded]:
    """``each`` answers under the first sentence to the person's prompts, beside all that was drawn before; the best to each prompt."""
    best, made = arms[0], [one for arm in arms for one in arm.answers]
    made += graded(grading, grading.base, grading.base_seen, grading.base_ended, grading.base_rewards)
    prompts = list(conversations.messages)[-settings.distil_prompts :]
    for start in range(0, len(prompts), CHUNK):
        tell({"phase": "draw", "step": start, "steps": len(prompts), "sentence": best.instruction.text})
        asked = [(prompt, best.instruction.text) for prompt in prompts[start : start + CHUNK]]
        made += draw_under(grading, conversations, asked, each, grading.generator(start, 8))
    return chosen(grading, made, settings)


def chosen(grading: Grading, answers: Sequence[Graded], settings: DistilSettings) -> list[Graded]:
    """The best answer to each prompt, where it is worth learning."""
    best: dict[Prompt, Graded] = {}
    for one in answers:
        known = best.get(one.encoded.asked)
        if known is None or one.reward > known.reward:
            best[one.encoded.asked] = one
    texts = grading.texts([one.encoded for one in best.values()])
    ends = (
        np.mean(grading.base_ended or [True]) >= 0.5
    )  # where the base's own answers are cut by the room, to be cut says nothing
    good = [
        one
        for one, text in zip(best.values(), texts, strict=True)
        if (one.ended or not ends) and text.strip() and one.reward > grading.usual and not repeats(text)
    ]
    if len(good) < 2 or len(grading.base) < 2:
        return good
    whole = graded(grading, grading.base, grading.base_seen, grading.base_ended, grading.base_rewards)
    few = torch.randperm(len(whole), generator=grading.generator(0, 6))[:BASE].tolist()
    usual, ours = relevance(grading, [whole[i] for i in few]), relevance(grading, good)
    least = float(np.quantile(usual, settings.least_relevance))
    return [one for one, value in zip(good, ours, strict=True) if value >= least]


def examples(grading: Grading, good: Sequence[Graded], settings: DistilSettings) -> list[Example]:
    """Those to learn from, and answers of the base to hold still."""
    count = round(settings.hold_share * len(good))
    held = torch.randperm(len(grading.base), generator=grading.generator(0, 7)).tolist()[:count]
    ours, base = grading.look([one.encoded for one in good]), grading.base_seen
    learned = [_example(grading, one.encoded, ours, i, 1.0, 0.0) for i, one in enumerate(good)]
    return learned + [_example(grading, grading.base[i], base, i, 0.0, 1.0) for i in held]


def _example(grading: Grading, one: Encoded, seen: Seen, i: int, weight: float, kl_weight: float) -> Example:
    return Example(
        encoded=one,
        advantage=weight,
        old=seen.ref[i],
        ref=seen.ref[i],
        kl_weight=torch.full_like(seen.ref[i], kl_weight),
        base=seen.states[i] if grading.policy.scorer.fused_head else None,
    )


def source(made: Sequence[Example], settings: DistilSettings, seed: int) -> Ratings:
    """Every example ``passes`` times, shuffled."""
    steps = max(1, round(len(made) * settings.passes / settings.distil_batch))
    return Ratings([[one] for one in made], steps=steps, per_step=settings.distil_batch, seed=seed)
