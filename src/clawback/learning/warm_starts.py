"""What an environment's policy learns before it is trained on rewards: the form of replies, and a first policy from random play.

Learning the form of replies from examples of it: plain cross-entropy on what some episodes wrote.

Replies that are drawn uniformly from k of them have an entropy of log k nats. A policy that has learned the form and
no preference among the actions has exactly this loss, so the steps end once it is nearly reached: what is then left
to learn is which action is right, and that is what rewards are for.

Where replies are held to choices (``scoring/choices.py``) the form is never wrong. There the exact divergence from the
uniform distribution over the replies takes the place of the examples' own replies: it has no noise, and takes a few steps.

A first policy from episodes that were played at random, where replies are held to a few texts and episodes are short.

A policy gradient from a policy without preference first moves what all situations have in common: an action that pays on average becomes the only
one before situations are told apart, and one that is never taken is never learned. Here the value of each reply is fitted to
random episodes (``action_values.py``) and the policy is regressed on what these values prefer,

    q(a | s) ∝ exp(Q(s, a) / τ),        loss = −log π(a | s), a drawn from q

whose optimum tells situations apart (one step of policy improvement; advantage-weighted regression, Peng et al. 2019, arXiv:1910.00177, with an
action's value in place of a return). Long episodes are left to the policy gradient: maxima over fitted values grow with each turn.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from clawback.learning.episode_examples import flat, look_again, sequences, states_before
from clawback.records import Episode
from clawback.rl import algorithms
from clawback.rl.action_values import fit_action_values
from clawback.templates import Encoded
from clawback.trainer.examples import SourceState, TrainingExample
from clawback.trainer.torch_learner import TorchLearner
from clawback.trainer.training_loop import Loop, LoopSettings

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.trainer.training_loop import State


REPLIES_PER_STEP = 16
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
        positions = range(step * REPLIES_PER_STEP, step * REPLIES_PER_STEP + min(REPLIES_PER_STEP, count))
        return [self.examples_by_place[self._nth(position, count)] for position in positions]

    def _nth(self, position: int, count: int) -> int:
        turn, place = divmod(position, count)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + turn)
        return int(torch.randperm(count, generator=generator)[place])

    def state(self) -> SourceState:
        return {}

    def restore(self, state: SourceState) -> None:
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


SHORT = 3.0
"""Turns of a random episode, on average, up to which this is tried."""
TURNS_PER_STEP = 96
"""Turns of a step."""
PASSES = 8
"""Times that each turn is learned from."""
FEWEST_STEPS = 120
"""Steps over which the learning rate rises; then it falls to zero."""
TEMPERATURE = 0.05
"""τ, in units of the standard deviation of the rewards."""


@dataclasses.dataclass(frozen=True)
class Decisions:
    """Turns at which one of a few replies was given."""

    prompts: Sequence[tuple[int, ...]]
    states: torch.Tensor
    """[T, H] of the base."""
    actions: torch.Tensor
    rewards: torch.Tensor
    last: torch.Tensor


def is_short(episodes: Sequence[Episode]) -> bool:
    """Whether random episodes are so short that values may be fitted to them."""
    return bool(episodes) and sum(len(e.steps) for e in episodes) / len(episodes) <= SHORT


@torch.no_grad()
def decisions_of(
    policy: Policy, episodes: Sequence[Episode], replies: Sequence[tuple[int, ...]]
) -> Decisions:
    """The turns of episodes whose replies are each one of ``replies``, as token ids. Raises ``ValueError`` for any other."""
    parts = sequences(episodes, held=True)
    with policy.base():
        states = states_before(policy.scorer, parts)
    prompts, actions, last = [], [], []
    for episode in episodes:
        for number, step in enumerate(episode.steps):
            ids = episode.branches[step.branch].ids
            prompts.append(tuple(ids[: step.start]))
            actions.append(replies.index(tuple(ids[step.start : step.end])))
            last.append(number == len(episode.steps) - 1)
    rewards, _, _ = flat(episodes)
    return Decisions(prompts, states, torch.tensor(actions), rewards, torch.tensor(last))


class Improvement:
    """A source of examples: turns at random, each with a reply that its values prefer."""

    fresh = False
    critic = None

    def __init__(
        self, turns: Decisions, preferred: torch.Tensor, replies: Sequence[tuple[int, ...]], seed: int
    ) -> None:
        """``preferred``: [T, K] probability of each reply."""
        self.turns, self.preferred, self.replies, self.seed = turns, preferred, replies, seed
        self.steps = max(FEWEST_STEPS, PASSES * len(turns.prompts) // TURNS_PER_STEP)

    def examples(self, step: int) -> list[TrainingExample]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        chosen = torch.randint(len(self.turns.prompts), (TURNS_PER_STEP,), generator=generator)
        actions = torch.multinomial(self.preferred[chosen], 1, generator=generator)[:, 0]
        made = []
        for turn, action in zip(chosen.tolist(), actions.tolist(), strict=True):
            reply = self.replies[action]
            zeros = torch.zeros(len(reply))
            encoded = Encoded(self.turns.prompts[turn], reply, starts=(0,))
            made.append(TrainingExample(encoded, 1.0, zeros, zeros))
        return made

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


def improve(
    policy: Policy,
    episodes: Sequence[Episode],
    *,
    gamma: float,
    learning_rate: float,
    seed: int,
) -> dict[str, float]:
    """Regress the policy's adapter on what random episodes say of the replies that it is held to.

    Returns ``steps``, ``turns`` read, ``explained`` (share of the variance); no step where the states explain nothing.
    """
    assert policy.choices is not None
    replies = policy.choices.replies
    if look_again(policy.chat, episodes)[1]:  # pictures: each turn would have to be looked at again
        return {"steps": 0.0, "turns": 0.0, "explained": 0.0}
    turns = decisions_of(policy, episodes, replies)
    fitted = fit_action_values(
        turns.states, turns.actions, turns.rewards, turns.last, count=len(replies), gamma=gamma
    )
    figures = {
        "steps": 0.0,
        "turns": float(len(turns.prompts)),
        "explained": fitted.explained if fitted else 0.0,
    }
    if fitted is None or fitted.explained <= 0:
        return figures
    unit = TEMPERATURE * float(turns.rewards.std(unbiased=False))
    source = Improvement(turns, (fitted.values / unit).softmax(1).float(), replies, seed)
    settings = LoopSettings(learning_rate=learning_rate, warm_up=RAMP, decay=True, seed=seed)
    algorithm = algorithms.make("reinforce", {"kl": 0.0, "importance_cap": 0.0})
    loop = Loop(TorchLearner(policy, settings), source, algorithm, settings)
    while loop.step < source.steps and not loop.fitted.stopped:
        loop.advance()
    return {**figures, "steps": float(loop.step)}
