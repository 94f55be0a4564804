"""Attention of one new token a row over what its slot of the cache holds: three ways to the same result."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def fused(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """One query a row: ``q [rows, heads, size]``, ``keys`` and ``values [rows, kv heads, columns, size]`` → ``[rows, heads · size]``.

    The heads that share keys stand as queries of one head: told of them by ``enable_gqa``, PyTorch's kernel on a CPU converts bfloat16 keys for each.
    """
    rows, heads, size = q.shape
    shared = keys.shape[1]
    together = q.view(rows, shared, heads // shared, size)
    return functional.scaled_dot_product_attention(
        together, keys, values, attn_mask=mask, scale=scale
    ).flatten(1)


def by_products(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """``fused`` as two batched products, two thirds of its time in bfloat16.

    Keys times queries and not the other way round: with the few queries on the left, oneDNN first turns all keys.
    """
    rows, heads, size = q.shape
    shared, columns = keys.shape[1:3]
    together = q.reshape(rows * shared, heads // shared, size)
    logits = torch.bmm(keys.flatten(0, 1), together.transpose(1, 2)).transpose(1, 2)
    logits = logits.to(torch.float32, memory_format=torch.contiguous_format)
    logits = logits.view(rows, shared, -1, columns).mul_(scale).add_(mask)
    weights = logits.softmax(-1).to(q.dtype).flatten(0, 1)  # [rows · kv heads, repeats, columns]
    return torch.bmm(weights, values.flatten(0, 1)).view(rows, -1)


def with_alike(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float, alike: int) -> Tensor:
    """``fused`` where the first ``alike`` columns of all rows are those of the first row: they are read from memory once and not for each row."""
    rows, heads, size = q.shape
    shared = keys.shape[1]
    together = q.view(rows, shared, heads // shared, size) * scale
    by_head = together.transpose(0, 1).flatten(1, 2)  # [kv heads, rows · repeats, size]
    first = (
        torch.bmm(by_head, keys[0, :, :alike].transpose(1, 2)).view(shared, rows, -1, alike).transpose(0, 1)
    )
    own = torch.matmul(together, keys[:, :, alike:].transpose(2, 3)).add_(mask[..., alike:])
    weights = torch.cat([first, own], -1).softmax(-1)  # [rows, kv heads, repeats, columns]
    mixed = torch.matmul(weights[..., alike:], values[:, :, alike:])
    once = weights[..., :alike].transpose(0, 1).flatten(1, 2)
    mixed += torch.bmm(once, values[0, :, :alike]).view(shared, rows, -1, size).transpose(0, 1)
    return mixed.reshape(rows, -1)
