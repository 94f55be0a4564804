"""What the training loop eats: answers with their advantages, and sources that hand them out step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from clawback.engine.torch.chat import Encoded

if TYPE_CHECKING:
    from clawback.engine.recipe import Recipe
    from clawback.engine.torch.policy import Policy
    from clawback.records import Sample
    from clawback.rl.algorithms import Algorithm


@dataclass(frozen=True)
class Example:
    """One answer, with all that a loss needs to know of it. Tensors are [response tokens] float32."""

    encoded: Encoded
    advantage: float
    old: Tensor
    """Log-probs under the policy that wrote it, or the one at the start of the run."""
    ref: Tensor
    """Log-probs under the base model."""
    reward: float = 0.0
    pg_weight: Tensor | None = None
    kl_weight: Tensor | None = None
    base: Tensor | None = None
    """[response tokens, H] hidden states of the base model, where the exact divergence is wanted."""


class Source(Protocol):
    """Where the examples come from. A fixed set of ratings, or fresh answers of the policy as it is now.

    What it draws at random must follow from the seed it was made with and the step: a run that is taken up
    again has to see the same examples. What cannot be made again (answers sampled earlier in a round) is its state.
    """

    @property
    def steps(self) -> int:
        """Optimizer steps in all."""
        ...

    @property
    def fresh(self) -> bool:
        """True when answers are sampled during the run, so that their mean reward says how the policy does."""
        ...

    def examples(self, step: int) -> Sequence[Example]:
        """All examples of one optimizer step, 0-based. Called in order, with the policy as it is before the step."""
        ...

    def state(self) -> dict[str, Any]:
        """Numbers, strings, tensors, lists and dicts: what ``restore`` needs to go on with the next step."""
        ...

    def restore(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Plan:
    """How a run will go: which algorithm, on what, and why."""

    algorithm: Algorithm
    source: Source
    name: str
    note: str = ""
    baseline: float = 0.0
    rate: float | None = None
    """Learning rate in place of the recipe's."""
    cover: float = 0.0
    """Weight of KL(base ‖ policy) beside KL(policy ‖ base) in the exact divergence."""
    decay: bool = False
    """The learning rate falls to zero over the run, on a straight line."""


class Ratings:
    """Every rated answer, in shuffled rounds: each is used as often as every other, give or take one."""

    fresh = False

    def __init__(self, examples: Sequence[Example], *, steps: int, per_step: int, seed: int) -> None:
        self._examples = list(examples)
        self._per_step = min(per_step, len(self._examples))
        self._seed = seed
        self.steps = steps

    def examples(self, step: int) -> list[Example]:
        first = step * self._per_step
        return [self._examples[self._nth(position)] for position in range(first, first + self._per_step)]

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass

    def _nth(self, position: int) -> int:
        """The example at a position of an endless row of shuffled rounds."""
        turn, place = divmod(position, len(self._examples))
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + turn)
        return int(torch.randperm(len(self._examples), generator=generator)[place])


def from_ratings(
    policy: Policy,
    samples: Sequence[Sample],
    recipe: Recipe,
    algorithm: Algorithm,
    *,
    seed: int,
    baseline: float,
) -> Plan:
    """A run on the ratings themselves: advantages once, in the order given, and log-probs of the start once.

    ``old`` is what was recorded when the answer was sampled, where it was; else the policy as it is now.
    """
    encoded = [policy.encode(sample) for sample in samples]
    rewards = torch.tensor([sample.reward for sample in samples], dtype=torch.float32)
    advantages, baseline = algorithm.advantages(rewards, _groups(encoded), baseline)
    with torch.no_grad():
        with policy.base():
            ref = policy.scorer(encoded).split()
        # A fresh adapter changes nothing, so its policy is the base: no need to ask twice.
        start = policy.scorer(encoded).split() if policy.moved else ref
    examples = [
        Example(one, float(a), _recorded(sample, s), r, sample.reward)
        for one, a, sample, s, r in zip(encoded, advantages, samples, start, ref, strict=True)
    ]
    per_step = recipe.batch * recipe.accumulation
    source = Ratings(examples, steps=recipe.steps_for(len(examples)), per_step=per_step, seed=seed)
    return Plan(algorithm, source, algorithm.name, baseline=baseline)


def _recorded(sample: Sample, otherwise: Tensor) -> Tensor:
    """The log-probs that were recorded with the tokens, where they are whole and sane."""
    recorded = sample.response_logprobs
    if recorded is None or sample.response_ids is None or len(recorded) < len(otherwise):
        return otherwise
    if not all(math.isfinite(value) and value <= 0 for value in recorded):
        return otherwise
    return torch.tensor(recorded[: len(otherwise)], dtype=torch.float32, device=otherwise.device)


def _groups(encoded: Sequence[Encoded]) -> Tensor:
    """[S] int64: answers to the same prompt share a number."""
    numbers: dict[tuple[int, ...], int] = {}
    return torch.tensor([numbers.setdefault(one.prompt, len(numbers)) for one in encoded], dtype=torch.int64)
