"""Continuous batching: requests join a running batch when they arrive and leave it when they end.

One thread owns the model. Each version has a *lane*: its rows, with one key-value cache. A
step takes every lane that has rows through the model once, under its own adapter, so each answer is wholly
one version's. New prompts are read together and join the lane's rows (positions are counted from each row's
own start, so a row's answer does not depend on its neighbours, up to rounding in the model).

With a *shelf* (a server of many people, ``extensions/people``) there is one lane for all: each row takes its own
adapter's part of every product, so a step reads the base weights once, whoever asks. A
request for an adapter waits while all slots are in use.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from clawback.errors import ModelError
from clawback.models import adapter as adapters
from clawback.models import delta
from clawback.sampling import Rows, SamplingRequest, Scheduler, lean, rows_of

if TYPE_CHECKING:
    from clawback.sampling import ChatModel

log = logging.getLogger("clawback.engine")
MOST_ROWS = 64
"""Rows of a lane at once; others wait."""
PATIENCE = 64
"""Steps for which those whose adapter is in a slot already may go before one who waits for a slot."""
_EXPECTED = 16
"""Rows that weights are put in order for."""
MOST_LANES = 4
"""Adapters kept on the base model; the one that was idle longest goes first."""


class AdapterShelf(Protocol):
    """Adapters that answer in one batch, each in a slot."""

    def warm(self, folder: Path) -> object:
        """Read an adapter into memory. Raises ``ModelError``."""
        ...

    def hold(self, folder: Path | None) -> int | None:
        """The slot of an adapter, held until its row ends; None where all are in use. Raises ``ModelError``."""
        ...

    def rows(self, model: object, expected: int) -> Rows:
        """Rows for everybody. ``expected``: how many weights are put in order for."""
        ...


class Batcher:
    """``start``, ``submit`` from any thread, ``close``."""

    def __init__(self, policy: ChatModel, stop: Sequence[int], shelf: AdapterShelf | None = None) -> None:
        self.policy, self.stop, self.shelf = policy, frozenset(stop), shelf
        self.incoming: queue.SimpleQueue[SamplingRequest | Callable[[], None] | None] = queue.SimpleQueue()
        self.waiting: list[SamplingRequest] = []
        self.lanes: dict[str, Scheduler] = {}
        self.clock = 0
        self.used: dict[str, int] = {}
        """When each lane was used last, in steps."""
        self.deltas: set[str] = set()
        """Lanes whose version is a delta of all weights."""
        self.thread = threading.Thread(target=self._run, name="batcher", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def submit(self, request: SamplingRequest) -> None:
        self.incoming.put(request)

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
                for name, lane in list(self.lanes.items()):
                    if lane.running:
                        self._guarded(lane.running, partial(self._step, name))
                self._admit()
        for request in (*self.waiting, *(one for lane in self.lanes.values() for one in lane.running)):
            request.finish("cancelled")

    def _receive(self) -> bool:
        """Take what has come in; wait where there is nothing to do. False: close."""
        busy = self.waiting or any(lane.running for lane in self.lanes.values())
        while True:
            try:
                item = self.incoming.get(block=not busy)
            except queue.Empty:
                return True
            if item is None:
                return False
            if isinstance(item, SamplingRequest):
                self.waiting.append(item)
                busy = True
            else:
                item()

    def _guarded(self, requests: Sequence[SamplingRequest], action: Callable[[], None]) -> None:
        """Whatever goes wrong ends these requests with a reason, and no others."""
        concerned = list(requests)
        try:
            action()
        except Exception as error:
            log.exception("answers were cut off")
            for lane in self.lanes.values():
                if any(request in lane.running for request in concerned):
                    concerned += [one for one in lane.drop() if one not in concerned]
            for request in concerned:
                if not request.end:
                    request.finish(f"error: {error}")

    # ---------------------------------------------------------------------------------------------- joining

    def _admit(self) -> None:
        """Read the prompts that wait and have room, lane by lane."""
        groups: dict[str, list[SamplingRequest]] = {}
        left: list[SamplingRequest] = []
        blocked = False
        for request in self.waiting:
            name = _SHARED if self.shelf else _name(request.folder)
            lane = self.lanes.get(name)
            room = lane.room if lane else MOST_ROWS
            if request.cancelled:
                request.finish("cancelled")
            elif len(groups.get(name, [])) >= room:
                left.append(request)
            elif not blocked and self._held(request):
                groups.setdefault(name, []).append(request)
            else:
                left.append(request)
                request.passed += 1
                blocked = blocked or request.passed > PATIENCE
        self.waiting = left
        for name, requests in groups.items():
            if ready := [request for request in requests if not request.cancelled]:
                self._guarded(ready, partial(self._join, name, ready))

    def _held(self, request: SamplingRequest) -> bool:
        """Whether the request has its adapter's slot now. One whose adapter cannot be used ends here."""
        if self.shelf is None:
            return True
        try:
            slot = self.shelf.hold(request.folder)
        except ModelError as error:
            request.cancelled = True
            request.finish(f"error: {error}")
            return True
        request.slot = slot or 0
        return slot is not None

    def _lane(self, name: str, folder: Path | None) -> Scheduler:
        lane = self.lanes.get(name)
        if lane is None:
            if folder is not None and self.shelf is None:
                self._make_room()
                self.policy.model = adapters.put(self.policy.model, self.policy.info, folder, name)
                if delta.there(folder):
                    self.deltas.add(name)
            self._speak_for(name)
            lane = self.lanes[name] = Scheduler(self._rows(), self.stop, MOST_ROWS)
        return lane

    def _rows(self) -> Rows:
        policy = self.policy
        if self.shelf:
            return self.shelf.rows(policy.model, _EXPECTED)
        return rows_of(
            lambda: policy.model,
            lean(policy),
            expected=_EXPECTED,
            memory=True,
            context=policy.info.context,
            eyes=bool(policy.chat.eyes),
        )

    def _make_room(self) -> None:
        idle = sorted(
            (self.used.get(n, 0), n) for n, lane in self.lanes.items() if not lane.running and n != _BASE
        )
        for _, name in idle[: max(0, len(self.lanes) - MOST_LANES + 1)]:
            del self.lanes[name]
            self.policy.model = adapters.remove(self.policy.model, name)
            self.deltas.discard(name)

    def _activate(self, name: str) -> None:
        self.clock += 1
        self.used[name] = self.clock
        self._speak_for(name)

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

    def _join(self, name: str, requests: list[SamplingRequest]) -> None:
        lane = self._lane(name, requests[0].folder)
        self._activate(name)
        lane.join(
            sorted(requests, key=lambda request: list(request.prompt))
        )  # those that begin alike are read together

    def _step(self, name: str) -> None:
        self._activate(name)
        self.lanes[name].step()


_BASE, _SHARED = "base", "shared"


def _name(folder: Path | None) -> str:
    """What PEFT calls the adapter: a word without dots, one for each folder."""
    import hashlib

    return _BASE if folder is None else "v" + hashlib.blake2b(str(folder).encode(), digest_size=8).hexdigest()
