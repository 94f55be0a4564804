"""Attention of many short sequences that begin alike, in one piece: the replies to one prompt, the episodes of one game.

Packed attention has a fused call for each sequence, and copies what a sequence shares with others for each of them. For sequences of a hundred
tokens that costs more than its arithmetic. Here what all of them begin with is one product for all of their queries, and what each has
beyond that one batch of products: softmax([Q·K_alikeᵀ, Q·K_ownᵀ]) · [V_alike, V_own].

In float32 on a CPU, where ``attention.py`` has no other way for short sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

_FEWEST = 6
_LONGEST = 160
"""Tokens of a sequence. Its probabilities are kept for the way back."""
_FULL = 0.75
"""Share of a block's width that each sequence in it fills."""


@dataclass(frozen=True)
class BranchBlock:
    """Sequences of like length side by side, padded. Positions are those of the branches' row."""

    count: int
    queries: Tensor
    """[count · new tokens] position of each query; padding repeats the last."""
    rows: Tensor
    """[tokens] the same without padding, and"""
    places: Tensor
    """[tokens] where in the block they are."""
    keys: Tensor
    """[count · own tokens] as ``queries``: what a sequence has beyond the tokens that all begin with."""
    key_rows: Tensor
    key_places: Tensor
    future: Tensor
    """[count, 1, new, own] float32: 0 for what a query sees, -inf for what it does not."""


@dataclass(frozen=True)
class Branches:
    """Sequences that follow each other in a row and begin alike."""

    start: int
    end: int
    """In the row. Before the tokens of the branches stand those of the sequence that they branch off."""
    first: int
    """Tokens of that sequence."""
    alike: int
    """First tokens of it that all branches begin with."""
    blocks: tuple[BranchBlock, ...]


@lru_cache(maxsize=64)
def find(lengths: tuple[int, ...], shared: tuple[int, ...]) -> dict[int, tuple[int, Branches]]:
    """Where branches are worth it: by the first sequence of each, how many there are with it, and their plan."""
    found: dict[int, tuple[int, Branches]] = {}
    starts = [i for i, s in enumerate(shared) if not s]
    before = 0
    for here, following in zip(starts, [*starts[1:], len(shared)], strict=True):
        some = range(here + 1, following)
        tokens = sum(lengths[i] - shared[i] for i in range(here, following))
        if len(some) >= _FEWEST and max(lengths[here:following]) <= _LONGEST:
            plan = _plan(before, lengths[here:following], shared[here:following])
            found[here] = (following - here, plan)
        before += tokens
    return found


def _plan(start: int, lengths: Sequence[int], shared: Sequence[int]) -> Branches:
    alike = min(shared[1:])
    rows: list[list[int]] = [list(range(lengths[0]))]
    used = lengths[0]
    for length, common in zip(lengths[1:], shared[1:], strict=True):
        rows.append([*rows[-1][:common], *range(used, used + length - common)])
        used += length - common
    order = sorted(range(1, len(rows)), key=lambda i: (lengths[i], lengths[i] - shared[i], i))
    blocks: list[BranchBlock] = []
    while order:
        own, new = lengths[order[-1]] - alike, lengths[order[-1]] - shared[order[-1]]
        some = [
            i
            for i in order
            if lengths[i] - alike >= _FULL * own and _FULL * new <= lengths[i] - shared[i] <= new / _FULL
        ]
        blocks.append(_block([rows[i] for i in some], [shared[i] for i in some], alike))
        order = [i for i in order if i not in set(some)]
    return Branches(start, start + used, lengths[0], alike, tuple(blocks))


def _block(rows: Sequence[Sequence[int]], shared: Sequence[int], alike: int) -> BranchBlock:
    news = [row[common:] for row, common in zip(rows, shared, strict=True)]
    owns = [row[alike:] for row in rows]
    new, own = max(map(len, news)), max(map(len, owns))
    # A padding query stands where the last one does, and sees what it sees.
    stands = [
        [min(common + i, len(row) - 1) for i in range(new)] for row, common in zip(rows, shared, strict=True)
    ]
    hidden = torch.arange(alike, alike + own)[None, None] > torch.tensor(stands)[..., None]
    future = torch.zeros(hidden.shape).masked_fill_(hidden, -torch.inf)[:, None]
    return BranchBlock(len(rows), *_padded(news, new), *_padded(owns, own), future)


def _padded(rows: Sequence[Sequence[int]], width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Positions padded to a width, the same without padding, and where in the block those are."""
    spread = torch.tensor([[*row, *[row[-1]] * (width - len(row))] for row in rows])
    sizes = torch.tensor([len(row) for row in rows])[:, None]
    inside = (torch.arange(width)[None] < sizes).flatten()
    return spread.flatten(), spread.flatten()[inside], inside.nonzero()[:, 0]


class Attention(torch.autograd.Function):
    """Of the queries of all branches, in the order of the row, over keys and values of their part of it."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, branches: Branches, scaling: float
    ) -> Tensor:
        """[heads, new tokens, D] and twice [kv heads, tokens, D] → [new tokens, heads, D]."""
        flat = [x.transpose(0, 1) for x in (query, key, value)]
        shared, alike = key.shape[0], branches.alike
        keys, values = (x[:, :alike] for x in (key, value))
        out = query.new_empty(flat[0].shape)
        saved: list[Tensor] = []
        for block in branches.blocks:
            n = block.count
            q = _by_head(flat[0].index_select(0, block.queries - branches.first), n, shared).mul_(scaling)
            k, v = (_by_head(x.index_select(0, block.keys), n, shared) for x in flat[1:])
            once = torch.bmm(q.view(shared, -1, q.shape[2]), keys.transpose(1, 2)).view(*q.shape[:2], alike)
            own = torch.bmm(q, k.transpose(1, 2))
            own.view(shared, n, -1, *block.future.shape[2:]).add_(block.future)
            weights = torch.cat([once, own], -1).softmax(-1)  # [kv heads · n, repeats · new, alike + own]
            mixed = torch.bmm(_first(weights, alike, shared), values).view(q.shape)
            mixed.baddbmm_(weights[..., alike:], v)
            given = _by_token(mixed, n, shared, query.shape[0])
            out.index_copy_(0, block.rows - branches.first, given.index_select(0, block.places))
            saved += [q, k, v, weights]
        ctx.save_for_backward(keys, values, *saved)
        ctx.branches, ctx.scaling = branches, scaling
        ctx.shapes = [x.shape for x in flat]
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad, branches = grads[0], ctx.branches  # [new tokens, heads, D]
        keys, values, *saved = ctx.saved_tensors
        heads, shared, alike = ctx.shapes[0][1], ctx.shapes[1][1], branches.alike
        for_queries = grad.new_empty(ctx.shapes[0])
        for_keys, for_values = (grad.new_zeros(shape) for shape in ctx.shapes[1:])
        for index, block in enumerate(branches.blocks):
            q, k, v, weights = saved[4 * index : 4 * index + 4]
            n, rows = block.count, block.rows - branches.first
            padded = grad.new_zeros(len(block.queries), *grad.shape[1:])
            padded.index_copy_(0, block.places, grad.index_select(0, rows))
            g = _by_head(padded, n, shared)
            whole = g.view(shared, -1, g.shape[2])
            once = torch.bmm(whole, values.transpose(1, 2)).view(*g.shape[:2], alike)
            back = torch.cat([once, torch.bmm(g, v.transpose(1, 2))], -1)
            back = torch._softmax_backward_data(back, weights, -1, weights.dtype)
            part = torch.bmm(_first(back, alike, shared), keys).view(q.shape)
            part.baddbmm_(back[..., alike:], k).mul_(ctx.scaling)
            part = _by_token(part, n, shared, heads)
            for_queries.index_copy_(0, rows, part.index_select(0, block.places))
            # ``q`` has the scaling in it.
            for result, chances, others in ((for_keys, back, q), (for_values, weights, g)):
                once = torch.bmm(_first(chances, alike, shared).transpose(1, 2), others.view(whole.shape))
                result[:alike] += once.transpose(0, 1)
                own = torch.bmm(chances[..., alike:].transpose(1, 2), others)
                own = _by_token(own, n, shared, shared).index_select(0, block.key_places)
                result.index_add_(0, block.key_rows, own)
        q_grad, k_grad, v_grad = (x.transpose(0, 1) for x in (for_queries, for_keys, for_values))
        return q_grad, k_grad, v_grad, None, None


def _first(x: Tensor, alike: int, shared: int) -> Tensor:
    """[kv heads · n, m, alike + own] → [kv heads, n · m, alike], a view."""
    return x.view(shared, -1, x.shape[2])[..., :alike]


def _by_head(x: Tensor, count: int, shared: int) -> Tensor:
    """[count · width, heads, D] → [kv heads · count, repeats · width, D]."""
    apart = x.view(count, -1, shared, x.shape[1] // shared, x.shape[2])
    return apart.permute(2, 0, 3, 1, 4).reshape(shared * count, -1, x.shape[2])


def _by_token(x: Tensor, count: int, shared: int, heads: int) -> Tensor:
    """[kv heads · count, repeats · width, D] → [count · width, heads, D]."""
    apart = x.view(shared, count, heads // shared, -1, x.shape[2])
    return apart.permute(1, 3, 0, 2, 4).reshape(-1, heads, x.shape[2])
