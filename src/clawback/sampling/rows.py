"""The rows of one version: they read prompts and go on, one token at a time. What is drawn is the scheduler's business.

There are three kinds: by the lean decoder, where it knows the model (``Lean``), at twice the speed and more; by the
model's own forward with rows padded on the left (``padded.py``); and where that is not right for a model (``ways.Apart``) or
where pictures are looked at, with rows of equal length in a batch of their own each (``ways.Apart``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from clawback.sampling.decoder import Cache, Decoder
from clawback.sampling.decoder_choice import drawing_dtype
from clawback.sampling.prefix_tree import LEAST, PrefixCache, common, fill, read

if TYPE_CHECKING:
    from clawback.sampling.choose import SamplingRequest

MOST_ROWS = 128
"""Rows computed at once, where their cache fits into the memory."""
READ_TOKENS = 4096
"""Tokens of prompts that are read at once."""
_COLUMNS = 32
"""Columns of the cache that are looked at come in multiples of this: oneDNN compiles code for each new shape of a product."""


class Rows(Protocol):
    """The rows of one version. The model speaks for that version while a method is called."""

    @property
    def open(self) -> bool:
        """Whether more rows may join while others are under way."""
        ...

    def read(self, requests: Sequence[SamplingRequest]) -> Tensor:
        """New rows for their prompts: the logits ``[requests, vocabulary]`` of what follows each."""
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


class Lean:
    """By the lean decoder, whose weights are those of the version at this moment.

    A row is a slot of the cache. Rows that end leave what was read of them to ``memory``, and new ones begin with what is known of their
    prompts from there or from other rows.
    """

    open = True

    def __init__(self, model: Any, expected: int, memory: bool = True, context: int = 0) -> None:
        """``expected``: rows that weights are put in order for. ``memory``: keep what was read for later prompts, of conversations of up to
        ``context`` tokens."""
        self.decoder = Decoder(model, drawing_dtype(model), rows=expected)
        self.cache: Cache | None = None
        self.memory = PrefixCache.of(self.decoder, context) if memory else None
        self.ids: list[list[int]] = []
        """Tokens of each row that the cache has."""
        self.conversations: list[Any] = []

    def read(self, requests: Sequence[SamplingRequest]) -> Tensor:
        first, prompts = len(self.ids), [list(request.prompt) for request in requests]
        if self.cache is None:
            self.cache = Cache(self.decoder, _even(len(prompts)), max(map(len, prompts)) + 4 * _COLUMNS)
        self.cache.widen(_even(first + len(prompts)))
        logits: list[Tensor] = []
        try:
            for some in self.batches(requests):
                logits.append(self.read_batch(self.cache, some))
                self.ids += [list(request.prompt) for request in some]
        except BaseException:
            del self.ids[first:]
            raise
        self.conversations += [request.conversation for request in requests]
        return torch.cat(logits)

    def batches(self, requests: Sequence[SamplingRequest]) -> Iterator[list[SamplingRequest]]:
        """In order, as many together as have ``READ_TOKENS`` that are not common to two neighbours."""
        some: list[SamplingRequest] = []
        fresh = 0
        for request in requests:
            fresh += len(request.prompt) - (common(some[-1].prompt, request.prompt) if some else 0)
            if some and fresh > READ_TOKENS:
                yield some
                some, fresh = [], len(request.prompt)
            some.append(request)
        yield some

    def read_batch(self, cache: Cache, requests: Sequence[SamplingRequest]) -> Tensor:
        """New rows behind those that there are."""
        first = len(self.ids)
        starts = [self._begin(cache, first + i, request) for i, request in enumerate(requests)]
        slots = torch.arange(first, first + len(requests), device=self.decoder.device)
        prompts = [request.prompt for request in requests]
        logits, fresh = read(self.decoder, prompts, starts, cache, slots)
        for request, count in zip(requests, fresh, strict=True):
            request.cached = len(request.prompt) - count
        return logits

    def _begin(self, cache: Cache, row: int, request: SamplingRequest) -> int:
        """Give a row what is known of its prompt, all but its last token at most: how many tokens that are."""
        if self.memory is None:
            return 0
        prompt = request.prompt
        known, kept = self.memory.longest(prompt, request.conversation)
        if kept is None or known < len(prompt) - 1:
            shared, donor = max(
                ((common(other, prompt), -place) for place, other in enumerate(self.ids)), default=(0, 0)
            )
            if shared > known and shared >= LEAST:
                start, slots = (
                    min(shared, len(prompt) - 1),
                    torch.tensor([-donor, row], device=self.decoder.device),
                )
                cache.move(slots[:1], slots[1:], start)
                return start
        if kept is None:
            return 0
        start = min(known, len(prompt) - 1)
        fill(cache, row, kept, start)
        return start

    def step(self, last: Sequence[int]) -> Tensor:
        assert self.cache is not None
        for ids, token in zip(self.ids, last, strict=True):
            ids.append(token)
        position = [len(ids) - 1 for ids in self.ids]
        # Slots that nobody reads are overwritten.
        spare = [0] * (_even(len(last)) - len(last))
        device, columns = self.decoder.device, max(position) + 1
        self.adapt(len(spare))
        logits = self.decoder.step(
            torch.tensor([*last, *spare], device=device),
            torch.tensor([*position, *spare], device=device),
            self.cache,
            columns + -columns % _COLUMNS,
        )
        return logits[: len(last)]

    def adapt(self, spare: int) -> None:
        """All rows go through the model next, and some that nobody reads."""

    def keep(self, places: Sequence[int]) -> None:
        if self.memory is not None and self.cache is not None:
            for row in sorted(set(range(len(self.ids))) - set(places)):
                self.memory.put(self.ids[row], self.cache, row, self.conversations[row])
        if not places or self.cache is None:
            self.drop()
            return
        moved = [(old, new) for new, old in enumerate(places) if old != new]
        if moved:
            sources, targets = torch.tensor(moved, device=self.decoder.device).T
            self.cache.move(sources, targets, max(map(len, self.ids)))
        self.ids = [self.ids[old] for old in places]
        self.conversations = [self.conversations[old] for old in places]

    def drop(self) -> None:
        self.ids, self.conversations, self.cache = [], [], None


def _even(rows: int) -> int:
    """1, 2, 4, then multiples of 8."""
    return rows if rows <= 2 else 4 if rows <= 4 else rows + -rows % 8
