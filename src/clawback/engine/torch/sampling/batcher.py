"""Continuous batching: requests join a running batch when they arrive and leave it when they end.

One thread owns the model. Each version has a *lane*: its rows, with one key-value cache (``lanes.py``). A
step takes every lane that has rows through the model once, under its own adapter, so each answer is wholly
one version's. New prompts are read together and join the lane's rows (positions are counted from each row's
own start, so a row's answer does not depend on its neighbours, up to rounding in the model).

With a *shelf* (a server of many people, ``shelf.py``) there is one lane for all: each row takes its own
adapter's part of every product (``grouped.py``), so a step reads the base weights once, whoever asks. A
request for an adapter waits while all slots are in use.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clawback.engine.torch.models import adapter as adapters
from clawback.engine.torch.models import delta
from clawback.engine.torch.sampling.choose import draw
from clawback.engine.torch.sampling.continuous import closed_ranks
from clawback.engine.torch.sampling.generate import PLAIN
from clawback.engine.torch.sampling.grammar import Constraint
from clawback.engine.torch.sampling.grouped import SharedRows
from clawback.engine.torch.sampling.lanes import Rows, rows_of
from clawback.engine.torch.sampling.seeing import Seeing
from clawback.engine.torch.sampling.shelf import Shelf
from clawback.engine.types import Sampling
from clawback.errors import ModelError

if TYPE_CHECKING:
    from clawback.engine.torch.models.policy import Policy
    from clawback.engine.torch.models.vision import Pixels

log = logging.getLogger("clawback.engine")
MOST_ROWS = 64
"""Rows of a lane at once; others wait."""
PATIENCE = 64
"""Steps for which those whose adapter is in a slot already may go before one who waits for a slot."""
MOST_LANES = 4
"""Adapters kept on the base model; the one that was idle longest goes first."""


@dataclass(eq=False, slots=True)
class Ask:
    """A pending prompt. The callbacks are called on the batcher's thread and must not block."""

    prompt: Sequence[int]
    max_tokens: int
    on_token: Callable[[int, float], None]
    """Token id and its log-prob under the policy at its temperature, as each is sampled (the end token among them)."""
    on_end: Callable[[str], None]
    """``"stop"``, ``"length"``, ``"cancelled"``, or ``"error: …"``."""
    folder: Path | None = None
    """The adapter's folder; None is the base model."""
    sampling: Sampling = PLAIN
    seed: int = 0
    cancelled: bool = False
    top: int = 0
    """So many of the likeliest tokens are told of at each place, in ``beside``."""
    beside: list[list[tuple[int, float]]] = field(default_factory=list)
    """(token, log-prob), likeliest first; complete up to a token when that is told."""
    constraint: Constraint | None = None
    """What the answer keeps to. It is drawn from the tokens that are allowed; the log-probs told are the policy's own all the same."""
    pixels: Pixels | None = None
    """What is seen beside the prompt; only where there is no shelf."""
    slot: int = 0
    """Where its adapter is on the shelf, if there is one."""
    passed: int = 0
    """Steps in which it had to wait for a slot."""
    cached: int = 0
    """Tokens of the prompt that did not have to be read, once it begins."""
    chance: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.chance = torch.Generator().manual_seed(self.seed)

    def next_chance(self) -> Tensor:
        """[2] what decides the next token: the second is for a first one that is cut off, and 0 where none is."""
        return torch.cat(
            [torch.rand(2 if self.sampling.truncates else 1, generator=self.chance), torch.zeros(1)]
        )[:2]


@dataclass(eq=False, slots=True)
class _Lane:
    """What one version is asked, and how its answers go on."""

    name: str
    under_way: Rows
    rows: list[Ask] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    """Tokens that each row has said."""
    last: list[int] = field(default_factory=list)
    used: int = 0
    """The step it was last used in."""


class Batcher:
    """``start``, ``submit`` from any thread, ``close``."""

    def __init__(self, policy: Policy, stop: Sequence[int], shelf: Shelf | None = None) -> None:
        self.policy, self.stop, self.shelf = policy, frozenset(stop), shelf
        self.incoming: queue.SimpleQueue[Ask | Callable[[], None] | None] = queue.SimpleQueue()
        self.waiting: list[Ask] = []
        self.lanes: dict[str, _Lane] = {}
        self.clock = 0
        self.deltas: set[str] = set()
        """Lanes whose version is a delta of all weights."""
        self.thread = threading.Thread(target=self._run, name="batcher", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def submit(self, ask: Ask) -> None:
        self.incoming.put(ask)

    def run(self, work: Callable[[], None]) -> None:
        """Run another function that needs the model, between two steps. It must not raise."""
        self.incoming.put(work)

    def close(self) -> None:
        """What is under way is cut off."""
        self.incoming.put(None)
        self.thread.join(timeout=30)

    def _run(self) -> None:
        with torch.no_grad():
            while self._receive():
                for lane in list(self.lanes.values()):
                    if lane.rows:
                        self._guarded(lane.rows, partial(self._step, lane))
                self._admit()
        for ask in (*self.waiting, *(row for lane in self.lanes.values() for row in lane.rows)):
            ask.on_end("cancelled")

    def _receive(self) -> bool:
        """Take what has come in; wait where there is nothing to do. False: close."""
        busy = self.waiting or any(lane.rows for lane in self.lanes.values())
        while True:
            try:
                ask = self.incoming.get(block=not busy)
            except queue.Empty:
                return True
            if ask is None:
                return False
            if isinstance(ask, Ask):
                self.waiting.append(ask)
                busy = True
            else:
                ask()

    def _guarded(self, asks: list[Ask], action: Callable[[], None]) -> None:
        """Whatever goes wrong ends these requests with a reason, and no others."""
        asks = list(asks)
        try:
            action()
        except Exception as error:
            log.exception("answers were cut off")
            for lane in self.lanes.values():
                if any(ask in lane.rows for ask in asks):
                    lane.rows, lane.counts, lane.last = [], [], []
                    lane.under_way.drop()
            for ask in asks:
                ask.on_end(f"error: {error}")

    # ---------------------------------------------------------------------------------------------- joining

    def _admit(self) -> None:
        """Read the prompts that wait and have room, lane by lane."""
        groups: dict[str, list[Ask]] = {}
        left: list[Ask] = []
        blocked = False
        for ask in self.waiting:
            name = _SHARED if self.shelf else _name(ask.folder)
            lane = self.lanes.get(name)
            taken = len(lane.rows) if lane else 0
            joins = lane is None or lane.under_way.open or not lane.rows
            if ask.cancelled:
                ask.on_end("cancelled")
            elif not joins or taken + len(groups.get(name, [])) >= MOST_ROWS:
                left.append(ask)
            elif not blocked and self._held(ask):
                groups.setdefault(name, []).append(ask)
            else:
                left.append(ask)
                ask.passed += 1
                blocked = blocked or ask.passed > PATIENCE
        self.waiting = left
        for name, asks in groups.items():
            if ready := [ask for ask in asks if not ask.cancelled]:
                self._guarded(ready, partial(self._join, name, ready))

    def _held(self, ask: Ask) -> bool:
        """Whether the ask has its adapter's slot now. One whose adapter cannot be used ends here."""
        if self.shelf is None:
            return True
        try:
            slot = self.shelf.hold(ask.folder)
        except ModelError as error:
            ask.cancelled = True
            ask.on_end(f"error: {error}")
            return True
        ask.slot = slot or 0
        return slot is not None

    def _lane(self, name: str, folder: Path | None) -> _Lane:
        lane = self.lanes.get(name)
        if lane is None:
            if folder is not None and self.shelf is None:
                self._make_room()
                self.policy.model = adapters.put(self.policy.model, self.policy.info, folder, name)
                if delta.there(folder):
                    self.deltas.add(name)
            self._speak_for(name)
            lane = self.lanes[name] = _Lane(name, self._rows())
        return lane

    def _rows(self) -> Rows:
        if self.shelf:
            return SharedRows(self.policy, self.shelf)
        rows = rows_of(self.policy)
        return Seeing(self.policy, rows) if self.policy.chat.eyes else rows

    def _make_room(self) -> None:
        idle = sorted((lane.used, n) for n, lane in self.lanes.items() if not lane.rows and n != _BASE)
        for _, name in idle[: max(0, len(self.lanes) - MOST_LANES + 1)]:
            del self.lanes[name]
            self.policy.model = adapters.remove(self.policy.model, name)
            self.deltas.discard(name)

    def _activate(self, lane: _Lane) -> None:
        self.clock += 1
        lane.used = self.clock
        self._speak_for(lane.name)

    def _speak_for(self, name: str) -> None:
        model: Any = self.policy.model
        if self.deltas and delta.active(model) != (name if name in self.deltas else None):
            delta.speak(model, name if name in self.deltas else None)
        if not hasattr(model, "peft_config"):
            return
        if name in (_BASE, _SHARED) or name in self.deltas:
            model.base_model.disable_adapter_layers()
        else:
            model.base_model.enable_adapter_layers()
            model.set_adapter(name)

    def _join(self, name: str, asks: list[Ask]) -> None:
        lane = self._lane(name, asks[0].folder)
        self._activate(lane)
        if isinstance(lane.under_way, SharedRows):
            lane.under_way.coming = [ask.slot for ask in asks]
        if isinstance(lane.under_way, Seeing):
            lane.under_way.coming = [ask.pixels for ask in asks]
        logits = lane.under_way.read([ask.prompt for ask in asks])
        for ask, known in zip(asks, lane.under_way.known, strict=True):
            ask.cached = known
        first = len(lane.rows)
        lane.rows += asks
        lane.counts += [0] * len(asks)
        lane.last += [0] * len(asks)
        self._said(lane, logits, first)

    # ---------------------------------------------------------------------------------------------- a step

    def _step(self, lane: _Lane) -> None:
        self._activate(lane)
        self._said(lane, lane.under_way.step(lane.last), 0)

    def _said(self, lane: _Lane, logits: Tensor, first: int) -> None:
        """Sample the next token of the rows from ``first`` on, tell it, and let rows go that have ended."""
        rows = lane.rows[first:]
        chance = torch.stack([row.next_chance() for row in rows]).to(logits.device)
        tokens, log_p = _choose_each(_allowed(logits, rows), chance, [row.sampling for row in rows])
        logprobs = log_p.tolist()
        for i, row in enumerate(rows):
            if row.constraint is not None:
                logprobs[i] = float((logits[i].float() / row.sampling.scale).log_softmax(0)[tokens[i]])
        for row, scores in zip(rows, logits, strict=True):
            if row.top:
                row.beside.append(_likeliest(scores, row))
        done = [False] * len(lane.rows)
        for place, (row, token, logprob) in enumerate(
            zip(rows, tokens.tolist(), logprobs, strict=True), first
        ):
            lane.counts[place] += 1
            lane.last[place] = token
            row.on_token(token, logprob)
            if row.constraint is not None:
                row.constraint.take(token)
            end = (
                "cancelled"
                if row.cancelled
                else f"error: {row.constraint.trouble}"
                if row.constraint is not None and row.constraint.trouble
                else "stop"
                if token in self.stop
                else "length"
                if lane.counts[place] >= row.max_tokens
                else ""
            )
            if end:
                row.on_end(end)
                done[place] = True
        if any(done):
            self._leave(lane, done)

    def _leave(self, lane: _Lane, done: list[bool]) -> None:
        keep = closed_ranks(done)
        lane.rows = [lane.rows[i] for i in keep]
        lane.counts = [lane.counts[i] for i in keep]
        lane.last = [lane.last[i] for i in keep]
        lane.under_way.keep(keep)


_BASE, _SHARED = "base", "shared"


def _name(folder: Path | None) -> str:
    """What PEFT calls the adapter: a word without dots, one for each folder."""
    import hashlib

    return _BASE if folder is None else "v" + hashlib.blake2b(str(folder).encode(), digest_size=8).hexdigest()


def _allowed(logits: Tensor, rows: Sequence[Ask]) -> Tensor:
    """``logits [rows, vocabulary]``, less what those rows that keep to something may not say."""
    if not any(row.constraint is not None for row in rows):
        return logits
    return torch.stack(
        [
            some if row.constraint is None else row.constraint.allowed(some)
            for row, some in zip(rows, logits, strict=True)
        ]
    )


def _choose_each(logits: Tensor, chance: Tensor, wanted: list[Sampling]) -> tuple[Tensor, Tensor]:
    """``[rows]`` token ids and their log-probs, each row's drawn as it asks for. ``chance``: [rows, 2]."""
    tokens = torch.empty(len(wanted), dtype=torch.long, device=logits.device)
    logprobs = torch.empty(len(wanted), device=logits.device)
    for sampling in dict.fromkeys(wanted):
        rows = torch.tensor([i for i, w in enumerate(wanted) if w == sampling], device=logits.device)
        some = logits if len(rows) == len(wanted) else logits[rows]
        tokens[rows], logprobs[rows] = draw(some, chance[rows, 0], chance[rows, 1], sampling)
    return tokens, logprobs


def _likeliest(logits: Tensor, row: Ask) -> list[tuple[int, float]]:
    """``logits [vocabulary]`` → the likeliest tokens, with their log-probs under the policy at its temperature."""
    values, tokens = (logits.float() / row.sampling.scale).log_softmax(0).topk(min(row.top, len(logits)))
    return list(zip(tokens.tolist(), values.tolist(), strict=True))
