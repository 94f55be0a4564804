"""The one scheduler of the sampler: requests join the rows of a version when there is room, and leave them when they end.

Whoever draws is a caller of it: many answers at once (``sampling.sample``), turns of conversations (``environments/conversations.py``)
and a server's requests that come at any time (``serve/batcher.py``). The rows (``rows.py``) only read and step.

* A row that ends is overwritten by the last live one, so that nothing is computed for rows that have ended.
* The random numbers of a request are its own, so that its answer does not depend on its neighbours or on when it
  joined, up to rounding in the model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from clawback.sampling.choose import SamplingRequest, draw
from clawback.sampling.rows import MOST_ROWS, Rows

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
