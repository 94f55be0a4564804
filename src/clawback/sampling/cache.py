"""A key-value cache with spare room, for the sampler. Imports transformers: import this only where it is needed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

_Layer: Any = DynamicLayer
_LEAST_ROOM = 64


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

    def update(self, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
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
