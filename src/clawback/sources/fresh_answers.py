"""Rollouts: fresh answers of the policy, sampled and graded round by round, as training examples (``plan.py`` describes their use)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from clawback.rl import advantages
from clawback.sources.graded import Grading, Prompt, Seen
from clawback.sources.targets import AnswerTarget, opening
from clawback.templates import Encoded
from clawback.trainer.examples import SourceState, TrainingExample

if TYPE_CHECKING:
    from clawback.trainer.recipe import Recipe

_T = TypeVar("_T")

OPENING = 64
"""Tokens beyond the first difference that a worse answer counts for."""
_STRENGTH = {"careful": 2.0, "balanced": 1.0, "aggressive": 0.5}
"""Factor on the weight of the KL, by preset."""


@dataclass(frozen=True)
class RolloutSettings:
    """Settings; any of them can be set in ``training.options.rollouts``."""

    rounds: int = 24
    prompts: int = 8
    """Prompts a round."""
    samples: int = 8
    """Answers to each of them."""
    round_steps: int = 4
    """Optimizer steps that the answers of a round are shared out over."""
    rate: float = 5.0
    """Learning rate, in units of the recipe's."""
    exact_kl: float = 0.06
    """Weight of the KL, where an advantage of 1 is a standard deviation of the base's rewards."""
    cover: float = 0.9
    """Weight of KL(base ‖ policy) beside KL(policy ‖ base) in it."""
    max_kl: float = 0.14
    """Nats a token; above it the weight of the KL grows by half from round to round."""
    targets: int = 4
    """Edits and comparisons that are learned in a round, beside the fresh answers."""
    replay: float = 0.25
    """Answers of the base for each fresh one, to hold the policy where it no longer goes by itself."""

    @classmethod
    def of(cls, recipe: Recipe) -> RolloutSettings:
        settings = recipe.part("rollouts")
        given = {f.name: settings[f.name] for f in dataclasses.fields(cls) if f.name in settings}
        chosen = cls(**{"rounds": max(4, round(cls.rounds * recipe.size)), **given})
        strength = 1.0 if "exact_kl" in given else _STRENGTH.get(recipe.preset, 1.0)
        return dataclasses.replace(chosen, exact_kl=chosen.exact_kl * strength)


class RolloutSource:
    """A source of examples: each round, fresh answers of the current policy, graded.

    All randomness follows from the seed and the number of the round. Its state is the round that is being
    learned from.
    """

    fresh = True
    critic = None

    def __init__(
        self,
        grading: Grading,
        prompts: Sequence[Prompt],
        settings: RolloutSettings,
        targets: Sequence[AnswerTarget] = (),
    ) -> None:
        self.grading, self.asked, self.settings = grading, list(prompts), settings
        self.targets = list(targets)
        """Edits and comparisons: some are learned in each round."""
        self.policy = grading.policy
        self.steps = settings.rounds * settings.round_steps
        self.hold = 1.0
        """Factor on the KL term, grown where answers drift too far."""
        self.round: list[TrainingExample] = []

    # ---------------------------------------------------------------------------------------------- the source

    def examples(self, step: int) -> list[TrainingExample]:
        """The answers of a round, distributed over its steps in a random order."""
        number, place = divmod(step, self.settings.round_steps)
        if place == 0 or not self.round:
            self.round = self._draw_round(number)
        order = torch.randperm(len(self.round), generator=self.grading.generator(number, 1))
        steps = self.settings.round_steps
        parts = order.chunk(steps)
        if (
            len(parts) < steps
        ):  # of few answers, chunks of one size do not come out as many as there are steps
            parts = order.tensor_split(steps)
        return [self.round[int(i)] for i in parts[place]] or self.round[:1]

    def _draw_round(self, number: int) -> list[TrainingExample]:
        prompts = self._next(self.asked, self.settings.prompts, number, 2)
        drawn = self.grading.draw(prompts, self.settings.samples, self.grading.generator(number, 3))
        answers, old = drawn.answers, drawn.logprobs
        seen = self.grading.look(answers)
        rewards = self.grading.grade(answers, seen.hidden, drawn.ended)
        groups = torch.arange(len(prompts)).repeat_interleave(self.settings.samples)
        gains = advantages.group_normalised(torch.tensor(rewards / self.grading.scale), groups, scale=False)
        drift = float(sum((o - r).sum() for o, r in zip(old, seen.ref, strict=True))) / max(
            1, sum(map(len, old))
        )
        self.hold = self.hold * 1.5 if drift > self.settings.max_kl else max(1.0, self.hold / 1.5)
        shown = (rewards - self.grading.usual) / self.grading.scale
        fresh = [
            self._example(one, float(gain), o, float(reward), seen, i)
            for i, (one, gain, o, reward) in enumerate(zip(answers, gains, old, shown, strict=True))
        ]
        mean = float(shown.mean())
        fresh += self._compared(number, mean)
        return fresh + self._replay(number, round(self.settings.replay * len(fresh)), mean)

    def _compared(self, number: int, reward: float) -> list[TrainingExample]:
        """The two answers of some targets, as a group of two: one standard deviation for the better answer, and one against how the worse one goes on."""
        pairs = [
            (one.better, low)
            for one in self._next(self.targets, self.settings.targets, number, 5)
            if one.worse and (low := opening(one.better, one.worse, OPENING))
        ]
        if not pairs:
            return []
        both = [one for pair in pairs for one in pair]
        seen = self.grading.look(both)
        with torch.no_grad():
            old = [values.cpu() for values in self.policy.scorer(both).split()]
        return [
            self._example(one, 1.0 if i % 2 == 0 else -1.0, old[i], reward, seen, i)
            for i, one in enumerate(both)
        ]

    def _replay(self, number: int, count: int, reward: float) -> list[TrainingExample]:
        """Answers of the base, with nothing to gain: all they have is their KL, at places where the policy's own answers do not come by any more.

        As the pretraining mix of Ouyang et al. 2022 (InstructGPT, PPO-ptx), with the base's answers in place of its corpus, and its whole
        distribution in place of one token. ``reward``: the round's mean, so that what is shown of the round stays as it is.
        """
        answers = self._next(self.grading.base, count, number, 4)
        if not answers:
            return []
        seen = self.grading.look(answers)
        return [self._example(one, 0.0, seen.ref[i], reward, seen, i) for i, one in enumerate(answers)]

    def _example(
        self, answer: Encoded, gain: float, old: Tensor, reward: float, seen: Seen, i: int
    ) -> TrainingExample:
        return TrainingExample(
            encoded=answer,
            advantage=gain,
            old=old,
            ref=seen.ref[i],
            reward=reward,
            kl_weight=torch.full_like(old, self.hold),
            base=seen.states[i] if self.policy.scorer.fused_head else None,
        )

    def _next(self, of: Sequence[_T], count: int, number: int, purpose: int) -> list[_T]:
        """Of an endless row of shuffled rounds, the few that round ``number`` deals with."""
        count, chosen = min(count, len(of)), []
        for position in range(number * count, (number + 1) * count):
            turn, place = divmod(position, len(of))
            order = torch.randperm(len(of), generator=self.grading.generator(turn, purpose))
            chosen.append(of[int(order[place])])
        return chosen

    # ----------------------------------------------------------------------------------------------- the state

    def state(self) -> SourceState:
        """The round under way. What the base says of it is asked again: that is the same, and large."""
        return {
            "hold": self.hold,
            "answers": [
                [list(e.encoded.prompt), list(e.encoded.response), e.advantage, e.reward, e.old]
                for e in self.round
            ],
        }

    def restore(self, state: SourceState) -> None:
        self.hold = float(state["hold"])
        answers = [Encoded(tuple(prompt), tuple(response)) for prompt, response, *_ in state["answers"]]
        seen = self.grading.look(answers) if answers else Seen([], [], np.empty((0, 0)))
        self.round = [
            self._example(one, float(gain), old, float(reward), seen, i)
            for i, (one, (_, _, gain, reward, old)) in enumerate(zip(answers, state["answers"], strict=True))
        ]
