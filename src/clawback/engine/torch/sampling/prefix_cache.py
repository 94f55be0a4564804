"""What the model has made of conversations whose answers have ended: the next turn begins with it, and only what is new is read.

An agent sends all that was said with every turn, and a long system prompt before it. Keys and values of those tokens depend on
nothing that follows, so they are kept until there is no more room, those that were used longest ago going first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

from clawback.engine.devices import total_bytes
from clawback.engine.torch.sampling.decoder import Cache, Decoder
from clawback.engine.torch.sampling.prefix_tree import common

SHARE, CONVERSATIONS = 1 / 16, 4
"""Of the memory, for the conversations of one version; and so many as fill the model's context, for a small model needs no more."""
LEAST = 32
"""Tokens that are worth keeping, or copying."""


class PrefixCache:
    """Tokens → keys and values ``[2 · layers, heads, tokens, size]``."""

    def __init__(self, most: int) -> None:
        """``most``: bytes in all."""
        self.most = most
        self._kept: OrderedDict[tuple[int, ...], Tensor] = OrderedDict()
        self.bytes = 0

    @classmethod
    def of(cls, decoder: Decoder, context: int) -> PrefixCache:
        """For conversations of at most ``context`` tokens."""
        token = 2 * len(decoder.blocks) * decoder.kv_heads * decoder.size * decoder.dtype.itemsize
        return cls(int(min(total_bytes(decoder.device) * SHARE, CONVERSATIONS * context * token)))

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, ids: Sequence[int], cache: Cache, slot: int) -> None:
        """Keep what a slot holds of these tokens. What was kept of their beginning goes: it is part of it; and they are not kept where they are a part of another."""
        tokens = tuple(ids)
        layers = (*cache.keys, *cache.values)
        size = len(tokens) * sum(x[0, :, 0].numel() * x.element_size() for x in layers)
        if len(tokens) < LEAST or size > self.most:
            return
        if any(known[: len(tokens)] == tokens for known in self._kept):
            return
        for known in [known for known in self._kept if known == tokens[: len(known)]]:
            self._forget(known)
        self._kept[tokens] = torch.stack([x[slot, :, : len(tokens)] for x in layers])
        self.bytes += size
        while self.bytes > self.most:
            self._forget(next(iter(self._kept)))

    def longest(self, ids: Sequence[int]) -> tuple[int, Tensor | None]:
        """How many first tokens of these are known, and what is kept of those (and more); (0, None) where it is not worth it."""
        best, found = LEAST - 1, None
        for known in self._kept:
            if (alike := common(known, ids)) > best:
                best, found = alike, known
        if found is None:
            return 0, None
        self._kept.move_to_end(found)
        return best, self._kept[found]

    def _forget(self, known: tuple[int, ...]) -> None:
        gone = self._kept.pop(known)
        self.bytes -= gone.numel() * gone.element_size()


def fill(cache: Cache, slot: int, kept: Tensor, tokens: int) -> None:
    """Write the first tokens of what was kept into a slot."""
    cache.grow(tokens)
    for into, part in zip((*cache.keys, *cache.values), kept, strict=True):
        into[slot, :, :tokens] = part[:, :tokens]
