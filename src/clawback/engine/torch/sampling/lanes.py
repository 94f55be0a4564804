"""The active answers of one version: reading their prompts and continuing them, one token at a time.

There are three implementations with one interface: the lean decoder where it supports the model, at twice the
speed and more; the model's own forward with rows padded on the left (``padded.py``); and where that is not right for a
model (``ways.py``), each row by itself. Rows are in order of arrival; where some end, those at the end take
their places (``continuous.closed_ranks``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import psutil
import torch
from torch import Tensor

from clawback.engine.torch.sampling.continuous import READ_TOKENS
from clawback.engine.torch.sampling.decoder import Cache, Decoder
from clawback.engine.torch.sampling.decoder_choice import drawing_dtype, fits
from clawback.engine.torch.sampling.padded import Padded
from clawback.engine.torch.sampling.prefix_cache import LEAST, PrefixCache, fill
from clawback.engine.torch.sampling.prefix_tree import common
from clawback.engine.torch.sampling.reading import Reading
from clawback.engine.torch.sampling.ways import Way, way_of

if TYPE_CHECKING:
    from clawback.engine.torch.models.policy import Policy

_COLUMNS = 32
_EXPECTED = 16
"""Rows that weights are put in order for."""


class Rows(Protocol):
    """The rows of one version. The model speaks for that version while a method is called."""

    @property
    def open(self) -> bool:
        """Whether more rows may join while others are under way."""
        ...

    @property
    def known(self) -> Sequence[int]:
        """Of each prompt that was read last, how many tokens were known already."""
        ...

    def read(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """New rows: the logits ``[prompts, vocabulary]`` of what follows each."""
        ...

    def step(self, last: Sequence[int]) -> Tensor:
        """Each row goes on with its last token: logits ``[rows, vocabulary]``."""
        ...

    def keep(self, places: Sequence[int]) -> None:
        """Which old row each new row is; without any, everything is let go."""
        ...

    def drop(self) -> None:
        """Let everything go, whatever state it is in."""
        ...


def rows_of(policy: Policy) -> Rows:
    """For the version that the model speaks for now."""
    if lean(policy):
        return Lean(policy)
    way = way_of(policy.model)
    return Padded(lambda: policy.model, policy.device) if way.padded else Apart(lambda: policy.model, way)


def lean(policy: Policy) -> bool:
    model: Any = policy.model
    if not fits(model, policy.info.context):
        return False
    dtype = drawing_dtype(model)
    copied = dtype != next(model.parameters()).dtype
    size = policy.info.total_parameters * dtype.itemsize
    return not copied or 3 * size < psutil.virtual_memory().available


class Lean:
    """By the lean decoder, whose weights are those of the version at this moment."""

    open = True

    def __init__(self, policy: Policy) -> None:
        self.decoder = Decoder(policy.model, drawing_dtype(policy.model), rows=_EXPECTED)
        self.cache: Cache | None = None
        self.ids: list[list[int]] = []
        """Tokens of each row that the cache has, or will have with the next step."""
        self.kept = self._remembers(policy.info.context)
        self.known: list[int] = []

    def _remembers(self, context: int) -> PrefixCache | None:
        return PrefixCache.of(self.decoder, context)

    def read(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        first, longest = len(self.ids), max(map(len, prompts))
        if self.cache is None:
            self.cache = Cache(self.decoder, _even(len(prompts)), longest + 4 * _COLUMNS)
        self.cache.widen(_even(first + len(prompts)))
        self.ids += map(list, prompts)
        try:
            logits = self._read(self.cache, first)
        except BaseException:
            del self.ids[first:]
            raise
        return torch.stack([logits[row] for row in range(first, len(self.ids))])

    def _read(self, cache: Cache, first: int) -> dict[int, Tensor]:
        """Row → [vocabulary], of the rows from ``first`` on."""
        before, begun = self._parted(first)
        fresh, device = before[first:], self.decoder.device
        logits: dict[int, Tensor] = {}
        for some in _batches(fresh, [len(self.ids[row]) for row in fresh]):
            own = [self.ids[row] for row in some]
            self._about(some, len(some))
            slots = torch.tensor(some, device=device)
            logits |= zip(some, self.decoder.read(own, cache, slots, wide(max(map(len, own)))), strict=True)
        starts = {row: self._begin(cache, row, before) for row in begun}
        self.known = [starts.get(row, 0) for row in range(first, len(self.ids))]
        for some in _batches(begun, [len(self.ids[row]) - starts[row] for row in begun]):
            own = [self.ids[row][starts[row] :] for row in some]
            slots = torch.tensor(some, device=device)
            read = self.decoder.read_on(
                own, [starts[row] for row in some], cache, slots, wide(max(map(len, own)))
            )
            logits |= zip(some, read, strict=True)
        return logits

    def _parted(self, first: int) -> tuple[list[int], list[int]]:
        """All rows before ``first`` and those that have to be read from their beginning; and those that begin as one of these does, or as something kept."""
        before = list(range(first))
        if self.kept is None:
            return list(range(len(self.ids))), []
        begun: list[int] = []
        for row in range(first, len(self.ids)):
            known = self.kept.longest(self.ids[row])[0] or self._donor(row, before)[0]
            (begun if known else before).append(row)
        return before, begun

    def _donor(self, row: int, others: Sequence[int]) -> tuple[int, int]:
        """How many first tokens a row shares with one of the others at most, and with which; (0, 0) where it is not worth it."""
        alike = [(common(self.ids[other], self.ids[row]), -other) for other in others]
        most, other = max(alike, default=(0, 0))
        return (most, -other) if most >= LEAST else (0, 0)

    def _begin(self, cache: Cache, row: int, others: Sequence[int]) -> int:
        """Give a row what is known of its prompt, all but its last token at most: how many tokens that are."""
        assert self.kept is not None
        known, kept = self.kept.longest(self.ids[row])
        shared, other = self._donor(row, others)
        start = min(max(known, shared), len(self.ids[row]) - 1)
        if kept is not None and known >= shared:
            fill(cache, row, kept, start)
        else:
            slots = torch.tensor([other, row], device=self.decoder.device)
            cache.move(slots[:1], slots[1:], start)
        return start

    def step(self, last: Sequence[int]) -> Tensor:
        assert self.cache is not None
        for ids, token in zip(self.ids, last, strict=True):
            ids.append(token)
        position = [len(ids) - 1 for ids in self.ids]
        # oneDNN compiles its products for each new shape: few are asked for. Slots that nobody reads are overwritten.
        spare = [0] * (_even(len(last)) - len(last))
        device, columns = self.decoder.device, max(position) + 1
        self._about(range(len(last)), len(last) + len(spare))
        logits = self.decoder.step(
            torch.tensor([*last, *spare], device=device),
            torch.tensor([*position, *spare], device=device),
            self.cache,
            columns + -columns % _COLUMNS,
        )
        return logits[: len(last)]

    def _about(self, rows: Sequence[int], padded: int) -> None:
        """These rows go through the model next, and others that nobody reads."""

    def keep(self, places: Sequence[int]) -> None:
        if self.kept is not None and self.cache is not None:
            for row in sorted(set(range(len(self.ids))) - set(places)):
                self.kept.put(self.ids[row], self.cache, row)
        if not places or self.cache is None:
            self.drop()
            return
        moved = [(old, new) for new, old in enumerate(places) if old != new]
        if moved:
            sources, targets = torch.tensor(moved, device=self.decoder.device).T
            self.cache.move(sources, targets, max(map(len, self.ids)))
        self.ids = [self.ids[old] for old in places]

    def drop(self) -> None:
        self.ids, self.cache = [], None


def _batches(rows: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """Rows in order, as many together as have ``READ_TOKENS`` once they are padded."""
    some: list[int] = []
    longest = 0
    for row, length in zip(rows, lengths, strict=True):
        longest = max(longest, length)
        if some and (len(some) + 1) * longest > READ_TOKENS:
            yield some
            some, longest = [], length
        some.append(row)
    if some:
        yield some


def _even(rows: int) -> int:
    """1, 2, 4, then multiples of 8."""
    return rows if rows <= 2 else 4 if rows <= 4 else rows + -rows % 8


def wide(tokens: int) -> int:
    """Round a width up to four values per octave: each new width costs oneDNN a compilation and some megabytes that it keeps."""
    step = max(8, 1 << max(0, tokens.bit_length() - 3))
    return tokens + -tokens % step


class Apart:
    """By the model's own forward, each row with a cache of its own: for models whose rows cannot be padded to join others."""

    open = True

    def __init__(self, model: Callable[[], Any], way: Way) -> None:
        self.model, self.way = model, way
        self.rows: list[Reading] = []
        self.known: list[int] = []

    def read(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        self.known = [0] * len(prompts)
        fresh = [
            Reading(self.model, [prompt], cached=self.way.cached, selects=self.way.selects)
            for prompt in prompts
        ]
        self.rows += fresh
        return torch.cat([row.logits for row in fresh])

    def step(self, last: Sequence[int]) -> Tensor:
        return torch.cat([row.step([token]) for row, token in zip(self.rows, last, strict=True)])

    def keep(self, places: Sequence[int]) -> None:
        rows = [self.rows[old] for old in places]
        self.drop()
        self.rows = rows

    def drop(self) -> None:
        self.rows = []
