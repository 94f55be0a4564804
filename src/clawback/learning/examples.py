"""The training loop's input: answers with their advantages, and sources that supply them step by step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from clawback.models import Encoded
from clawback.rl import curriculum

if TYPE_CHECKING:
    from clawback.rl.algorithms import Algorithm


@dataclass(frozen=True)
class TrainingExample:
    """One answer, with all that a loss needs to know of it. Tensors are [response tokens] float32.

    The one rule about devices: examples keep their tensors on the CPU, whatever device made them, and ``packing.measure`` and ``pack``
    take those of a step to the device that computes.
    """

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
    """[response tokens, H] hidden states of the base model, where the exact divergence is wanted. None beside such as have it where its weight is 0."""
    mask: Tensor | None = None
    """[response tokens] bool: which of them the policy wrote; None for all."""
    token_advantages: Tensor | None = None
    returns: Tensor | None = None
    old_values: Tensor | None = None
    """See ``rl.Batch``."""
    teacher: Tensor | None = None
    """Log-probs under the teacher."""
    teacher_top: tuple[Tensor, Tensor] | None = None
    """[response tokens, k] ids of the teacher's likeliest tokens, and the log-probs it gives them."""
    mismatched: Encoded | None = None
    """This prompt with the answer to another, where the divergence on such is wanted."""
    mismatched_ref: float = 0.0
    """Log-prob of that whole answer under the base model."""
    paired: bool = False
    """One of two that follow each other, the better one first."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                object.__setattr__(self, field.name, value.cpu())
            elif field.name == "teacher_top" and value is not None:
                object.__setattr__(self, field.name, tuple(part.cpu() for part in value))

    @property
    def counted(self) -> int:
        """Tokens that go into a loss."""
        return len(self.encoded.response) if self.mask is None else int(self.mask.sum())


class Source(Protocol):
    """A source of examples: a fixed set of ratings, or fresh answers of the current policy.

    Its random choices must follow from the seed it was made with and the step: a run that is resumed
    has to see the same examples. What cannot be reproduced (answers sampled earlier in a round) is its state.
    """

    @property
    def steps(self) -> int:
        """Optimizer steps in all, at most."""
        ...

    @property
    def fresh(self) -> bool:
        """True when answers are sampled during the run, so that their mean reward says how the policy does."""
        ...

    @property
    def critic(self) -> nn.Module | None:
        """A value head, to be trained beside the adapter."""
        ...

    def examples(self, step: int) -> Sequence[TrainingExample]:
        """All examples of one optimizer step, 0-based. Called in order, with the policy as it is before the step.

        None of them: there is no more to learn, and the run ends here.
        """
        ...

    def state(self) -> dict[str, Any]:
        """Numbers, strings, tensors, lists and dicts: what ``restore`` needs to go on with the next step."""
        ...

    def restore(self, state: dict[str, Any]) -> None: ...


@runtime_checkable
class Settling(Protocol):
    """A source that has the last word on the weights, once all steps are taken."""

    def settle(self) -> str:
        """Change them if need be; says what was changed, "" where nothing was."""
        ...


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
    instruction: str = ""
    """The sentence that the answers were drawn under, where there was one: the taste in words."""


class RatingSource:
    """Every rated answer, in shuffled rounds: each is used as often as every other, give or take one.

    The units of shuffling, one answer or a pair each, stay together. ``easy``: the units are in order of
    difficulty, and the run goes from the first of them to all by stages (``rl/curriculum.py``).
    """

    fresh = False
    critic: nn.Module | None = None

    def __init__(
        self,
        units: Sequence[Sequence[TrainingExample]],
        *,
        steps: int,
        per_step: int,
        seed: int,
        easy: bool = False,
    ) -> None:
        self._units = [list(unit) for unit in units]
        self._stages = curriculum.stages(len(self._units), steps) if easy else [(0, len(self._units))]
        self._per_step = min(per_step, len(self._units))
        self._seed = seed
        self.steps = steps

    def examples(self, step: int) -> list[TrainingExample]:
        begun, size = max(stage for stage in self._stages if stage[0] <= step)
        count = min(self._per_step, size)
        first = (step - begun) * count
        places = [self._nth(position, size) for position in range(first, first + count)]
        return [example for place in places for example in self._units[place]]

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass

    def _nth(self, position: int, size: int) -> int:
        """The unit at a position of an endless row of shuffled rounds of the first ``size``."""
        turn, place = divmod(position, size)
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + turn)
        return int(torch.randperm(size, generator=generator)[place])
