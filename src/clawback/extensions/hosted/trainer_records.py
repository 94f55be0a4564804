"""The records that go to a trainer and come back, in Tinker's terms, and the verbs that every such trainer has. No HTTP, no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from clawback.errors import Interrupted

Floats = Sequence[float]


class HostedError(Interrupted):
    """A hosted trainer cannot be reached, refuses, or answers with what is no answer. ``status``: the HTTP status of a refusal, else 0."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class ServiceUnanswered(HostedError):
    """Nothing answered in time, or nothing but requests to come again."""


class Forgotten(HostedError):
    """The trainer does not know the model any more: it was restarted, or the session ended there."""


class CapReached(HostedError):
    """The next request would cost more than the settings allow."""


@dataclass(frozen=True, slots=True)
class Datum:
    """One sequence with what its loss needs. All inputs are of one length, and aligned to the next token: position i of ``tokens`` predicts
    ``inputs["target_tokens"][i]``."""

    tokens: tuple[int, ...]
    inputs: Mapping[str, Sequence[float]]
    """``target_tokens`` (whole numbers), and by loss: ``weights``; or ``logprobs`` and ``advantages``."""

    @classmethod
    def of(cls, ids: Sequence[int], **inputs: Sequence[float]) -> Datum:
        """A whole sequence, shifted by one: each token but the last is read, each but the first is predicted."""
        return cls(tuple(ids[:-1]), {"target_tokens": tuple(ids[1:]), **inputs})


@dataclass(frozen=True, slots=True)
class AdamParams:
    """Of one optimizer step."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0
    """0: no clipping."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None
    stop: tuple[int, ...] | None = None
    """Token ids; None: the model's own end."""


@dataclass(frozen=True, slots=True)
class SampledSequence:
    """One sampled answer."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: str
    """``stop`` or ``length``."""


@dataclass(frozen=True, slots=True)
class ForwardScores:
    """What a forward pass gave."""

    logprobs: tuple[tuple[float, ...], ...]
    """Of each target of each datum."""
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prices:
    """Money for a million tokens."""

    train: float = 0.0
    """Forward and backward."""
    prefill: float = 0.0
    """A forward pass alone, and what a sampler reads."""
    sample: float = 0.0
    """What a sampler writes."""
    hour: float = 0.0
    """Not for tokens: for each hour that a machine stands by (Fireworks)."""


@dataclass(frozen=True, slots=True)
class HostedCost:
    """What has been paid for: each request once, however often it had to be sent."""

    requests: int = 0
    train: int = 0
    prefill: int = 0
    sample: int = 0
    seconds: float = 0.0
    """For which a machine stood by."""

    def __add__(self, other: HostedCost) -> HostedCost:
        return HostedCost(
            self.requests + other.requests,
            self.train + other.train,
            self.prefill + other.prefill,
            self.sample + other.sample,
            self.seconds + other.seconds,
        )

    @property
    def tokens(self) -> int:
        return self.train + self.prefill + self.sample

    def money(self, prices: Prices) -> float:
        tokens = prices.train * self.train + prices.prefill * self.prefill + prices.sample * self.sample
        return tokens / 1e6 + prices.hour * self.seconds / 3600


class HostedTrainer(Protocol):
    """One LoRA that is trained elsewhere. ``key`` names a request within its run: repeated under the same key,
    also by a later process, it is the same request, and neither executed nor paid twice.
    """

    def forward(self, key: str, data: Sequence[Datum]) -> ForwardScores:
        """Log-probs, without gradients."""
        ...

    def forward_backward(
        self, key: str, data: Sequence[Datum], loss: str, config: Mapping[str, float] | None = None
    ) -> ForwardScores:
        """Log-probs, with the gradient of a loss that the trainer knows added to those that wait for the next step."""
        ...

    def optim_step(self, key: str, params: AdamParams) -> Mapping[str, float]: ...

    def sample(
        self, key: str, prompt: Sequence[int], count: int, params: SamplingParams, path: str = ""
    ) -> Sequence[SampledSequence]:
        """From weights that were saved for a sampler, or from the base model."""
        ...

    def save_state(self, key: str, name: str) -> str:
        """Weights and optimizer, kept over there: the path that ``load_state`` takes."""
        ...

    def load_state(self, key: str, path: str) -> None: ...

    def export(self, key: str, name: str, folder: Path) -> None:
        """The adapter as a PEFT folder on this machine."""
        ...
