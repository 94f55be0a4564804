"""Learning the form of replies from examples of it: plain cross-entropy on what some episodes wrote.

Replies that are drawn uniformly from k of them have an entropy of log k nats. A policy that has learned the form and
no preference among the actions has exactly this loss, so the steps end once it is nearly reached: what is then left
to learn is which action is right, and that is what rewards are for.

Where replies are held to choices (``scoring/choices.py``) the form is never wrong. There the exact divergence from the
uniform distribution over the replies takes the place of the examples' own replies: it has no noise, and takes a few steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from clawback.learning.examples import TrainingExample
from clawback.learning.loop.torch_learner import TorchLearner
from clawback.learning.loop.trainer import Loop, LoopSettings
from clawback.learning.sources.episode_examples import sequences
from clawback.records import Episode
from clawback.rl import algorithms

if TYPE_CHECKING:
    from clawback.policy import Policy

PER_STEP = 16
"""Sequences of a step."""
MOST_STEPS = 240
SLACK = 0.15
"""Nats a reply above log k at which the form counts as learned."""
SMOOTH = 4
"""Steps over which the loss is averaged before it is compared."""
HELD_SLACK = 0.05
"""The same where replies are held to choices."""
RAMP = 5
"""Steps over which the learning rate rises."""


class Imitation:
    """A source of examples: all sequences of some episodes, in shuffled rounds."""

    fresh = False
    critic = None
    steps = MOST_STEPS

    def __init__(self, episodes: Sequence[Episode], seed: int, held: bool = False) -> None:
        self.seed = seed
        weight = 0.0 if held else 1.0
        self.examples_by_place = [
            TrainingExample(
                one.encoded, weight, torch.zeros_like(one.old), torch.zeros_like(one.old), mask=one.mask
            )
            for one in sequences(episodes, held=held)
        ]
        replies = sum(len(episode.steps) for episode in episodes)
        tokens = sum(example.counted for example in self.examples_by_place)
        self.reply_tokens = tokens / max(1, replies)
        """Tokens of a reply, on average."""

    def examples(self, step: int) -> list[TrainingExample]:
        count = len(self.examples_by_place)
        positions = range(step * PER_STEP, step * PER_STEP + min(PER_STEP, count))
        return [self.examples_by_place[self._nth(position, count)] for position in positions]

    def _nth(self, position: int, count: int) -> int:
        turn, place = divmod(position, count)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + turn)
        return int(torch.randperm(count, generator=generator)[place])

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass


def imitate(
    policy: Policy, episodes: Sequence[Episode], replies: int, *, learning_rate: float, seed: int
) -> dict[str, float]:
    """Teach the policy's adapter the form of what these episodes wrote, each reply one of ``replies`` at random.

    Returns ``steps``, ``replies`` read, and ``loss`` in nats a reply (log ``replies`` where nothing but the form is learned).
    """
    held = policy.choices is not None
    source = Imitation(episodes, seed, held=held)
    settings = LoopSettings(learning_rate=learning_rate, warm_up=RAMP, seed=seed)
    name, recipe = ("grpo", {"kl": 1.0}) if held else ("reinforce", {"kl": 0.0, "importance_cap": 0.0})
    loop = Loop(TorchLearner(policy, settings), source, algorithms.make(name, recipe), settings)
    optimum, slack = math.log(max(1, replies)), HELD_SLACK if held else SLACK
    losses: list[float] = []
    while loop.step < source.steps and not loop.fitted.stopped:
        figures = loop.advance()
        measured = figures["kl_loss"] if held else figures["policy_loss"]
        losses.append(measured * source.reply_tokens + (optimum if held else 0.0))
        recent = losses[-SMOOTH:]
        if len(recent) == SMOOTH and sum(recent) / SMOOTH <= optimum + slack:
            break
    return {
        "steps": float(loop.step),
        "replies": float(sum(len(episode.steps) for episode in episodes)),
        "loss": sum(losses[-SMOOTH:]) / max(1, len(losses[-SMOOTH:])),
    }
