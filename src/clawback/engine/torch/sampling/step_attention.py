"""Attention of one new token a row over what its slot of the cache holds, by PyTorch: on other devices than a CPU, and where numba is not (``step_kernels.py``)."""

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
