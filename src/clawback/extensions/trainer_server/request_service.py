"""Sessions, models, and requests in the order of their numbers; each is executed once, however often it is sent.

One worker does the work, so a model's requests are executed in order, and models take turns. Results are
remembered by request number for as long as the server runs; only checkpoints are on disk.
"""

from __future__ import annotations

import re
import secrets
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.errors import ClawbackError
from clawback.extensions.hosted.trainer_records import HostedCost
from clawback.extensions.trainer_server.lora_weights import StandInLearner
from clawback.files import restore_folder

if TYPE_CHECKING:
    from clawback.records import JsonObject

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
MOST_MODELS = 64


class ApiRefused(ClawbackError):
    """A request that is not done: the status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class Made:
    """What an operation gives: as JSON, or as bytes where the client reads Protocol Buffers."""

    plain: JsonObject
    packed: Callable[[], bytes] | None = None


@dataclass
class Promise:
    id: str
    content: str
    """A hash of what was asked: the same number for something else is refused."""
    future: Future[Made] = field(default_factory=Future)
    about: JsonObject = field(default_factory=dict)
    """What is answered at once beside the promise's name."""


@dataclass
class StandInModel:
    id: str
    session: str
    rank: int
    next: int = 1
    promises: dict[int, Promise] = field(default_factory=dict)
    waiting: dict[int, tuple[Promise, Callable[[], Made]]] = field(default_factory=dict)


class Service:
    """All state of the server. Methods that begin with a verb of the API may be called from any thread."""

    backward_scores = True
    """Whether a backward pass gives log-probs, too."""

    def __init__(self, learner: StandInLearner, base: str, folder: Path) -> None:
        self.learner, self.base, self.folder = learner, base, folder
        self.sessions: set[str] = set()
        self.models: dict[str, StandInModel] = {}
        self.samplers: dict[str, str] = {}
        """Sampling session → tinker:// path; "" for the base."""
        self.promises: dict[str, Promise] = {}
        self.named: dict[str, Promise] = {}
        """By what makes a request the same, where that is no model's number."""
        self.saving: set[str] = set()
        self.bill = HostedCost()
        """What was really computed."""
        self._lock = threading.RLock()
        self._worker = ThreadPoolExecutor(1, "learner")

    def close(self) -> None:
        self._worker.shutdown(cancel_futures=True)

    # ---------------------------------------------------------------------------------------------- sessions

    def session(self) -> str:
        made = f"session-{secrets.token_hex(6)}"
        self.sessions.add(made)
        return made

    def know(self, session: str) -> None:
        if session not in self.sessions:
            raise ApiRefused(404, "Session not found")

    def model(self, model: Any) -> StandInModel:
        found = self.models.get(str(model))
        if found is None:
            raise ApiRefused(404, f"Model {str(model)[:40]} not found")
        return found

    def sampler(self, session: str, number: int, base: str | None, path: str | None) -> str:
        self.know(session)
        if (base is None) == (path is None):
            raise ApiRefused(400, "Exactly one of base_model or model_path must be provided")
        if path is not None:
            self.checkpoint(path, "sampler_weights")
        else:
            self.knows_base(str(base))
        made = f"{session}:sample:{number}"
        self.samplers[made] = path or ""
        return made

    def knows_base(self, base: str) -> None:
        if base != self.base:
            raise ApiRefused(400, f"There is no model {base[:80]!r} here, only {self.base!r}")

    # ---------------------------------------------------------------------------------------------- requests

    def create(self, session: str, number: int, base: str, rank: int, seed: int | None) -> Promise:
        self.know(session)
        self.knows_base(base)
        model = f"{session}-train-{number}"
        with self._lock:
            if (known := self.named.get(model)) is not None:
                return known
            if len(self.models) >= MOST_MODELS:
                raise ApiRefused(429, f"{MOST_MODELS} models are held here; unload some")
            promise = self._promise(model, "", {"model_id": model})
            self.models[model] = StandInModel(model, session, rank)

            def work() -> Made:
                self.learner.create(model, rank, seed)
                return Made({"type": "create_model", "model_id": model})

            self._submit(promise, work)
            return promise

    def ask(
        self, model: StandInModel, number: int | None, content: bytes, work: Callable[[], Made]
    ) -> Promise:
        """A request of a model, done when its number's turn has come. Raises ``ApiRefused`` where the number was used for something else."""
        hashed = sha256(content).hexdigest()
        with self._lock:
            if number is None:
                number = model.next + len(model.waiting)
            if not 1 <= number < 1 << 31:
                raise ApiRefused(400, f"seq_id {number} is out of range")
            if (known := model.promises.get(number)) is not None:
                if known.content != hashed:
                    raise ApiRefused(409, "Training request sequence number was reused")
                return known
            promise = model.promises[number] = self._promise("", hashed, {})
            model.waiting[number] = (promise, work)
            while model.next in model.waiting:
                ready, do = model.waiting.pop(model.next)
                self._submit(ready, do)
                model.next += 1
            return promise

    def once(self, name: str, work: Callable[[], Made], about: Mapping[str, object] | None = None) -> Promise:
        """A request that is no model's, under a name of its own."""
        with self._lock:
            if (known := self.named.get(name)) is not None:
                return known
            promise = self._promise(name, "", dict(about or {}))
            self._submit(promise, work)
            return promise

    def _promise(self, name: str, content: str, about: JsonObject) -> Promise:
        made = Promise(f"r{len(self.promises)}", content, about=about)
        self.promises[made.id] = made
        if name:
            self.named[name] = made
        return made

    def _submit(self, promise: Promise, work: Callable[[], Made]) -> None:
        def run() -> None:
            try:
                promise.future.set_result(work())
            except ClawbackError as error:
                promise.future.set_result(Made({"error": str(error), "category": "user"}))
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                promise.future.set_result(Made({"error": said, "category": "server"}))

        self._worker.submit(run)

    def pay(self, spent: HostedCost) -> None:
        with self._lock:
            self.bill += spent

    # ---------------------------------------------------------------------------------------------- checkpoints

    def checkpoint_path(self, model: str, kind: str, name: str) -> tuple[str, Path]:
        """(tinker:// path, folder) of a checkpoint that is to be made."""
        if not NAME.fullmatch(name):
            raise ApiRefused(400, "A checkpoint's name has letters, digits, dots, dashes and underscores")
        return f"tinker://{model}/{kind}/{name}", self.folder / model / kind / name

    def checkpoint(self, path: str, kind: str = "") -> Path:
        """The folder of one that is there. Raises ``ApiRefused``: 425 while it is being written."""
        parts = path.removeprefix("tinker://").split("/")
        if not path.startswith("tinker://") or len(parts) != 3 or not all(map(NAME.fullmatch, parts)):
            raise ApiRefused(400, "A checkpoint is named tinker://RUN/KIND/NAME")
        if kind and parts[1] != kind:
            raise ApiRefused(400, f"That takes {kind}, not {parts[1]}")
        if path in self.saving:
            raise ApiRefused(425, "Checkpoint is still being created")
        folder = self.folder.joinpath(*parts)
        restore_folder(folder)
        if not folder.is_dir():
            raise ApiRefused(404, "Checkpoint not found")
        return folder

    def save(self, model: StandInModel, path: str, folder: Path) -> None:
        """By the worker: the model as it stands. Those for a sampler hold no optimizer."""
        try:
            self.learner.save(model.id, folder)
        finally:
            self.saving.discard(path)

    def unload(self, model: StandInModel) -> Promise:
        def work() -> Made:
            self.learner.unload(model.id)
            self.models.pop(model.id, None)
            return Made({"type": "unload_model", "model_id": model.id})

        return self.once(f"unload {model.id}", work)

    def forget_all(self) -> None:
        """As after a restart: what is on the disk stays."""
        with self._lock:
            for model in list(self.models.values()):
                self.learner.unload(model.id)
            self.sessions, self.models, self.samplers = set(), {}, {}
            self.promises, self.named = {}, {}

    def clean(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
