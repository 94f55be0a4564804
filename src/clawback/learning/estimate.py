"""What a run will need: memory, counted from shapes, and time, from the arithmetic and a short measurement of the machine.

Both are meant to be right within a factor of about 1.5: enough to say "this will take ten minutes" or "this will not fit".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback import devices
from clawback.models import ModelInfo
from clawback.policy.memory import (
    CPU_MICRO_TOKENS,
    Choice,
    DeviceMemory,
    decide,
    need,
    size_text,
    stored,
    weight_bytes,
)
from clawback.records import Sample

if TYPE_CHECKING:
    import torch

    from clawback.learning.recipe import Recipe
    from clawback.policy import Policy

_EFFICIENCY = 0.6
"""Share of the speed of a bare matrix product that a training step reaches."""
_TOKENS_PER_SAMPLE = 256


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run will need."""

    bytes: int
    seconds: float
    tokens: int
    steps: int
    free: int
    """Memory that is free now, in bytes."""

    def __str__(self) -> str:
        fits = "" if self.bytes <= self.free else ": more than there is"
        return (
            f"{self.steps} steps over {self.tokens:,} tokens: about {_span(self.seconds)}, "
            f"{size_text(self.bytes)} of memory ({size_text(self.free)} free{fits})"
        )


def prepare(policy: Policy, recipe: Recipe) -> Choice:
    """Set the policy up for training: how many tokens at once, and gradient checkpointing where it takes it.

    Raises ``TrainingError`` where it does not fit as it was loaded.
    """
    choice = choose(policy, recipe)
    if (
        recipe.gradient_checkpointing
        if recipe.gradient_checkpointing is not None
        else choice.gradient_checkpointing
    ):
        policy.checkpoint_layers()
    policy.scorer.micro_tokens = recipe.micro_tokens or choice.micro_tokens
    return choice


def choose(policy: Policy, recipe: Recipe) -> Choice:
    """How a loaded model can be trained in the memory there is. Raises ``TrainingError`` where it cannot."""
    device = policy.device
    held = stored(policy)
    memory = DeviceMemory(
        devices.free_bytes(device) + weight_bytes(policy.info, held),
        device.type,
        devices.total_bytes(device) if device.type == "cpu" else 0,
    )
    longest = min(policy.max_prompt + policy.max_response, max(policy.max_prompt, 4096))
    return decide(policy.info, memory, (held,), rank=_rank(recipe), longest=longest)


def _rank(recipe: Recipe) -> int | None:
    return None if recipe.full else recipe.rank


def estimate(
    info: ModelInfo,
    recipe: Recipe,
    *,
    policy: Policy | None = None,
    samples: Sequence[Sample] = (),
    count: int = 0,
) -> Estimate:
    """What a run of this recipe will need.

    Args:
        policy: where it is loaded: lengths are then counted with its tokenizer, and its device is measured.
        samples: the ratings; or
        count: how many there will be, of an ordinary length.
    """
    import torch

    lengths = [(len(e.prompt), len(e.response)) for e in map(policy.encode, samples)] if policy else []
    number = len(lengths) or len(samples) or count or 32
    tokens = sum(p + r for p, r in lengths) or number * _TOKENS_PER_SAMPLE
    responses = sum(r for _, r in lengths) or tokens // 2
    device = policy.device if policy else devices.choose()
    dtype = _dtype(policy, device)
    steps = recipe.steps_for(number)
    rounds = steps * min(recipe.batch * recipe.accumulation, number) / number
    head = info.hidden * info.vocabulary
    body = max(0, info.active_parameters - head)
    # Forward is 2 operations a weight and token, backward to the inputs 2 more; the reference is one forward.
    # With all weights trained, 2 more to the weights.
    work = (2 + (6 if recipe.full else 4) * rounds) * (body * tokens + head * responses)
    micro = policy.scorer.micro_tokens if policy else CPU_MICRO_TOKENS
    size = need(
        info,
        bits=32 if dtype == torch.float32 else 16,
        rank=_rank(recipe),
        micro_tokens=micro,
        checkpointing=bool(recipe.gradient_checkpointing),
        on_cpu=device.type == "cpu",
    )
    return Estimate(
        bytes=size,
        seconds=work / (speed(device, dtype) * _EFFICIENCY) + 0.01 * steps,
        tokens=int(tokens * rounds),
        steps=steps,
        free=devices.free_bytes(device),
    )


def speed(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of a matrix product here and now, from about 50 ms of them."""
    import time

    import torch

    left = torch.ones(512, 1024, device=device, dtype=dtype)
    right = torch.ones(1024, 1024, device=device, dtype=dtype)
    best = 0.0
    for _ in range(6):
        started = time.perf_counter()
        (left @ right).sum().item()
        best = max(best, 2 * 512 * 1024 * 1024 / (time.perf_counter() - started))
    return best


def _dtype(policy: Policy | None, device: torch.device) -> torch.dtype:
    import torch

    if policy is not None:
        return next(policy.model.parameters()).dtype
    return torch.float32 if device.type == "cpu" else torch.bfloat16


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
