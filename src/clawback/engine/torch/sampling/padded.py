"""Rows of several lengths in one batch of the model's own forward, padded on the left so that all end in the same column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from clawback.engine.torch.models.traits import forward
from clawback.engine.torch.sampling.cache import new_cache


class Padded:
    """``mask [rows, width]``: which columns of the cache each row uses. The rows of a lane (``lanes.Rows``)."""

    def __init__(self, model: Callable[[], Any], device: torch.device) -> None:
        self.model, self.device = model, device
        self.mask: Tensor | None = None
        self.cache: Any = None
        self.roomy = False
        """Whether the cache is of our own kind, which rows can join."""
        self.known: list[int] = []

    @property
    def open(self) -> bool:
        return self.roomy

    def read(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        self.known = [0] * len(prompts)
        ids, mask = _left_padded(prompts, self.device)
        cache, roomy = new_cache(self.model())
        position = (mask.cumsum(1) - 1).clamp(min=0)
        logits = _forward(self.model(), ids, mask, position, cache)
        if self.mask is None:
            self.cache, self.roomy, self.mask = cache, roomy, mask
        else:
            previous, mask = _level(self.mask, mask)
            for old, new in zip(self.cache.layers, cache.layers, strict=True):
                old.join(new, previous.shape[1])
            self.mask = torch.cat([previous, mask])
        self.has_padding = bool((self.mask == 0).any())
        return logits

    def repeat(self, count: int) -> None:
        """Each row ``count`` times."""
        assert self.mask is not None
        self.cache.batch_repeat_interleave(count)
        self.mask = self.mask.repeat_interleave(count, 0)

    def step(self, last: Sequence[int]) -> Tensor:
        assert self.mask is not None
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(last), 1)], 1)
        position = self.mask.sum(1, keepdim=True) - 1
        ids = torch.tensor(list(last), device=self.device)[:, None]
        seen: Tensor | None = self.mask
        if self.roomy:  # a finished mask saves the model from making one
            seen = self.mask[:, None, None, :].bool() if self.has_padding else None
        return _forward(self.model(), ids, seen, position, self.cache)

    def keep(self, indices: Sequence[int]) -> None:
        if not indices or self.mask is None:
            self.drop()
            return
        rows = torch.tensor(list(indices), dtype=torch.long, device=self.mask.device)
        self.mask = self.mask[rows]
        self.cache.batch_select_indices(rows)

    def drop(self) -> None:
        self.mask, self.cache = None, None


def _left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids and mask, ``[prompts, longest]``, so that all prompts end in the same column."""
    width = max(len(p) for p in prompts)
    ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
    return ids, mask


def _level(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Two masks made equally wide by columns of zeros on the left."""
    width = max(a.shape[1], b.shape[1])
    pad = torch.nn.functional.pad
    return pad(a, (width - a.shape[1], 0)), pad(b, (width - b.shape[1], 0))


def _forward(model: Any, ids: Tensor, mask: Tensor | None, position: Tensor, cache: Any) -> Tensor:
    """Logits of the last column, ``[rows, vocabulary]``."""
    out = forward(
        model,
        input_ids=ids,
        attention_mask=mask,
        position_ids=position,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    logits: Tensor = out.logits[:, -1]
    return logits
