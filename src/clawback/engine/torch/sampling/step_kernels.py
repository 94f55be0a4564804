"""What a decoder's step does between its products, compiled by numba: attention of one token a row over the cache, norms, and the activation.

PyTorch's attention on a CPU is made for many queries: for one, it computes up to the longest row, and of 16 bits it converts all keys first. Here a row reads
its own columns, and while it works on keys, the values and the next keys are fetched. Turning keys, writing and reading them is one pass, and so is a norm, in
place of eight operations.

Kernels are made for the sizes of a model and kept on disk by numba: they are compiled once a machine. Rows are shared out among the threads that PyTorch
computes with; what a row gets does not depend on their number. Numbers of 16 bits are handed over as their bits.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from clawback.engine.torch.sampling.products import Norm

log = logging.getLogger("clawback.engine")
_Made = TypeVar("_Made")
_WORTH_SHARING_OUT = 2**19
"""Numbers to be read from which on several threads are quicker than one."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """For tensors on a CPU of one dtype, and one model's numbers of heads."""

    _attend: Callable[..., None]
    _add_norm: Callable[..., None]
    _gate: Callable[..., None]

    def attend(
        self,
        qkv: Tensor,
        turns: tuple[Tensor, Tensor],
        slots: Tensor,
        position: Tensor,
        parts: Sequence[int],
        keys: Tensor,
        values: Tensor,
        scale: float,
    ) -> Tensor:
        """Turn queries and keys to their positions, write keys and values into the cache, and attend: [rows, heads · size].

        Args:
            qkv: [rows, (heads + 2 · kv heads) · size] as they come from their product.
            turns: cos and sin [rows, size], float32.
            slots, position: [rows] int64, the slot of the cache and the column of each row's token.
            parts: where the tokens of each slot begin among the rows, and where the last end: they follow each other, in order of their columns. Rows beyond are of nobody.
            keys, values: [slots, kv heads, columns, size].
        """
        rows, each = parts[-1], keys.shape[1] * keys.shape[3]
        mixed = qkv.new_empty(len(qkv), qkv.shape[1] - 2 * each)
        if rows < len(qkv):
            mixed[rows:] = 0
        work = partial(
            self._attend, _bits(qkv), *(turn.numpy() for turn in turns), slots.numpy(), position.numpy(),
            _bits(keys), _bits(values), scale, _bits(mixed),
        )  # fmt: skip
        _shared_out(work, parts, 2 * rows * each * keys.shape[2])
        return mixed

    def add_norm(self, h: Tensor, more: Tensor, norm: Norm) -> Tensor:
        """Add ``more`` to the residual stream ``h`` (both [rows, H], ``h`` float32 and changed in place): its norm."""
        normed = torch.empty_like(more)
        work = partial(
            self._add_norm, h.numpy(), _bits(more), norm.weight.numpy(), norm.epsilon, _bits(normed)
        )
        _shared_out(work, range(len(h) + 1), 2 * h.numel())
        return normed

    def gated(self, gate_up: Tensor) -> Tensor:
        """SiLU of the first half of ``gate_up`` [rows, 2 · I] times the other."""
        rows, both = gate_up.shape
        out = gate_up.new_empty(rows, both // 2)
        _shared_out(partial(self._gate, _bits(gate_up), _bits(out)), range(rows + 1), 4 * out.numel())
        return out


@lru_cache
def kernels_for(dtype: torch.dtype, heads: int, kv_heads: int, size: int) -> Kernels | None:
    """None where there are none: for another dtype, without numba, or where it cannot compile them here."""
    compiled = _compiled()
    if compiled is None or dtype not in _KNOWN:
        return None

    def made() -> Kernels:
        kernels = Kernels(compiled.attention(heads, kv_heads, size), compiled.add_norm, compiled.gate)
        x, cache = torch.zeros(1, (heads + 2 * kv_heads) * size, dtype=dtype), (1, kv_heads, 1, size)
        keys, values = torch.zeros(cache, dtype=dtype), torch.zeros(cache, dtype=dtype)
        turns, first = (torch.ones(1, size), torch.zeros(1, size)), torch.zeros(1, dtype=torch.int64)
        kernels.attend(x, turns, first, first.clone(), [0, 1], keys, values, 1.0)
        kernels.add_norm(torch.ones(1, size), x[:, :size].contiguous(), Norm(torch.ones(size), 1e-5))
        kernels.gated(x[:, : 2 * (size // 2)].contiguous())
        return kernels

    return _tried(made)


def exponentials(logits: Tensor, scale: float, block: int) -> tuple[Tensor, Tensor] | None:
    """exp((z − max z) / ``scale``) of ``logits`` [rows, n], and its sums over blocks [rows, n / ``block``], in float32; None where there is no kernel."""
    compiled = _compiled()
    if compiled is None or logits.device.type != "cpu" or logits.dtype not in _KNOWN:
        return None
    kernel = _exponentials(logits.dtype, block)
    return None if kernel is None else _exponentials_of(kernel, logits.detach().contiguous(), scale, block)


def _exponentials_of(
    kernel: Callable[..., None], logits: Tensor, scale: float, block: int
) -> tuple[Tensor, Tensor]:
    p = torch.empty(logits.shape)
    sums = torch.empty(len(logits), logits.shape[1] // block)
    work = partial(kernel, _bits(logits), scale, p.numpy(), sums.numpy())
    _shared_out(work, range(len(logits) + 1), 4 * logits.numel())
    return p, sums


@lru_cache
def _exponentials(dtype: torch.dtype, block: int) -> Callable[..., None] | None:
    def made() -> Callable[..., None]:
        kernel: Callable[..., None] = _compiled().exponentials(block)
        _exponentials_of(kernel, torch.zeros(1, block, dtype=dtype), 1.0, block)
        return kernel

    return _tried(made)


_KNOWN = (torch.float32, torch.bfloat16)


@lru_cache
def _compiled() -> Any:
    try:
        from clawback.engine.torch.sampling import compiled
    except (ImportError, RuntimeError):  # the latter where numba finds no folder to keep what it compiles in
        return None
    return compiled


def _tried(make: Callable[[], _Made]) -> _Made | None:
    """What is made, once it was compiled and has run."""
    try:
        return make()
    except Exception as error:  # whatever stands in the way of compiling on this machine does not stand in the way of drawing
        log.warning("Drawing is slower here: numba cannot compile its steps (%s: %s).", type(error).__name__, error)  # fmt: skip
        return None


def _bits(x: Tensor) -> Any:
    """As NumPy sees it, which has no bfloat16."""
    return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()


_POOL: list[ThreadPoolExecutor] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOL.clear)  # its threads are not there


def _shared_out(work: Callable[[int, int], None], parts: Sequence[int], numbers: int) -> None:
    """Do ``work(first, last)`` for all rows, which are cut at ``parts`` alone. It lets go of the interpreter's lock."""
    count = len(parts) - 1
    threads = min(torch.get_num_threads(), count, numbers // _WORTH_SHARING_OUT)
    if threads < 2:
        work(parts[0], parts[-1])
        return
    if not _POOL:
        _POOL.append(ThreadPoolExecutor(thread_name_prefix="attend"))
    bounds = [parts[count * i // threads] for i in range(threads + 1)]
    others = [_POOL[0].submit(work, bounds[i], bounds[i + 1]) for i in range(1, threads)]
    work(bounds[0], bounds[1])
    for other in others:
        other.result()
