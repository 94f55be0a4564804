"""Rows of several lengths in one batch of the model's own forward, padded on the left so that all end in the same column.

Their keys and values are in a cache with spare room. Imports transformers: import this only where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from clawback.models.traits import forward

if TYPE_CHECKING:
    from clawback.sampling.choose import SamplingRequest


_Layer: Any = DynamicLayer
_LEAST_ROOM = 64


class Padded:
    """``mask [rows, width]``: which columns of the cache each row uses. For ``scheduler.Rows``."""

    def __init__(self, model: Callable[[], Any]) -> None:
        self.model, self.device = model, next(model().parameters()).device
        self.mask: Tensor | None = None
        self.cache: Any = None
        self.roomy = False
        """Whether the cache is of our own kind, which rows can join."""

    @property
    def open(self) -> bool:
        return self.roomy

    def read(self, requests: Sequence[SamplingRequest]) -> Tensor:
        return self.read_prompts([request.prompt for request in requests])

    def read_prompts(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Each different one once: logits ``[prompts, vocabulary]``."""
        different = list(dict.fromkeys(map(tuple, prompts)))
        place = {prompt: i for i, prompt in enumerate(different)}
        copies = torch.tensor([place[tuple(prompt)] for prompt in prompts], device=self.device)
        ids, mask = _left_padded(different, self.device)
        cache, roomy = new_cache(self.model())
        logits = _forward(self.model(), ids, mask, (mask.cumsum(1) - 1).clamp(min=0), cache)
        if len(different) < len(prompts):
            cache.reorder_cache(copies)
            logits, mask = logits[copies], mask[copies]
        if self.mask is None:
            self.cache, self.roomy, self.mask = cache, roomy, mask
        else:
            # What only rows that have ended have read is left out.
            before = self.mask[:, self.mask.shape[1] - int(self.mask.sum(1).max()) :]
            width = max(before.shape[1], mask.shape[1])
            for old, new in zip(self.cache.layers, cache.layers, strict=True):
                old.join(new, width)
            self.mask = torch.cat([_widened(before, width), _widened(mask, width)])
        self.has_padding = bool((self.mask == 0).any())
        return logits

    def step(self, last: Sequence[int]) -> Tensor:
        assert self.mask is not None
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(last), 1)], 1)
        position = self.mask.sum(1, keepdim=True) - 1
        ids = torch.tensor(list(last), device=self.device)[:, None]
        seen: Tensor | None = self.mask
        if self.roomy:  # a finished mask saves the model from making one
            seen = self.mask[:, None, None, :].bool() if self.has_padding else None
        return _forward(self.model(), ids, seen, position, self.cache)

    def keep(self, places: Sequence[int]) -> None:
        if not places or self.mask is None:
            self.drop()
            return
        rows = torch.tensor(list(places), dtype=torch.long, device=self.mask.device)
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


def _widened(mask: Tensor, width: int) -> Tensor:
    """With columns of zeros on the left."""
    return torch.nn.functional.pad(mask, (width - mask.shape[1], 0))


def _forward(model: object, ids: Tensor, mask: Tensor | None, position: Tensor, cache: object) -> Tensor:
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


def new_cache(model: Any) -> tuple[Any, bool]:
    """An empty cache for the model, and whether it is plain: full attention in each layer, so that ours can be used.

    Other kinds of layers (sliding window, recurrent) keep the caches that the library has for them.
    """
    config = model.config.get_text_config(decoder=True)
    cache = DynamicCache(config=config)
    plain = bool(cache.layers) and all(type(layer) is DynamicLayer for layer in cache.layers)
    plain = plain and getattr(config, "_attn_implementation", "") == "sdpa"
    if plain:
        cache.layers = [Roomy() for _ in cache.layers]
    return cache, plain


class Roomy(_Layer):  # type: ignore[misc]
    """Keys and values ``[rows, heads, time, size]`` of one layer, as views into buffers with room for more tokens.

    The library's own layer copies the whole cache for each new token, which on a small model costs as much as the model.
    """

    keys: Any
    values: Any
    room: list[Tensor]

    def update(self, key: Tensor, value: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key, value)
            self.room = [key[:, :, :0], value[:, :, :0]]
        old = self.get_seq_length()
        used = old + key.shape[2]
        for i, (new, seen) in enumerate(((key, self.keys), (value, self.values))):
            if self.room[i].shape[2] < used:
                rows, heads, _time, size = new.shape
                self.room[i] = new.new_empty(rows, heads, max(2 * old, used + _LEAST_ROOM), size)
                if old:
                    self.room[i][:, :, :old] = seen
            self.room[i][: len(new), :, old:used] = new
        self._look(len(key), used)
        return self.keys, self.values

    def reorder_cache(self, rows: Tensor) -> None:
        self.keys, self.values = self.keys[rows], self.values[rows]
        self.room = [self.keys, self.values]  # full: the next token makes room

    def batch_select_indices(self, indices: Tensor) -> None:
        """Each of ``indices`` is its own place or that of a row beyond all that stay: only the latter are moved."""
        used = self.get_seq_length()
        moved = (indices != torch.arange(len(indices), device=indices.device)).nonzero()[:, 0]
        if len(moved):
            for room in self.room:
                room[moved, :, :used] = room[indices[moved], :, :used]
        self._look(len(indices), used)

    def join(self, other: Roomy, width: int) -> None:
        """Append the rows of ``other``; both are moved so that they end in column ``width``, and begin there at the earliest."""
        rows, more = len(self.keys), len(other.keys)
        for i, (mine, new) in enumerate(((self.keys, other.keys), (self.values, other.values))):
            _, heads, used, size = mine.shape
            held = min(used, width)
            room = mine.new_zeros(rows + more, heads, width + _LEAST_ROOM, size)
            room[:rows, :, width - held : width] = mine[:, :, used - held :]
            room[rows:, :, width - new.shape[2] : width] = new
            self.room[i] = room
        self._look(rows + more, width)

    def _look(self, rows: int, used: int) -> None:
        self.keys, self.values = (room[:rows, :, :used] for room in self.room)
