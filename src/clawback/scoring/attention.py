"""Attention over a packed batch: many sequences in one row, each attending to itself alone.

Registered with transformers under the name ``PACKED``. Where the sequences are in the row is passed as a keyword
of the model's forward, ``packed_layout``, which transformers hands down to the attention function of every
layer. A model family that does not hand it down, or needs a feature that is not implemented here, raises
``Unsupported``; the caller then uses padded batches.

A beginning that a sequence has in common with the one before it (a system message, the prompt of several answers) is
in the row once. Its states are the same for both, and its gradient is the sum of theirs, so that nothing is approximated.

Dense layers never see padding this way, and a mask of [T, T] is never made: there is one causal call per
sequence, whose cost is the sum of squared lengths instead of the square of the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from clawback.scoring import branches

PACKED = "clawback_packed"


_WHOLE = 512
_ROUND = 32
"""Every shape of a 16-bit product has its own machine code, which is made and kept (half a gigabyte of it, for a run on sequences
of all lengths): so lengths are rounded up to few."""


class Unsupported(Exception):
    """This model's attention cannot be computed packed."""


@dataclass(frozen=True)
class Layout:
    """Which sequences are in a packed row."""

    lengths: tuple[int, ...]
    """Tokens of each, those of its shared beginning included."""
    shared: tuple[int, ...]
    """First tokens of each that are those of the sequence before it: fewer than it has."""

    @classmethod
    def of(cls, sequences: Sequence[tuple[int, ...]], grain: int) -> Layout:
        """The layout of token sequences in the order given. ``grain``: as in ``common``; 0: nothing is shared."""
        pairs = zip(((), *sequences), sequences, strict=False)
        shared = tuple(common(before, one, grain) if grain else 0 for before, one in pairs)
        return cls(tuple(map(len, sequences)), shared)

    @property
    def new(self) -> tuple[int, ...]:
        """Tokens of each that are in the row for it alone, or for it first."""
        return tuple(n - s for n, s in zip(self.lengths, self.shared, strict=True))

    def places(self) -> list[list[int]]:
        """Where in the row the tokens of each sequence are."""
        found: list[list[int]] = []
        start = 0
        for shared, new in zip(self.shared, self.new, strict=True):
            before = found[-1][:shared] if shared else []
            found.append([*before, *range(start, start + new)])
            start += new
        return found


def common(earlier: tuple[int, ...], later: tuple[int, ...], grain: int) -> int:
    """Tokens of the beginning that two sequences share, in multiples of ``grain``, and never the whole of the second. Few are not worth it."""
    count, most = 0, min(len(earlier), len(later) - 1)
    while count + _ROUND <= most and earlier[count : count + _ROUND] == later[count : count + _ROUND]:
        count += _ROUND
    if not count or grain == _ROUND:
        return count
    while count < most and earlier[count] == later[count]:
        count += 1
    return count - count % grain


def grain_of(weight: Tensor) -> int:
    """Multiples of how many tokens are shared where weights are of this kind: one, or where attention is computed in one piece few lengths."""
    return _ROUND if whole_limit(weight) else 1


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001 — part of the signature
    *,
    packed_layout: Layout | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Query [1, heads, T, D], key and value [1, kv heads, T, D] → [1, T, heads, D].

    ``attention_mask`` is the caller's dummy and is not read. Grouped heads and Gemma's soft cap are honoured; learned sinks, and sequences longer than a sliding window, are not.
    """
    if packed_layout is None or s_aux is not None or dropout or query.shape[0] != 1:
        raise Unsupported(type(module).__name__)
    longest = max(packed_layout.lengths)
    if sliding_window is not None and longest > sliding_window:
        raise Unsupported(f"{longest} tokens in a window of {sliding_window}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if softcap is None and longest <= whole_limit(query):
        return _Whole.apply(query, key, value, packing(packed_layout), scale), None  # type: ignore[no-untyped-call]
    one_piece = softcap is None and query.device.type == "cpu" and query.dtype == torch.float32
    several = branches.find(packed_layout.lengths, packed_layout.shared) if one_piece else {}
    joined = {i for place, (count, _) in several.items() for i in range(place + 1, place + count)}
    outputs: list[Tensor] = []
    for place, q, k, v in _apart(query, key, value, packed_layout, joined):
        outputs.append(_alone(q, k, v, scale, softcap))
        if place in several:
            plan = several[place][1]
            row = slice(plan.start, plan.end)
            queries = query[0, :, plan.start + plan.first : plan.end]
            out = branches.Attention.apply(queries, key[0, :, row], value[0, :, row], plan, scale)  # type: ignore[no-untyped-call]
            outputs.append(out[None])
    return torch.cat(outputs, 1), None


def _alone(q: Tensor, k: Tensor, v: Tensor, scale: float, softcap: float | None) -> Tensor:
    """One sequence: [1, heads, new tokens, D] over [1, kv heads, all tokens, D] → [1, new tokens, heads, D]."""
    grouped = q.shape[1] != k.shape[1]
    if softcap is not None:
        out = _capped(q, k, v, scale, softcap)
    elif q.shape[2] == k.shape[2]:
        out = scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1, scale=scale, enable_gqa=grouped)
    else:
        seen = ~_future(q.shape[2], k.shape[2], q.device)
        out = scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale, enable_gqa=grouped)
    return out.transpose(1, 2)


def _apart(
    query: Tensor, key: Tensor, value: Tensor, layout: Layout, joined: Set[int]
) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """For each sequence but those that are ``joined`` to others its number, the queries of its new tokens, and the keys and values of all of its tokens."""
    alone = [i for i in range(len(layout.lengths)) if i not in joined]
    ends = list(accumulate(layout.new))
    queries = [query[:, :, ends[i] - layout.new[i] : ends[i]] for i in alone]
    if any(layout.shared[i] for i in alone):
        places = layout.places()
        wanted = torch.tensor([at for i in alone for at in places[i]], device=key.device)
        lengths = [layout.lengths[i] for i in alone]
        keys, values = (x.index_select(2, wanted).split(lengths, 2) for x in (key, value))
    else:
        keys, values = (
            tuple(x[:, :, ends[i] - layout.new[i] : ends[i]] for i in alone) for x in (key, value)
        )
    yield from zip(alone, queries, keys, values, strict=True)


def _future(new: int, all_of_it: int, device: torch.device) -> Tensor:
    """[new, all] bool: what the last ``new`` tokens of a sequence do not see."""
    ahead = torch.ones(new, all_of_it, dtype=torch.bool, device=device)
    return ahead.triu_(1 + all_of_it - new)


@dataclass(frozen=True)
class _Group:
    """Sequences of like length in a packed row, and how they lie side by side in a block [sequences, width]."""

    width: int
    """New tokens of the longest, rounded up."""
    shared: int
    """Tokens before those that are shared with an earlier sequence."""
    count: int
    spread: Tensor
    """[count · width] position in the row for each place of the block; padding repeats a position that is there."""
    rows: Tensor
    """[tokens] the same positions without padding."""
    places: Tensor
    """[tokens] where each of them is in the block."""
    key_spread: Tensor
    """[count · (shared + width)] as ``spread``, for the block of keys."""
    key_rows: Tensor
    key_places: Tensor


@lru_cache(maxsize=64)
def packing(layout: Layout) -> tuple[_Group, ...]:
    """Sequences by length, rounded up to a multiple of ``_ROUND``."""
    groups: dict[tuple[int, int], list[list[int]]] = {}
    for row, shared, new in zip(layout.places(), layout.shared, layout.new, strict=True):
        groups.setdefault((shared, -(-new // _ROUND) * _ROUND), []).append(row)
    result = []
    for (shared, width), rows in sorted(groups.items(), key=lambda item: item[0]):
        queries = _block([row[shared:] for row in rows], width)
        keys = queries if not shared else _block(rows, shared + width)
        result.append(_Group(width, shared, len(rows), *queries, *keys))
    return tuple(result)


def _block(rows: Sequence[Sequence[int]], width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Positions padded to a width, the same without padding, and where in the block those are."""
    spread = torch.tensor([[*row, *[row[-1]] * (width - len(row))] for row in rows])
    sizes = torch.tensor([len(row) for row in rows])[:, None]
    inside = (torch.arange(width)[None] < sizes).flatten()
    return spread.flatten(), spread.flatten()[inside], inside.nonzero()[:, 0]


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
            whole = group.shared + group.width
            q = _by_head(flat[0].index_select(0, group.spread), group.count, key.shape[1])
            k, v = (
                _by_head(x.index_select(0, group.key_spread), group.count, key.shape[1]) for x in flat[1:]
            )
            future = torch.full((group.width, whole), -torch.inf).triu_(1 + group.shared)
            logits = torch.bmm(q, k.transpose(1, 2)).view(-1, group.width, whole).float()
            weights = logits.mul_(scaling).add_(future).softmax(-1).to(q.dtype).view(*q.shape[:2], whole)
            given = _by_token(torch.bmm(weights, v), group.count, query.shape[1])
            out.index_copy_(0, group.rows, given.index_select(0, group.places))
            saved += [q, k, v, weights]
        ctx.save_for_backward(*saved)
        ctx.groups, ctx.scaling = groups, scaling
        ctx.shapes = [x.shape for x in flat]
        return out[None]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad = grads[0][0]  # [T, heads, D]
        heads, shared = ctx.shapes[0][1], ctx.shapes[1][1]
        for_queries = grad.new_empty(ctx.shapes[0])
        # What several sequences share is a sum of as many parts, which 16 bits would round each time.
        several = any(group.shared for group in ctx.groups)
        summed = torch.float32 if several else grad.dtype
        for_keys, for_values = (torch.zeros(shape, dtype=summed) for shape in ctx.shapes[1:])
        for index, group in enumerate(ctx.groups):
            q, k, v, weights = ctx.saved_tensors[4 * index : 4 * index + 4]
            block = grad.new_zeros(group.count * group.width, *grad.shape[1:])
            block.index_copy_(0, group.places, grad.index_select(0, group.rows))
            g = _by_head(block, group.count, shared)
            back = torch.bmm(g, v.transpose(1, 2))
            back = torch._softmax_backward_data(back, weights, -1, weights.dtype).mul_(ctx.scaling)
            part = _by_token(torch.bmm(back, k), group.count, heads)
            for_queries.index_copy_(0, group.rows, part.index_select(0, group.places))
            for result, parts in (
                (for_keys, torch.bmm(back.transpose(1, 2), q)),
                (for_values, torch.bmm(weights.transpose(1, 2), g)),
            ):
                part = _by_token(parts, group.count, shared).index_select(0, group.key_places)
                put = result.index_add_ if several else result.index_copy_
                put(0, group.key_rows, part.to(summed))
        results = (for_queries, for_keys.to(grad.dtype), for_values.to(grad.dtype))
        q_grad, k_grad, v_grad = (x.transpose(0, 1)[None] for x in results)
        return q_grad, k_grad, v_grad, None, None


def _by_head(x: Tensor, count: int, shared: int) -> Tensor:
    """[sequences · width, heads, D] → [sequences · kv heads, repeats · width, D]."""
    return x.view(count, -1, *x.shape[1:]).transpose(1, 2).reshape(count * shared, -1, x.shape[2])


def _by_token(x: Tensor, count: int, heads: int) -> Tensor:
    """[sequences · kv heads, repeats · width, D] → [sequences · width, heads, D]."""
    flat = x.view(count, heads, -1, x.shape[2])
    return flat.transpose(1, 2).reshape(-1, heads, x.shape[2])


def whole_limit(query: Tensor) -> int:
    """Tokens of the longest sequence up to which ``_Whole`` is the faster one; 0: never."""
    return _WHOLE if query.device.type == "cpu" and query.dtype != torch.float32 else 0


def _capped(q: Tensor, k: Tensor, v: Tensor, scaling: float, softcap: float) -> Tensor:
    """Attention whose logits pass through ``softcap · tanh(· / softcap)``: no fused kernel does that on a CPU."""
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    logits = q @ k.transpose(2, 3) * scaling
    logits = softcap * torch.tanh(logits / softcap)
    logits = logits.masked_fill(_future(q.shape[2], k.shape[2], q.device), -torch.inf)
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
