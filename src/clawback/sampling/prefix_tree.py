"""Common beginnings of prompts are read once: within a batch, and again at the next turn.

**Within a batch.** A system prompt is common to all, a question to each wording of a wish after it, a task to all who try it. The tokens of the
prompts are laid out without padding, a prompt being preceded by what it shares with the one before it in the order; in each layer
the keys and values go to every slot that has the token. Only attention is padded, in pieces of a few tokens.

**At the next turn.** An agent sends all that was said with every turn, and a long system prompt before it. Keys and values of those tokens depend on
nothing that follows, so they are kept until there is no more room, those that were used longest ago going first.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from clawback.devices import total_bytes
from clawback.sampling.decoder import Cache, Decoder

PIECE = 32
"""Tokens of a prompt that attend together at most: a piece."""
LONG, LITTLE = 512, 0.1
"""Tokens of a prompt from which on attention of whole prompts, which needs no mask, is quicker where no more than this share of them is common to several."""
COLUMNS = 2**17
"""Keys that are gathered at once, a column for each piece that looks at it: one call for short prompts, and some for long ones."""
_BLOCK = 64


def common(first: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with.

    >>> common([5, 6, 7], [5, 6, 8, 9])
    2
    """
    most = min(len(first), len(other))
    for start in range(0, most, _BLOCK):
        a, b = list(first[start : start + _BLOCK]), list(other[start : start + _BLOCK])
        if a != b:
            return min(most, start + next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), _BLOCK))  # noqa: B905
    return most


def by_family(prompts: Sequence[Sequence[int]]) -> list[int]:
    """An order in which prompts that share half of what sets them apart from all others follow each other, and families of like length likewise:
    a step looks at as many columns as its longest row has.

    >>> by_family([[1, 9, 9, 9, 2], [1, 4], [1, 9, 9, 9]])
    [1, 2, 0]
    """
    order = sorted(range(len(prompts)), key=lambda i: list(prompts[i]))
    if not order:
        return []
    shared = [common(prompts[a], prompts[b]) for a, b in itertools.pairwise(order)]
    all_of_them = min(shared, default=0)
    families = [[order[0]]]
    for i, alike in zip(order[1:], shared, strict=True):
        if 2 * (alike - all_of_them) > len(prompts[i]) - all_of_them:
            families[-1].append(i)
        else:
            families.append([i])
    families.sort(key=lambda some: max(len(prompts[i]) for i in some))
    return [i for some in families for i in some]


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """``N`` different tokens of some prompts, of which the first ``starts`` are read already.

    ``index``: which of the tokens stands in each further column of each prompt.
    ``pieces``: (prompt, first column) of each, of ``size`` tokens or fewer.
    ``places`` [N]: where each token stands among ``pieces · size``.
    """

    tokens: list[int]
    positions: list[int]
    index: list[list[int]]
    pieces: list[tuple[int, int]]
    places: list[int]
    fresh: list[int]
    """Tokens that are read for each prompt, and not for one before it."""
    size: int

    @classmethod
    def of(cls, prompts: Sequence[Sequence[int]], starts: Sequence[int]) -> PrefixTree:
        shared = [0] * len(prompts)
        for row, (one, other) in enumerate(itertools.pairwise(prompts), 1):
            if starts[row - 1] <= starts[row]:
                shared[row] = common(one, other)
        known = [max(both) for both in zip(starts, shared, strict=True)]
        fresh = [len(prompt) - count for prompt, count in zip(prompts, known, strict=True)]
        size = min(PIECE, max(fresh) + -max(fresh) % 8)
        tree = cls([], [], [], [], [], fresh, size)
        for row, prompt in enumerate(prompts):
            first = len(tree.tokens)
            tree.tokens.extend(prompt[known[row] :])
            tree.positions.extend(range(known[row], len(prompt)))
            before = (
                tree.index[-1][starts[row] - starts[row - 1] :][: known[row] - starts[row]] if row else []
            )
            tree.index.append([*before, *range(first, first + fresh[row])])
            begun = len(tree.pieces) * size
            tree.places.extend(range(begun, begun + fresh[row]))
            tree.pieces.extend((row, start) for start in range(known[row], len(prompt), size))
        return tree


def read(
    decoder: Decoder, prompts: Sequence[Sequence[int]], starts: Sequence[int], cache: Cache, slots: Tensor
) -> tuple[Tensor, list[int]]:
    """Read prompts into ``slots`` [prompts], each from the column where it ``starts`` on: what is before that is there already.

    Returns:
        [prompts, vocabulary] the logits of what follows each, and how many tokens were read for each.
    """
    tree, device = PrefixTree.of(prompts, starts), decoder.device
    longest, group = max(map(len, prompts)), decoder.heads // decoder.kv_heads
    if longest >= LONG and len(tree.tokens) >= (1 - LITTLE) * sum(map(len, prompts)):
        return decoder.read(prompts, cache, slots), tree.fresh
    decoder.ready(longest)
    cache.grow(longest)
    index, rows, columns = (torch.tensor(some, device=device) for some in _targets(tree, starts))
    rows = slots[rows]
    places = torch.tensor(tree.places, device=device)
    own = places.new_zeros(len(tree.pieces) * tree.size)  # whose query; padding asks as the first token
    own[places] = torch.arange(len(places), device=device)
    turns = decoder.turns(torch.tensor(tree.positions, device=device))
    h = functional.embedding(torch.tensor(tree.tokens, device=device), decoder.embedding).float()
    for block, held in zip(decoder.blocks, cache.layers, strict=True):
        q, kv = decoder.attend(block, h, turns)  # [N, heads, size], [N, 2, kv heads, size]
        held[:, rows, :, columns] = kv[index]
        # Heads that share keys stand as queries of one head, as in ``Decoder.step``.
        asked = q[own].view(len(tree.pieces), tree.size, decoder.kv_heads, group, -1)
        asked = asked.permute(0, 2, 3, 1, 4).flatten(2, 3)  # [pieces, kv heads, group · size, size]
        mixed = _attended(asked, held[:, :, :, :longest], slots, tree, block.scaling)
        mixed = mixed.unflatten(2, (group, tree.size)).permute(0, 3, 1, 2, 4)
        h = decoder.rest(block, h, mixed.flatten(0, 1).flatten(1)[places])
    ends = [row[-1] for row in tree.index]
    different = list(dict.fromkeys(ends))
    logits = decoder.logits(h[torch.tensor(different, device=device)])
    if len(different) < len(ends):
        logits = logits[torch.tensor([different.index(end) for end in ends], device=device)]
    return logits, tree.fresh


def _targets(tree: PrefixTree, starts: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Which token goes to each place of the cache that is written: its row, and its column."""
    index = [i for row in tree.index for i in row]
    rows = [row for row, some in enumerate(tree.index) for _ in some]
    columns = [start + i for start, some in zip(starts, tree.index, strict=True) for i in range(len(some))]
    return index, rows, columns


def _attended(queries: Tensor, held: Tensor, slots: Tensor, tree: PrefixTree, scale: float) -> Tensor:
    """What each piece's queries [pieces, kv heads, group · size, size] make of its prompt, of which they see what stands before them."""
    made, device = [], queries.device
    longest = max(start for _, start in tree.pieces) + tree.size
    together = max(1, COLUMNS // longest)
    for first in range(0, len(tree.pieces), together):
        some = tree.pieces[first : first + together]
        rows, begun = torch.tensor(some, device=device).T
        most = min(held.shape[3], max(start for _, start in some) + tree.size)
        # Made anew for each layer: of a long prompt all masks together would be gigabytes.
        columns = begun[:, None] + torch.arange(tree.size, device=device)
        unseen = torch.arange(most, device=device) > columns[..., None]
        mask = torch.zeros(unseen.shape, dtype=queries.dtype, device=device)
        mask = mask.masked_fill_(unseen, -torch.inf).repeat(1, queries.shape[2] // tree.size, 1)[:, None]
        keys, values = held[:, slots[rows], :, :most]
        attended = functional.scaled_dot_product_attention(
            queries[first : first + together], keys, values, attn_mask=mask, scale=scale
        )
        made.append(attended)
    return torch.cat(made)


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
