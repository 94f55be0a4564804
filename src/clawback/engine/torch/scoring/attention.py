"""Attention over a packed batch: many sequences in one row, each attending to itself alone.

Registered with transformers under the name ``PACKED``. The lengths of the sequences are passed as a keyword
of the model's forward, ``packed_lengths``, which transformers hands down to the attention function of every
layer. A model family that does not hand it down, or needs a feature that is not implemented here, raises
``Unsupported``; the caller then uses padded batches.

Dense layers never see padding this way, and a mask of [T, T] is never made: there is one causal call per
sequence, whose cost is the sum of squared lengths instead of the square of the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

PACKED = "clawback_packed"


_WHOLE = 512
_ROUND = 32
"""Every shape of a 16-bit product has its own machine code, which is made and kept (half a gigabyte of it, for a run on sequences
of all lengths): so lengths are rounded up to few."""


class Unsupported(Exception):
    """This model's attention cannot be computed packed."""


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001 — part of the signature
    *,
    packed_lengths: Sequence[int] | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Query [1, heads, T, D], key and value [1, kv heads, T, D] → [1, T, heads, D].

    ``attention_mask`` is the caller's dummy and is not read. Grouped heads and Gemma's soft cap are honoured; learned sinks, and sequences longer than a sliding window, are not.
    """
    if packed_lengths is None or s_aux is not None or dropout or query.shape[0] != 1:
        raise Unsupported(type(module).__name__)
    lengths = list(packed_lengths)
    if sliding_window is not None and max(lengths) > sliding_window:
        raise Unsupported(f"{max(lengths)} tokens in a window of {sliding_window}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if softcap is None and max(lengths) <= whole_limit(query):
        return _Whole.apply(query, key, value, packing(tuple(lengths)), scale), None  # type: ignore[no-untyped-call]
    grouped = query.shape[1] != key.shape[1]
    outputs = []
    for q, k, v in zip(query.split(lengths, 2), key.split(lengths, 2), value.split(lengths, 2), strict=True):
        if softcap is not None:
            out = _capped(q, k, v, scale, softcap)
        else:
            out = scaled_dot_product_attention(
                q, k, v, is_causal=q.shape[2] > 1, scale=scale, enable_gqa=grouped
            )
        outputs.append(out.transpose(1, 2))
    return torch.cat(outputs, 1), None


@dataclass(frozen=True)
class _Group:
    """Sequences of like length in a packed row, and how they lie side by side in a block [sequences, width]."""

    width: int
    count: int
    spread: Tensor
    """[count · width] position in the row for each place of the block; padding repeats a position that is there."""
    rows: Tensor
    """[tokens] the same positions without padding."""
    places: Tensor
    """[tokens] where each of them is in the block."""


@lru_cache(maxsize=64)
def packing(lengths: tuple[int, ...]) -> tuple[_Group, ...]:
    """Sequences by length, rounded up to a multiple of ``_ROUND``."""
    starts = [0, *accumulate(lengths)]
    groups: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        groups.setdefault(-(-length // _ROUND) * _ROUND, []).append(index)
    result = []
    for width, members in sorted(groups.items()):
        first = torch.tensor([starts[i] for i in members])[:, None]
        sizes = torch.tensor([lengths[i] for i in members])[:, None]
        column = torch.arange(width)[None]
        spread = first + torch.minimum(column, sizes - 1)
        inside = (column < sizes).flatten()
        result.append(
            _Group(width, len(members), spread.flatten(), spread.flatten()[inside], inside.nonzero()[:, 0])
        )
    return tuple(result)


class _Whole(torch.autograd.Function):
    """Causal attention with its probabilities in one piece: for short sequences in 16 bits on a CPU.

    The blocks of the fused CPU kernel are too small there, and on the way back it converts every block: this is 3.5 times as
    fast at 200 tokens. Sequences of like length are one batch of products. Padding needs no mask: it lies in
    the future of every real token, and its own rows are dropped. Heads that share a key are rows of one product, so
    that keys are never repeated.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, groups: tuple[_Group, ...], scaling: float
    ) -> Tensor:
        """[1, heads, T, D] and twice [1, kv heads, T, D] → [1, T, heads, D]."""
        flat = [x[0].transpose(0, 1) for x in (query, key, value)]  # [T, heads, D]
        out = torch.empty_like(flat[0], memory_format=torch.contiguous_format)
        saved: list[Tensor] = []
        for group in groups:
            q, k, v = (_blocks(x, group, key.shape[1]) for x in flat)
            future = torch.full((group.width, group.width), -torch.inf).triu_(1)
            logits = torch.bmm(q, k.transpose(1, 2)).view(-1, group.width, group.width).float()
            weights = (
                logits.mul_(scaling).add_(future).softmax(-1).to(q.dtype).view(*q.shape[:2], group.width)
            )
            _unblock(torch.bmm(weights, v), group, out)
            saved += [q, k, v, weights]
        ctx.save_for_backward(*saved)
        ctx.groups, ctx.scaling = groups, scaling
        ctx.shapes = [x.shape for x in flat]
        return out[None]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad = grads[0][0]  # [T, heads, D]
        results = [grad.new_empty(shape) for shape in ctx.shapes]
        for index, group in enumerate(ctx.groups):
            q, k, v, weights = ctx.saved_tensors[4 * index : 4 * index + 4]
            block = grad.new_zeros(group.count * group.width, *grad.shape[1:])
            block.index_copy_(0, group.places, grad.index_select(0, group.rows))
            g = _by_head(block, group, ctx.shapes[1][1])
            back = torch.bmm(g, v.transpose(1, 2))
            back = torch._softmax_backward_data(back, weights, -1, weights.dtype).mul_(ctx.scaling)
            _unblock(torch.bmm(back, k), group, results[0])
            _unblock(torch.bmm(back.transpose(1, 2), q), group, results[1])
            _unblock(torch.bmm(weights.transpose(1, 2), g), group, results[2])
        q_grad, k_grad, v_grad = (x.transpose(0, 1)[None] for x in results)
        return q_grad, k_grad, v_grad, None, None


def _blocks(x: Tensor, group: _Group, shared: int) -> Tensor:
    """[T, heads, D] → [sequences · kv heads, repeats · width, D]."""
    return _by_head(x.index_select(0, group.spread), group, shared)


def _by_head(x: Tensor, group: _Group, shared: int) -> Tensor:
    """[sequences · width, heads, D] → [sequences · kv heads, repeats · width, D]."""
    return (
        x.view(group.count, group.width, *x.shape[1:])
        .transpose(1, 2)
        .reshape(group.count * shared, -1, x.shape[2])
    )


def _unblock(x: Tensor, group: _Group, out: Tensor) -> None:
    """[sequences · kv heads, repeats · width, D] into the rows of out [T, heads, D], without the padding."""
    heads, width = out.shape[1:]
    flat = x.view(group.count, heads, group.width, width).transpose(1, 2).reshape(-1, heads, width)
    out.index_copy_(0, group.rows, flat.index_select(0, group.places))


def whole_limit(query: Tensor) -> int:
    """Tokens of the longest sequence up to which ``_Whole`` is the faster one; 0: never."""
    return _WHOLE if query.device.type == "cpu" and query.dtype != torch.float32 else 0


def _capped(q: Tensor, k: Tensor, v: Tensor, scaling: float, softcap: float) -> Tensor:
    """Attention whose logits pass through ``softcap · tanh(· / softcap)``: no fused kernel does that on a CPU."""
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    logits = q @ k.transpose(2, 3) * scaling
    logits = softcap * torch.tanh(logits / softcap)
    future = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu_(1)
    logits = logits.masked_fill(future, -torch.inf)
    return logits.softmax(-1, dtype=torch.float32).to(q.dtype) @ v


def configs_of(model: nn.Module) -> list[Any]:
    """Every configuration in the model that names an attention implementation."""
    found = {id(part.config): part.config for part in model.modules() if hasattr(part, "config")}
    return [config for config in found.values() if hasattr(config, "_attn_implementation")]


@contextmanager
def engaged(configs: Sequence[Any]) -> Iterator[None]:
    """Use packed attention within, then what was there before.

    With gradient checkpointing the backward pass runs the layers again, so it has to be within as well.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(PACKED, packed_attention)
    before = [config._attn_implementation for config in configs]
    try:
        for config in configs:
            config._attn_implementation = PACKED
        yield
    finally:
        for config, name in zip(configs, before, strict=True):
            config._attn_implementation = name
