"""What the model has made of conversations whose answers have ended: the next turn begins with it, and only what is new is read.

An agent sends all that was said with every turn, and a long system prompt before it. Keys and values of those tokens depend on
nothing that follows, so they are kept until there is no more room, those that were used longest ago going first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from clawback.engine.devices import total_bytes
from clawback.engine.torch.sampling.decoder import Cache, Decoder
from clawback.engine.torch.sampling.prefix_tree import common

SHARE, CONVERSATIONS = 1 / 16, 4
"""Of the memory, for the conversations of one version; and so many as fill the model's context, for a small model needs no more."""
LEAST = 8
"""Tokens that are worth keeping, or copying."""


class PrefixCache:
    """Tokens, and their keys and values ``[layers, 2, heads, tokens, size]``, by the name of their conversation or by themselves."""

    def __init__(self, most: int) -> None:
        """``most``: bytes in all."""
        self.most = most
        self._kept: OrderedDict[Hashable, tuple[list[int], Tensor]] = OrderedDict()
        self.bytes = 0

    @classmethod
    def of(cls, decoder: Decoder, context: int = 0) -> PrefixCache:
        """For conversations of at most ``context`` tokens; 0: as many as there is memory for."""
        token = 2 * len(decoder.blocks) * decoder.kv_heads * decoder.size * decoder.dtype.itemsize
        share = int(total_bytes(decoder.device) * SHARE)
        return cls(min(share, CONVERSATIONS * context * token) if context else share)

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, ids: Sequence[int], cache: Cache, slot: int, name: Hashable = None) -> None:
        """Keep what a slot holds of these tokens. What was kept of their beginning goes: it is part of it; and they are not kept where they are a part of another."""
        if name is not None:
            self.forget(name)
        size = len(ids) * cache.token_bytes
        if len(ids) < LEAST or size > self.most:
            return
        tokens = list(ids)
        if any(known[: len(tokens)] == tokens for known, _ in self._kept.values()):
            return
        for key in [key for key, (known, _) in self._kept.items() if known == tokens[: len(known)]]:
            self.forget(key)
        kept = torch.stack([layer[:, slot, :, : len(tokens)] for layer in cache.layers])
        self._kept[tuple(tokens) if name is None else name] = tokens, kept
        self.bytes += size
        while self.bytes > self.most:
            self.forget(next(iter(self._kept)))

    def longest(self, ids: Sequence[int], name: Hashable = None) -> tuple[int, Tensor | None]:
        """How many first tokens of these are known, and what is kept of those (and more); (0, None) where it is not worth it."""
        best, found = LEAST - 1, None
        own = self._kept.get(name) if name is not None else None
        if own is not None and common(own[0], ids) == len(own[0]):
            best, found = len(own[0]), name
        else:
            for key, (known, _) in self._kept.items():
                if (alike := common(known, ids)) > best:
                    best, found = alike, key
        if found is None:
            return 0, None
        self._kept.move_to_end(found)
        return best, self._kept[found][1]

    def forget(self, name: Hashable) -> None:
        if gone := self._kept.pop(name, None):
            self.bytes -= gone[1].numel() * gone[1].element_size()


def fill(cache: Cache, slot: int, parts: Tensor, tokens: int) -> None:
    """Write the first tokens of what was kept into a slot."""
    cache.grow(tokens)
    for layer, part in zip(cache.layers, parts, strict=True):
        layer[:, slot, :, :tokens] = part[:, :, :tokens]
