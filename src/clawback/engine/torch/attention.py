"""Attention over a packed batch: many sequences in one row, each seeing itself alone.

Registered with transformers under the name ``PACKED``. The lengths of the sequences come along as a keyword of the
model's forward, ``packed_lengths``, which transformers hands down to the attention function of every layer. A family
that does not hand it down, or asks for something that is not done here, raises ``Unsupported``; the caller then
takes padded batches.

Dense layers never see padding this way, and a mask of [T, T] is never made: one causal call a sequence, whose cost is
the sum of squared lengths instead of the square of the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

PACKED = "clawback_packed"


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
    grouped = query.shape[1] != key.shape[1]
    outputs = []
    for q, k, v in zip(query.split(lengths, 2), key.split(lengths, 2), value.split(lengths, 2), strict=True):
        count = q.shape[2]
        if sliding_window is not None and count > sliding_window:
            raise Unsupported(f"{count} tokens in a window of {sliding_window}")
        if softcap is not None:
            out = _capped(q, k, v, scaling, softcap)
        else:
            out = scaled_dot_product_attention(
                q, k, v, is_causal=count > 1, scale=scaling, enable_gqa=grouped
            )
        outputs.append(out.transpose(1, 2))
    return torch.cat(outputs, 1), None


def _capped(q: Tensor, k: Tensor, v: Tensor, scaling: float | None, softcap: float) -> Tensor:
    """Attention whose logits pass through ``softcap · tanh(· / softcap)``: no fused kernel does that on a CPU."""
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    logits = q @ k.transpose(2, 3) * (q.shape[-1] ** -0.5 if scaling is None else scaling)
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
