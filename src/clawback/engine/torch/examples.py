"""What the training loop eats: answers with their advantages, and sources that hand them out step by step."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from clawback.engine.torch.chat import Encoded
from clawback.errors import TrainingError
from clawback.rl import algorithms, curriculum

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

    @property
    def counted(self) -> int:
        """Tokens that go into a loss."""
        return len(self.encoded.response) if self.mask is None else int(self.mask.sum())


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

    @property
    def critic(self) -> nn.Module | None:
        """A value head, to be trained beside the adapter."""
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
    """Every rated answer, in shuffled rounds: each is used as often as every other, give or take one.

    They are dealt in units, of one answer each or of a pair, that stay together. ``easy``: the units are in order of difficulty, and the
    run goes from the first of them to all by stages (``rl/curriculum.py``).
    """

    fresh = False
    critic: nn.Module | None = None

    def __init__(
        self,
        units: Sequence[Sequence[Example]],
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

    def examples(self, step: int) -> list[Example]:
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

    Raises:
        TrainingError: nothing among the samples is of the kind that the algorithm learns from.
    """
    wants = algorithms.needs(algorithm)
    samples = _usable(samples, wants, algorithm.name)
    encoded = [policy.encode(sample) for sample in samples]
    rewards = torch.tensor([sample.reward for sample in samples], dtype=torch.float32)
    advantages, baseline = algorithm.advantages(rewards, _groups(encoded), baseline)
    with torch.no_grad():
        with policy.base():
            ref = policy.scorer(encoded).split()
        # A fresh adapter changes nothing, so its policy is the base: no need to ask twice.
        start = policy.scorer(encoded).split() if policy.moved else ref
    examples = [
        Example(one, float(a), _recorded(sample, s), r, sample.reward, mask=_mask(sample, s))
        for one, a, sample, s, r in zip(encoded, advantages, samples, start, ref, strict=True)
    ]
    if "teacher" in wants:
        from clawback.engine.torch.teacher import taught

        examples = taught(policy, examples, samples, int(getattr(algorithm, "top_k", 0)))
    if "mismatched" in wants:
        examples = _mismatched(policy, examples)
    return Plan(
        algorithm,
        _dealt(policy, samples, examples, recipe, algorithm, seed),
        algorithm.name,
        baseline=baseline,
    )


def _usable(samples: Sequence[Sample], wants: frozenset[str], name: str) -> list[Sample]:
    """Those that the algorithm has a use for."""
    if "hints" in wants:
        kept, missing = [sample for sample in samples if sample.hints], "critiques or edits"
    elif "teacher" in wants:
        kept, missing = [s for s in samples if s.hints or s.rated], "ratings, critiques or edits"
    else:
        kept, missing = [sample for sample in samples if sample.rated], "ratings"
    if not kept:
        raise TrainingError(f"There is nothing for {name} to learn from: it needs {missing}.")
    return kept


def _dealt(
    policy: Policy,
    samples: Sequence[Sample],
    examples: list[Example],
    recipe: Recipe,
    algorithm: Algorithm,
    seed: int,
) -> Ratings:
    """The source that hands the examples out, in the units that the algorithm wants."""
    from clawback.engine.torch.pairs import find
    from clawback.engine.torch.rounds import Rounds, Valued

    wants, each = algorithms.needs(algorithm), 1
    units = [[example] for example in examples]
    if "pairs" in wants:
        pairs, each = find(samples, [example.encoded for example in examples]), 2
        if not pairs:
            raise TrainingError(
                f"There is nothing for {algorithm.name} to learn from: it needs pairs (`clawback prefer`, `clawback edit`, or "
                "a good and a bad answer to the same prompt)."
            )
        units = [[dataclasses.replace(examples[i], paired=True) for i in pair] for pair in pairs]
    many, easy = len(units), recipe.curriculum != "off"
    if recipe.curriculum != "off":
        units, many = _easy_first(units, recipe.curriculum), sum(curriculum.sizes(len(units)))
    dealing: dict[str, Any] = {
        "steps": recipe.steps_for(each * many),
        "per_step": max(1, recipe.batch * recipe.accumulation // each),
        "seed": seed,
        "easy": easy,
    }
    if "values" in wants:
        return Valued(policy, algorithm, [example for [example] in units], **dealing)
    if "proximal" in wants:
        return Rounds(policy, [example for [example] in units], **dealing)
    return Ratings(units, **dealing)


def _easy_first(units: Sequence[list[Example]], by: curriculum.By) -> list[list[Example]]:
    """In order of difficulty; a pair is as clear as its two are on average, and as long as both."""
    clear = [sum(abs(example.reward) for example in unit) / len(unit) for unit in units]
    lengths = [sum(example.counted for example in unit) for unit in units]
    return [units[place] for place in curriculum.easy_first(clear, lengths, by)]


@torch.no_grad()
def _mismatched(policy: Policy, examples: list[Example]) -> list[Example]:
    """Each prompt with the next one's answer, and what the base makes of it."""
    others = examples[1:] + examples[:1]
    odd = [Encoded(e.encoded.prompt, o.encoded.response) for e, o in zip(examples, others, strict=True)]
    with policy.base():
        ref = [float(values.sum()) for values in policy.scorer(odd).split()]
    return [
        dataclasses.replace(example, mismatched=one, mismatched_ref=value)
        for example, one, value in zip(examples, odd, ref, strict=True)
    ]


def _mask(sample: Sample, values: Tensor) -> Tensor | None:
    """Which of the response tokens that are left the policy wrote; None for all."""
    if sample.response_mask is None or sample.response_ids is None or all(sample.response_mask):
        return None
    return torch.tensor(sample.response_mask[: len(values)], dtype=torch.bool)


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
