"""Chooses, before loading, how a model is held in memory so that it fits. The bytes are counted from shapes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clawback import devices, installed
from clawback.errors import DoesNotFit, MissingExtra, TrainingError, UsageError
from clawback.models import Bits, ModelInfo

if TYPE_CHECKING:
    import torch

    from clawback.policy.policy import Policy

CPU_MICRO_TOKENS = 512
"""On a CPU the products of the layers are at full speed from a few hundred rows on, and activations grow with every row."""
_LARGER_PIECES = (2048, 1024)
_SHARE = 1 / 16
"""The LM head is at full speed only from some 500 *response* tokens on, since its weights are read from memory for every piece: larger pieces
are taken on a CPU where their activations are this share of the machine's memory."""
CUDA_MICRO_TOKENS = 8192
_PROCESS = 500 << 20
"""Python with torch and transformers loaded, in bytes."""
_CUDA_CONTEXT = 700 << 20
_BYTES = {32: 4.0, 16: 2.0, 8: 1.01, 4: 0.52}
"""Of a stored weight: float32; bfloat16; LLM.int8 with its scales; NF4 with double quantisation (Dettmers et al. 2023, arXiv:2305.14314)."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""``M_…`` of glibc's malloc.h."""
_MMAP_MOST = 32 << 20
"""What glibc before 2.35 takes as ``M_MMAP_THRESHOLD`` at most."""
_SPARE = 1.1
"""What has to be free for each byte that is counted: allocators leave gaps."""
_RANK = 16
"""Of the adapter, where a model is loaded before its recipe is known."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How to hold a model in memory while it is trained."""

    bits: Bits
    gradient_checkpointing: bool
    micro_tokens: int
    """Tokens that go through the model at once."""
    bytes: int
    """At the peak of a training step."""


def give_back() -> None:
    """Have the C library return to the system what was freed: glibc keeps it in pieces, and a run that draws, trains and judges in turn would
    hold the peaks of all three at once. Elsewhere nothing is done."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def keep_freed(count: int) -> None:
    """Have glibc keep so many freed bytes for the next pass. What it gives back it asks for again, page by page: a quarter of the time of
    a small model's forward pass. Elsewhere nothing is done."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_TRIM_THRESHOLD, count)
        libc.mallopt(_MMAP_THRESHOLD, min(count, _MMAP_MOST))


def weight_bytes(info: ModelInfo, bits: Bits) -> int:
    """Of the frozen weights. Embeddings and the LM head are not quantised."""
    whole = info.hidden * info.vocabulary if bits < 16 else 0
    return int((info.total_parameters - whole) * _BYTES[bits] + whole * _BYTES[16])


def need(
    info: ModelInfo,
    *,
    bits: Bits,
    rank: int | None,
    micro_tokens: int,
    checkpointing: bool,
    on_cpu: bool = False,
) -> int:
    """Bytes at the peak of a training step.

    Args:
        bits: of a stored weight.
        rank: of the adapter; None: all weights of the layers are trained.
        micro_tokens: tokens that go through the model at once.
        checkpointing: keep only the inputs of layers, and compute each layer again going backward.
    """
    width = 4 if bits == 32 else 2
    linear = (4 * info.hidden + 3 * info.hidden + 3 * info.intermediate) * max(1, info.experts)
    # Trained: the values, their gradient, two moments of Adam, and the last good ones. Of all weights each layer's sums are kept for the way back, too.
    if rank is not None:
        trained = linear * rank * info.layers * 4 * 5
    else:
        trained = max(0, info.total_parameters - info.hidden * info.vocabulary) * (4 * 5 + width)
    kept = micro_tokens * _activation_bytes(info, width, checkpointing)
    return weight_bytes(info, bits) + trained + kept + (_PROCESS if on_cpu else _CUDA_CONTEXT)


def _activation_bytes(info: ModelInfo, width: int, checkpointing: bool) -> int:
    """Bytes a token that goes through the model at once, of numbers of ``width`` bytes."""
    # For the way back, a token and layer: norms, q k v and their rotation, attention out, three of the MLP.
    layer = (14 * info.hidden + 5 * info.intermediate) * width
    layers = info.hidden * width * info.layers + layer if checkpointing else layer * info.layers
    return layers + (3 * 2048 + 3 * info.hidden) * 4


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The memory of the device that trains."""

    free: int
    """Bytes that the model may take, those that it holds already included."""
    kind: str = "cuda"
    """Of device: ``cuda``, ``mps`` or ``cpu``."""
    total: int = 0
    """Bytes that the machine has. What is chosen by it is the same at every run, which what is free is not."""


def decide(
    info: ModelInfo,
    memory: DeviceMemory,
    bits: Sequence[Bits],
    *,
    rank: int | None = _RANK,
    longest: int = 2048,
) -> Choice:
    """The first way to hold a model that fits into the free memory: each of ``bits`` in turn, first as it is, then with gradient checkpointing.

    Args:
        bits: the ways to store a weight that are allowed, best first.
        rank: as for ``need``.
        longest: tokens of the longest sequence; no piece can be shorter.

    Raises:
        TrainingError: nothing fits. Says how much is missing, and what would fit.
    """
    # What Python and torch take is gone from the free memory already.
    kind = memory.kind
    paid, smallest = (_PROCESS if kind == "cpu" else 0), 0
    for width in bits:
        for checkpointing in (False, True):
            for micro in _pieces(info, width, checkpointing, kind, longest, memory.total):
                # On a CPU a longer sequence goes through alone, now and then: it is not what memory is laid out for.
                tokens = micro if kind == "cpu" else max(micro, longest)
                size = need(
                    info,
                    bits=width,
                    rank=rank,
                    micro_tokens=tokens,
                    checkpointing=checkpointing,
                    on_cpu=kind == "cpu",
                )
                if (size - paid) * _SPARE <= memory.free:
                    return Choice(width, checkpointing, tokens, size)
                smallest = min(smallest or size, size)
    raise DoesNotFit(_too_large(info, smallest - paid, memory, bits, full=rank is None))


def _pieces(
    info: ModelInfo, bits: Bits, checkpointing: bool, kind: str, longest: int, total: int
) -> tuple[int, ...]:
    """Tokens that may go through the model at once, the best first."""
    if kind != "cpu":
        return (CUDA_MICRO_TOKENS, CUDA_MICRO_TOKENS // 2, longest)
    a_token = _activation_bytes(info, 4 if bits == 32 else 2, checkpointing)
    # The head of the smallest models stays in the processor's cache.
    larger = () if info.bucket == "micro" else _LARGER_PIECES
    affordable = [tokens for tokens in larger if tokens * a_token <= total * _SHARE]
    return (*affordable[:1], CPU_MICRO_TOKENS, CPU_MICRO_TOKENS // 2)


def holds(info: ModelInfo, device: torch.device, dtype: str, load_in_4bit: bool | None) -> Bits:
    """How the weights of a model should be stored, chosen before any is read, so that it can be trained.

    Where nothing is small enough to be trained, the smallest in which it can at least answer.

    Args:
        dtype: ``auto``, ``float32`` or ``bfloat16``.
        load_in_4bit: True: 4-bit; False: not quantised; None: what fits.

    Raises:
        UsageError: 4-bit weights where they cannot be had.
        TrainingError: not even the weights fit. Says what would.
    """
    widths, free = allowed(info, device, dtype, load_in_4bit), devices.free_bytes(device)
    try:
        return decide(info, DeviceMemory(free, device.type), widths).bits
    except TrainingError:
        for width in widths:
            if weight_bytes(info, width) * _SPARE <= free:
                return width
        raise


def allowed(info: ModelInfo, device: torch.device, dtype: str, load_in_4bit: bool | None) -> tuple[Bits, ...]:
    """The ways to store a weight that the settings and the device leave, best first."""
    if load_in_4bit:
        if device.type != "cuda":
            raise UsageError(f"4-bit weights need CUDA. Leave load_in_4bit out on {device.type}.")
        if not devices.has_bitsandbytes():
            raise MissingExtra(f"4-bit weights need bitsandbytes. Run: {installed.add('cuda')}")
        return (4,)
    quantised: tuple[Bits, ...] = ()
    if load_in_4bit is None and device.type == "cuda" and devices.has_bitsandbytes():
        quantised = (8, 4)
    if dtype == "float32":
        return (32,)
    if dtype == "bfloat16" or device.type != "cpu":
        return (16, *quantised)
    # What is small enough for float32 to cost nothing that anybody waits for stays in it.
    quick = devices.multiplies_bfloat16() and info.bucket != "micro"
    return (16,) if quick else (32, 16)


def _too_large(
    info: ModelInfo, smallest: int, memory: DeviceMemory, bits: Sequence[Bits], *, full: bool
) -> str:
    free, kind = memory.free, memory.kind
    where = "memory" if kind == "cpu" else "GPU memory"
    if full:
        return (
            f"All weights of {info.base} cannot be trained here: that needs about {size_text(smallest)} of {where}, and {size_text(max(0, free))} is free. "
            "An adapter needs much less: `clawback config set training.full false`."
        )
    fixed = 0 if kind == "cpu" else _CUDA_CONTEXT
    fits = info.total_parameters * (free / _SPARE - fixed) / max(1, smallest - fixed)
    would = f"a model of up to about {_count(fits)} parameters" if fits > 1e6 else "more free memory"
    if kind == "cuda" and 4 not in bits:
        would += f", weights in 4 bits ({installed.add('cuda')}, load_in_4bit not false)"
    return (
        f"{info.base} does not fit: training it needs about {size_text(smallest)} of {where} at its smallest ({min(bits)} bits a weight) "
        f"and {size_text(max(0, free))} is free. What would fit: {would}, a hosted trainer, or a learned prompt, which needs no training."
    )


def stored(policy: Policy) -> Bits:
    """How the weights of a loaded model are stored."""
    import torch

    model: Any = policy.model
    if getattr(model, "is_loaded_in_4bit", False):
        return 4
    if getattr(model, "is_loaded_in_8bit", False):
        return 8
    return 32 if next(policy.model.parameters()).dtype == torch.float32 else 16


def size_text(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _count(number: float) -> str:
    return f"{number / 1e9:.1f} billion" if number >= 1e9 else f"{number / 1e6:.0f} million"
