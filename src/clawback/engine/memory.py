"""What a run will need, said before it begins; and on CUDA, how to make it fit.

The estimate of memory is counted from shapes, that of time from the arithmetic and a short measurement of the machine. Both
are meant to be right within a factor of about 1.5: enough to say "this will take ten minutes" or "this will not fit".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback.engine.types import ModelInfo
from clawback.errors import TrainingError
from clawback.records import Sample

if TYPE_CHECKING:
    import torch

    from clawback.engine.recipe import Recipe
    from clawback.engine.torch.policy import Policy

CPU_MICRO_TOKENS = 512
"""On a CPU matrix products are at full speed from a few hundred rows on, and activations grow with every row."""
CUDA_MICRO_TOKENS = 8192
_PROCESS = 500 << 20
"""Python with torch and transformers loaded, in bytes."""
_CUDA_CONTEXT = 700 << 20
_BYTES_4BIT = 0.56
"""NF4 with double quantisation, and what stays in 16 bits around it."""
_EFFICIENCY = 0.6
"""Share of the speed of a bare matrix product that a training step reaches."""
_TOKENS_PER_SAMPLE = 256


@dataclass(frozen=True, slots=True)
class Choice:
    """How to hold a model in memory while it is trained."""

    load_in_4bit: bool
    gradient_checkpointing: bool
    micro_tokens: int
    bytes: int


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
            f"{_size(self.bytes)} of memory ({_size(self.free)} free{fits})"
        )


def need(
    info: ModelInfo, *, bits: int, rank: int, micro_tokens: int, checkpointing: bool, on_cpu: bool = False
) -> int:
    """Bytes at the peak of a training step.

    Args:
        bits: of a stored weight: 32, 16 or 4.
        micro_tokens: tokens that go through the model at once.
        checkpointing: keep only the inputs of layers, and compute each layer again going backward.
    """
    each = {32: 4.0, 16: 2.0, 4: _BYTES_4BIT}[bits]
    width = 4 if bits == 32 else 2
    linear = (4 * info.hidden + 3 * info.hidden + 3 * info.intermediate) * max(1, info.experts)
    lora = linear * rank * info.layers
    # Kept for the way back, a token and layer: norms, q k v and their rotation, attention out, three of the MLP.
    layer = (14 * info.hidden + 5 * info.intermediate) * width
    kept = info.hidden * width * info.layers + layer if checkpointing else layer * info.layers
    head = (3 * 2048 + 3 * info.hidden) * 4
    weights = int(info.total_parameters * each) + lora * 4 * 5
    return weights + micro_tokens * (kept + head) + (_PROCESS if on_cpu else _CUDA_CONTEXT)


def decide(
    info: ModelInfo, *, free: int, rank: int, allow_4bit: bool | None = None, longest: int = 2048
) -> Choice:
    """The first of these that fits into ``free`` bytes of CUDA memory, from the fastest to the smallest: 16-bit
    weights; with gradient checkpointing; 4-bit weights; 4-bit with checkpointing.

    Args:
        allow_4bit: True: 4-bit only; False: never; None: where it takes it.
        longest: tokens of the longest sequence; no piece can be shorter.

    Raises:
        TrainingError: nothing fits. Says how much is missing.
    """
    smallest = 0
    for bits, checkpointing in ((16, False), (16, True), (4, False), (4, True)):
        if (bits == 4 and allow_4bit is False) or (bits == 16 and allow_4bit is True):
            continue
        for micro in (CUDA_MICRO_TOKENS, CUDA_MICRO_TOKENS // 2, longest):
            tokens = max(micro, longest)
            smallest = need(info, bits=bits, rank=rank, micro_tokens=tokens, checkpointing=checkpointing)
            if smallest * 1.1 <= free:
                return Choice(bits == 4, checkpointing, tokens, smallest)
    raise TrainingError(
        f"{info.base} does not fit: it needs about {_size(smallest)} of GPU memory and {_size(free)} is free. "
        "Free some, choose a smaller model, or train on the CPU."
    )


def prepare(policy: Policy, recipe: Recipe) -> Choice:
    """Set the policy up for training: how many tokens at once, and gradient checkpointing where it takes it."""
    import torch

    device = policy.device
    longest = min(policy.max_prompt + policy.max_response, 4096)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        held = torch.cuda.memory_allocated(device)
        quantised = getattr(policy.model, "is_loaded_in_4bit", False)
        choice = decide(
            policy.info, free=free + held, rank=recipe.rank, allow_4bit=quantised, longest=longest
        )
    else:
        bits = 32 if next(policy.model.parameters()).dtype == torch.float32 else 16
        size = need(
            policy.info,
            bits=bits,
            rank=recipe.rank,
            micro_tokens=CPU_MICRO_TOKENS,
            checkpointing=False,
            on_cpu=True,
        )
        choice = Choice(False, False, CPU_MICRO_TOKENS, size)
    if (
        recipe.gradient_checkpointing
        if recipe.gradient_checkpointing is not None
        else choice.gradient_checkpointing
    ):
        policy.checkpoint_layers()
    policy.scorer.micro_tokens = recipe.micro_tokens or choice.micro_tokens
    return choice


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
    device = policy.device if policy else torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = _dtype(policy, device)
    steps = recipe.steps_for(number)
    rounds = steps * min(recipe.batch * recipe.accumulation, number) / number
    head = info.hidden * info.vocabulary
    body = max(0, info.active_parameters - head)
    # Forward is 2 operations a weight and token, backward to the inputs 2 more; the reference is one forward.
    work = (2 + 4 * rounds) * (body * tokens + head * responses)
    micro = policy.scorer.micro_tokens if policy else CPU_MICRO_TOKENS
    size = need(
        info,
        bits=32 if dtype == torch.float32 else 16,
        rank=recipe.rank,
        micro_tokens=micro,
        checkpointing=bool(recipe.gradient_checkpointing),
        on_cpu=device.type == "cpu",
    )
    return Estimate(
        bytes=size,
        seconds=work / (speed(device, dtype) * _EFFICIENCY) + 0.01 * steps,
        tokens=int(tokens * rounds),
        steps=steps,
        free=free_bytes(device),
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


def free_bytes(device: torch.device) -> int:
    """Memory that is free on a device."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    import psutil

    return int(psutil.virtual_memory().available)


def _dtype(policy: Policy | None, device: torch.device) -> torch.dtype:
    import torch

    if policy is not None:
        return next(policy.model.parameters()).dtype
    return torch.float32 if device.type == "cpu" else torch.bfloat16


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
