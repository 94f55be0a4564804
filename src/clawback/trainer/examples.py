"""Training examples, the sources that supply them, and the batches that a loss takes.

The training loop's input: answers with their advantages, and sources that supply them step by step.

Turns examples and the current policy's scores for them into the batch that a loss takes, on the computing device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from clawback.rl import Batch, algorithms
from clawback.rl.algorithms import Algorithm
from clawback.scoring import Scored, Scorer, entropy, teacher_divergence, token_logprobs
from clawback.templates import Encoded


@dataclass(frozen=True)
class TrainingExample:
    """One answer, with all that a loss needs to know of it. Tensors are [response tokens] float32.

    The one rule about devices: examples keep their tensors on the CPU, whatever device made them, and ``measure`` and ``pack``
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


SourceState = dict[str, Any]
"""Numbers, strings, tensors, lists and dicts: what a source needs to go on with the next step of a run."""


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

    def state(self) -> SourceState:
        """What ``restore`` needs."""
        ...

    def restore(self, state: SourceState) -> None: ...


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
        self._stages = [(0, len(self._units))]
        if easy:
            from clawback.rl import curriculum

            self._stages = curriculum.stages(len(self._units), steps)
        self._per_step = min(per_step, len(self._units))
        self._seed = seed
        self.steps = steps

    def examples(self, step: int) -> list[TrainingExample]:
        begun, size = max(stage for stage in self._stages if stage[0] <= step)
        count = min(self._per_step, size)
        first = (step - begun) * count
        places = [self._nth(position, size) for position in range(first, first + count)]
        return [example for place in places for example in self._units[place]]

    def state(self) -> SourceState:
        return {}

    def restore(self, state: SourceState) -> None:
        pass

    def _nth(self, position: int, size: int) -> int:
        """The unit at a position of an endless row of shuffled rounds of the first ``size``."""
        turn, place = divmod(position, size)
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + turn)
        return int(torch.randperm(size, generator=generator)[place])


class SourceSequence:
    """Sources one after another: each begins where the one before has no more examples."""

    fresh = False
    critic: nn.Module | None = None

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = list(sources)
        self.place, self.begun = 0, 0
        self.steps = sum(source.steps for source in sources)

    def examples(self, step: int) -> Sequence[TrainingExample]:
        examples = self.sources[self.place].examples(step - self.begun)
        while not examples and self.place + 1 < len(self.sources):
            self.place, self.begun = self.place + 1, step
            examples = self.sources[self.place].examples(0)
        return examples

    def state(self) -> SourceState:
        return {"place": self.place, "begun": self.begun, "source": self.sources[self.place].state()}

    def restore(self, state: SourceState) -> None:
        self.place, self.begun = int(state["place"]), int(state["begun"])
        self.sources[self.place].restore(state["source"])

    def settle(self) -> str:
        """As the last source does that ran."""
        last = self.sources[self.place]
        return last.settle() if isinstance(last, Settling) else ""


@dataclass(frozen=True)
class Shared:
    """What the pieces of one step have in common."""

    samples: int
    tokens: int
    cover: float = 0.0
    entropy: bool = False
    critic: nn.Module | None = None
    mismatch_kl: float = 0.0
    kl_scale: float = 1.0

    @classmethod
    def of(cls, examples: Sequence[TrainingExample], **fields: object) -> Shared:
        return cls(samples=len(examples), tokens=sum(example.counted for example in examples), **fields)  # type: ignore[arg-type]


def measure(scorer: Scorer, examples: Sequence[TrainingExample], shared: Shared) -> Batch:
    """One of the scorer's ``pieces`` as a batch, with gradients where they are enabled."""
    encoded = [example.encoded for example in examples]
    if any(example.base is not None for example in examples) and all(map(_exact, examples)):
        reference = torch.cat([example.base for example in examples if example.base is not None])
        at = None
        if any(example.base is None for example in examples):
            wanted = [torch.full((len(one.encoded.response),), one.base is not None) for one in examples]
            at = torch.cat(wanted).nonzero().squeeze(1).to(scorer.device)
        return pack(examples, scorer.against(encoded, reference.to(scorer.device), shared.cover, at), shared)
    tops = [example.teacher_top for example in examples]
    if shared.critic is None and not shared.entropy and any(top is None for top in tops):
        return pack(examples, scorer(encoded), shared)

    states = scorer.states(encoded)
    lengths = tuple(len(one.response) for one in encoded)
    taught = spread = None
    if not scorer.fused_head:
        values = scorer(encoded).logprobs
    else:
        targets = torch.tensor([t for one in encoded for t in one.response], device=scorer.device)
        values, _ = token_logprobs(scorer.head, states, targets)
        spread = entropy(scorer.head, states) if shared.entropy else None
        if all(top is not None for top in tops):
            ids, likely = (torch.cat([top[i] for top in tops if top is not None]) for i in (0, 1))
            taught = teacher_divergence(scorer.head, states, ids.to(scorer.device), likely.to(scorer.device))
    worth = None if shared.critic is None else shared.critic(states.detach().float())
    return pack(examples, Scored(values, lengths, spread), shared, taught, worth)


def pack(
    examples: Sequence[TrainingExample],
    scored: Scored,
    shared: Shared,
    teacher_kl: Tensor | None = None,
    values: Tensor | None = None,
) -> Batch:
    """Tokens that the policy did not write are left out here: a token is in a batch because it counts."""
    device = scored.logprobs.device
    lengths = torch.tensor([len(example.encoded.response) for example in examples], device=device)
    segment = torch.repeat_interleave(torch.arange(len(examples), device=device), lengths)
    masks = [example.mask for example in examples]
    kept = None
    if any(mask is not None for mask in masks):
        whole = [
            torch.ones(int(n), dtype=torch.bool) if m is None else m
            for m, n in zip(masks, lengths, strict=True)
        ]
        kept = torch.cat([mask.to(device) for mask in whole])

    def chosen(flat: Tensor | None) -> Tensor | None:
        return flat if flat is None or kept is None else flat[kept]

    def must(flat: Tensor) -> Tensor:
        return flat if kept is None else flat[kept]

    def joined(parts: list[Tensor | None], otherwise: float) -> Tensor | None:
        if all(part is None for part in parts):
            return None
        filled = [
            torch.full((int(n),), otherwise) if p is None else p for p, n in zip(parts, lengths, strict=True)
        ]
        return chosen(torch.cat([part.to(device, torch.float32) for part in filled]))

    return Batch(
        logprobs=must(scored.logprobs),
        old_logprobs=must(torch.cat([example.old for example in examples]).to(device)),
        ref_logprobs=must(torch.cat([example.ref for example in examples]).to(device)),
        segment=must(segment),
        advantages=torch.tensor([example.advantage for example in examples], device=device),
        entropy=chosen(scored.entropy),
        pg_weight=joined([example.pg_weight for example in examples], 1.0),
        kl_weight=joined([example.kl_weight for example in examples], 1.0),
        exact_kl=chosen(scored.kl),
        samples_in_step=float(shared.samples),
        tokens_in_step=float(shared.tokens),
        token_advantages=joined([example.token_advantages for example in examples], 0.0),
        teacher_kl=chosen(teacher_kl),
        values=chosen(values),
        old_values=joined([example.old_values for example in examples], 0.0),
        returns=joined([example.returns for example in examples], 0.0),
        pairs=_pairs(examples).to(device),
        mismatch_kl=shared.mismatch_kl,
        kl_scale=shared.kl_scale,
    )


def gradients(
    scorer: Scorer,
    algorithm: Algorithm,
    examples: Sequence[TrainingExample],
    shared: Shared,
    *,
    every_piece: bool = False,
) -> dict[str, float]:
    """Loss and gradient of a step, piece by piece, added to the weights' ``grad``; the figures of the pieces add up.

    Args:
        every_piece: go backward through a piece without a gradient, too: where the base is in parts, all processes make each pass.
    """
    figures: dict[str, float] = {}
    for piece in scorer.pieces([example.encoded for example in examples], together(algorithm)):
        some = [examples[index] for index in piece]
        with scorer.engaged([example.encoded for example in some]):
            batch = measure(scorer, some, shared)
            loss, metrics = algorithm.loss(batch)
            if loss.requires_grad:
                loss.backward()
            elif every_piece:
                (batch.logprobs.sum() * 0.0).backward()
        metrics["drift"] = float(batch.token_mean(drift(batch)))
        for name, value in metrics.items():
            figures[name] = figures.get(name, 0.0) + value
    return figures


def logprob_gradients(
    algorithm: Algorithm,
    examples: Sequence[TrainingExample],
    values: Sequence[Tensor],
    mismatched: Sequence[Tensor] = (),
    kl_scale: float = 1.0,
) -> tuple[list[Tensor], dict[str, float]]:
    """Loss and gradient of a step by log-probs that were computed elsewhere.

    Args:
        values: [response tokens] float32 of each example.
        mismatched: the same of the answers to other prompts, of the examples that have one.

    Returns:
        ∂loss/∂log-prob [response tokens] of each example, and the step's figures.
    """
    references = [example.mismatched_ref for example in examples if example.mismatched is not None]
    apart = [float(v.sum()) - reference for v, reference in zip(mismatched, references, strict=True)]
    mismatch_kl = max(0.0, sum(apart) / len(apart)) if apart else 0.0
    lengths = tuple(map(len, values))
    flat = torch.cat(list(values)).requires_grad_()
    shared = Shared.of(examples, mismatch_kl=mismatch_kl, kl_scale=kl_scale)
    batch = pack(examples, Scored(flat, lengths), shared)
    loss, figures = algorithm.loss(batch)
    if loss.requires_grad:
        loss.backward()
    gradient = torch.zeros_like(flat) if flat.grad is None else flat.grad
    return list(gradient.split(list(lengths))), {**figures, "drift": float(batch.token_mean(drift(batch)))}


def together(algorithm: Algorithm) -> int:
    """Examples that follow each other and may not be in two pieces."""
    return 2 if "pairs" in algorithms.needs(algorithm) else 1


@torch.no_grad()
def drift(batch: Batch) -> Tensor:
    """[N] how far each token has moved from the base: |d| + exp(−|d|) − 1 with d = log π − log π_ref.

    The smaller of the two k3 estimates of KL. The other one grows exponentially: a single token that a bad answer
    rightly lost would look like a runaway.
    """
    distance = (batch.logprobs - batch.ref_logprobs).abs()
    return distance + (-distance).expm1()


def _pairs(examples: Sequence[TrainingExample]) -> Tensor:
    """[P, 2]: those that are paired come in twos, the better one first."""
    places = [index for index, example in enumerate(examples) if example.paired]
    return torch.tensor(places, dtype=torch.int64).reshape(-1, 2)


def _exact(example: TrainingExample) -> bool:
    """Whether its divergence can be had exactly, or has no weight."""
    return example.base is not None or (example.kl_weight is not None and not example.kl_weight.any())
