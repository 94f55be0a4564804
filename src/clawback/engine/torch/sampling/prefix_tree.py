"""Reading of many prompts that begin alike: each token of a common beginning goes through the model once.

A system prompt is common to all, a question to each wording of a wish after it. The prompts' tokens are laid out
without padding, a prompt being preceded by what it shares with the one before it in the order; in each layer the keys and
values go to every slot that has the token. Only attention is padded, in pieces of a few tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from clawback.engine.torch.sampling.decoder import Cache, Decoder

PIECE = 32
"""Tokens of a prompt that attend together: a piece."""
LONG, LITTLE = 512, 0.1
"""Tokens of a prompt from which on attention of whole prompts, which needs no mask, is quicker where no more than this share of them is common to several."""
COLUMNS = 2**17
"""Keys that are gathered at once, a column for each piece that looks at it: one call for short prompts, and some for long ones."""


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with.

    >>> common([5, 6, 7], [5, 6, 8, 9])
    2
    """
    most = min(len(one), len(other))
    if list(one[:most]) == list(other[:most]):  # a conversation that goes on
        return most
    return next(i for i in range(most) if one[i] != other[i])


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
    """``N`` different tokens of some prompts.

    ``index``: which of the tokens stands in each column of each prompt.
    ``pieces``: (prompt, first column) of each, of ``PIECE`` tokens or fewer.
    ``places`` [N]: where each token stands among ``pieces · PIECE``.
    """

    tokens: list[int]
    positions: list[int]
    index: list[list[int]]
    pieces: list[tuple[int, int]]
    places: list[int]

    @classmethod
    def of(cls, prompts: Sequence[Sequence[int]]) -> PrefixTree:
        tree = cls([], [], [], [], [])
        for row, prompt in enumerate(prompts):
            known = common(prompts[row - 1], prompt) if row else 0
            first, own = len(tree.tokens), len(prompt) - known
            tree.tokens.extend(prompt[known:])
            tree.positions.extend(range(known, len(prompt)))
            tree.index.append([*(tree.index[-1][:known] if row else ()), *range(first, first + own)])
            begun = len(tree.pieces) * PIECE
            tree.places.extend(range(begun, begun + own))
            tree.pieces.extend((row, start) for start in range(known, len(prompt), PIECE))
        return tree


def read(decoder: Decoder, prompts: Sequence[Sequence[int]], cache: Cache, slots: Tensor) -> Tensor:
    """Read prompts into ``slots`` [prompts] from their first column on: the logits [prompts, vocabulary] of what follows each."""
    tree, device = PrefixTree.of(prompts), decoder.device
    longest, group = max(map(len, prompts)), decoder.heads // decoder.kv_heads
    if longest >= LONG and len(tree.tokens) >= (1 - LITTLE) * sum(map(len, prompts)):
        return decoder.read(prompts, cache, slots)
    decoder.ready(longest)
    cache.grow(longest)
    index = torch.tensor([[*row, *[0] * (longest - len(row))] for row in tree.index], device=device)
    places = torch.tensor(tree.places, device=device)
    own = places.new_zeros(len(tree.pieces) * PIECE)  # whose query; padding asks as the first token
    own[places] = torch.arange(len(places), device=device)
    turns = decoder.turns(torch.tensor(tree.positions, device=device))
    h = functional.embedding(torch.tensor(tree.tokens, device=device), decoder.embedding).float()
    for number, block in enumerate(decoder.blocks):
        q, k, v = decoder.attend(block, h, turns)  # [N, heads, size]
        keys, values = (x[index].transpose(1, 2) for x in (k, v))
        cache.keys[number][slots, :, :longest] = keys
        cache.values[number][slots, :, :longest] = values
        # Heads that share keys stand as queries of one head, as in ``step_attention.fused``.
        asked = q[own].view(len(tree.pieces), PIECE, decoder.kv_heads, group, -1)
        asked = asked.permute(0, 2, 3, 1, 4).flatten(2, 3)  # [pieces, kv heads, group · PIECE, size]
        mixed = _attended(asked, keys, values, tree.pieces, block.scaling)
        mixed = mixed.unflatten(2, (group, PIECE)).permute(0, 3, 1, 2, 4)
        h = decoder.rest(block, h, mixed.flatten(0, 1).flatten(1)[places])
    ends = torch.tensor([row[-1] for row in tree.index], device=device)
    return decoder.logits(h[ends])


def _attended(
    asked: Tensor, keys: Tensor, values: Tensor, pieces: Sequence[tuple[int, int]], scale: float
) -> Tensor:
    """What each piece's queries [pieces, kv heads, group · PIECE, size] make of its prompt, of which they see what stands before them."""
    longest, made = keys.shape[2], []
    together = max(1, COLUMNS // longest)
    for first in range(0, len(pieces), together):
        some = pieces[first : first + together]
        rows, begun = torch.tensor(some, device=asked.device).T
        most = min(longest, max(start for _, start in some) + PIECE)
        # Made anew for each layer: of a long prompt all masks together would be gigabytes.
        columns = begun[:, None] + torch.arange(PIECE, device=asked.device)
        unseen = torch.arange(most, device=asked.device) > columns[..., None]
        mask = torch.zeros(unseen.shape, dtype=asked.dtype, device=asked.device)
        mask = mask.masked_fill_(unseen, -torch.inf).repeat(1, asked.shape[2] // PIECE, 1)[:, None]
        made.append(
            functional.scaled_dot_product_attention(
                asked[first : first + together],
                keys[rows, :, :most],
                values[rows, :, :most],
                attn_mask=mask,
                scale=scale,
            )
        )
    return torch.cat(made)
