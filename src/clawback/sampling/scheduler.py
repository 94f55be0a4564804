"""The rows of a version, and the one scheduler whose requests join and leave them.

Rows read prompts and go on, one token at a time; what is drawn is the scheduler's business. There are three kinds: by the lean decoder, where it knows the model (``Lean``), at twice the speed and more; by the
model's own forward with rows padded on the left (``padded.py``); and where that is not right for a model (``ways.Apart``) or
where pictures are looked at, with rows of equal length in a batch of their own each (``ways.Apart``).

Whoever draws is a caller of the scheduler: many answers at once (``sampling.sample``), turns of conversations (``sampling/conversations.py``)
and a server's requests that come at any time (``inference/batcher.py``). The rows only read and step.

* A row that ends is overwritten by the last live one, so that nothing is computed for rows that have ended.
* The random numbers of a request are its own, so that its answer does not depend on its neighbours or on when it
  joined, up to rounding in the model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from clawback.sampling.choose import SamplingRequest, draw
from clawback.sampling.decoder import Cache, Decoder
from clawback.sampling.decoder_choice import drawing_dtype
from clawback.sampling.prefix_tree import LEAST, PrefixCache, common, fill, read

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

    def __init__(self, model: object, expected: int, memory: bool = True, context: int = 0) -> None:
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


_TOGETHER = 8
"""Rows that join others are read some at once: as many as a share of all rows, one part in so many."""


def closed_ranks(over: Sequence[bool]) -> list[int]:
    """Which old row each new row is: ended ones are replaced by live ones from the end, the others stay.

    >>> closed_ranks([False, True, False, False])
    [0, 3, 2]
    """
    left = len(over) - sum(over)
    movers = iter([i for i in range(left, len(over)) if not over[i]])
    return [next(movers) if over[i] else i for i in range(left)]


class Scheduler:
    """The requests of one version that are under way, in the order of its rows."""

    def __init__(
        self,
        rows: Rows,
        stop: Collection[int] = (),
        most: int = MOST_ROWS,
    ) -> None:
        """``stop``: tokens that end an answer; ``most``: rows at once."""
        self.rows, self.stop, self.most = rows, frozenset(stop), most
        self.running: list[SamplingRequest] = []

    @property
    def room(self) -> int:
        """How many requests can join now."""
        return self.most - len(self.running) if self.rows.open or not self.running else 0

    def run(self, groups: Sequence[Sequence[SamplingRequest]]) -> None:
        """Answer all requests. Those of a group, at most as many as there are rows, join together."""
        waiting = deque(groups)
        try:
            while waiting or self.running:
                self._admit(waiting)
                self.step()
        except BaseException:
            self.drop()
            raise

    def _admit(self, waiting: deque[Sequence[SamplingRequest]]) -> None:
        """Those who wait join once there is room for a few of them together."""
        room = self.room
        if not waiting or (self.running and room < max(len(waiting[0]), self.most // _TOGETHER)):
            return
        joining: list[SamplingRequest] = []
        while waiting and len(joining) + len(waiting[0]) <= room:
            joining += waiting.popleft()
        self.join(joining)

    def join(self, requests: Sequence[SamplingRequest]) -> None:
        """Read their prompts, and draw the first token of each."""
        logits = self.rows.read(requests)
        first = len(self.running)
        self.running += requests
        self._advance(logits, first)

    def step(self) -> None:
        """One more token for each."""
        if self.running:
            self._advance(self.rows.step([request.ids[-1] for request in self.running]), 0)

    def drop(self) -> list[SamplingRequest]:
        """Let go of all rows, whatever state they are in: the requests that were under way."""
        dropped, self.running = self.running, []
        self.rows.drop()
        return dropped

    def _advance(self, logits: Tensor, first: int) -> None:
        """Draw a token for the rows from ``first`` on, and let those go that end with it."""
        requests = self.running[first:]
        for request, token, logprob in zip(requests, *_choose(logits, requests), strict=True):
            request.take(token, logprob)
        ends = [""] * first + [self._end(request) for request in requests]
        if any(ends):
            keep = closed_ranks([bool(end) for end in ends])
            self.rows.keep(keep)
            ended = [(one, end) for one, end in zip(self.running, ends, strict=True) if end]
            self.running = [self.running[old] for old in keep]
            for request, end in ended:
                request.finish(end)

    def _end(self, request: SamplingRequest) -> str:
        """Why it ends with its last token; "" where it goes on."""
        if request.cancelled:
            return "cancelled"
        if request.constraint is not None and request.constraint.trouble:
            return f"error: {request.constraint.trouble}"
        if request.ids[-1] in self.stop or (
            request.speaker is not None and request.speaker.spoke(request.ids)
        ):
            return "stop"
        return "length" if len(request.ids) >= request.max_tokens else ""


def _choose(logits: Tensor, requests: Sequence[SamplingRequest]) -> tuple[list[int], list[float]]:
    """A token and its log-prob for each request, of ``logits [requests, vocabulary]``."""
    chance = torch.tensor([next(request.chance) for request in requests], device=logits.device)  # [rows, 2]
    tokens = torch.empty(len(requests), dtype=torch.long, device=logits.device)
    logprobs = torch.empty(len(requests), device=logits.device)
    logits = _among_choices(logits, requests)
    allowed = _allowed(logits, requests)
    for sampling in dict.fromkeys(request.sampling for request in requests):
        rows = [i for i, request in enumerate(requests) if request.sampling == sampling]
        if len(rows) == len(requests):
            tokens, logprobs = draw(allowed, chance[:, 0], chance[:, 1], sampling)
        else:
            some = torch.tensor(rows, device=logits.device)
            tokens[some], logprobs[some] = draw(allowed[some], chance[some, 0], chance[some, 1], sampling)
    chosen, values = tokens.tolist(), logprobs.tolist()
    for i, request in enumerate(requests):
        if request.constraint is not None or request.top:
            own = (logits[i].float() / request.sampling.scale).log_softmax(0)
            if request.constraint is not None:
                values[i] = float(own[chosen[i]])
            if request.top:
                best, names = own.topk(min(request.top, len(own)))
                request.likeliest.append(list(zip(names.tolist(), best.tolist(), strict=True)))
    return chosen, values


def _among_choices(logits: Tensor, requests: Sequence[SamplingRequest]) -> Tensor:
    """``logits [requests, vocabulary]``, minus infinity for what leads to none of the answers that a request may have."""
    if all(request.choices is None for request in requests):
        return logits
    return torch.cat(
        [
            row if request.choices is None else request.choices.masked(row, [request.ids])
            for request, row in zip(requests, logits.split(1), strict=True)
        ]
    )


def _allowed(logits: Tensor, requests: Sequence[SamplingRequest]) -> Tensor:
    """``logits [requests, vocabulary]``, less the tokens that requests with a constraint may not have."""
    if all(request.constraint is None for request in requests):
        return logits
    return torch.stack(
        [
            row if request.constraint is None else request.constraint.allowed(row)
            for request, row in zip(requests, logits, strict=True)
        ]
    )
