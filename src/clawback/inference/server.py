"""What the parts of a running server share: the store, the recorder, and who answers, an upstream or the embedded engine."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from clawback import config, jobs, release, store
from clawback.admin import rating_inbox
from clawback.capture import spool
from clawback.errors import ClawbackError
from clawback.feedback import training_due
from clawback.inference.best_answer import BestAnswers
from clawback.inference.forward import Forward
from clawback.inference.local import LocalEngine, PartialAnswer, named
from clawback.inference.prompting import PromptChooser
from clawback.inference.recorder import Recorder
from clawback.paths import Home
from clawback.policy.memory import give_back
from clawback.prompt_jobs import prompt_worker
from clawback.records import Turn, Version
from clawback.store import copies

log = logging.getLogger("clawback.serve")
SETTLE_SECONDS = 30.0
FADE_SECONDS = 3600.0
_ARENA_MAX = -8
"""``M_ARENA_MAX`` of glibc's malloc.h."""


class Server:
    """What the parts of a running server share. Without an upstream, the embedded engine answers."""

    def __init__(
        self, home: Home, settings: config.ServeSection | None = None, *, local: LocalEngine | None = None
    ) -> None:
        """``local``: a model that others use too, and that whoever hands it in starts and closes."""
        self.home = home
        self.settings = config.load(home.config)
        self.recorder = Recorder(home, self.settings.privacy)
        self.serve = settings or self.settings.serve
        upstream = self.serve.upstream
        self.forward = Forward(upstream, self.recorder, PromptChooser(home)) if upstream else None
        self.local, self.shares = local or LocalEngine(home), local is not None
        self.best_answers = BestAnswers(self.settings)
        self.train: Callable[[], Any] | None = None
        """Asks for a run in its turn, where many share the machine."""
        self._spent = (0, 0)
        self.faded = -FADE_SECONDS
        self.db: store.Store
        self.checked: dict[int, tuple[tuple[str, int, int], ...]] = {}

    @asynccontextmanager
    async def running(self, _: object = None) -> AsyncIterator[None]:
        """A context manager from the first request to the last: what was recorded is on the disk at its end."""
        if not self.shares:
            keep_little()
        self.db = store.connect(self.home.database)
        release.heal(self.db, self.home)
        self.recorder.start()
        try:
            if self.forward:
                await self.forward.start()
            elif not self.shares:
                await asyncio.to_thread(self.local.start)
            if not self.shares:
                keep_what_is_loaded()
            await asyncio.to_thread(spool.drain_if_waiting, self.home)
            settling = asyncio.create_task(self._settle())
            yield
            settling.cancel()
        finally:
            if self.forward:
                await self.forward.close()
            if not self.shares:
                self.local.close()
                gc.unfreeze()
            self.recorder.close()
            self.db.close()

    async def _settle(self) -> None:
        """Look now and then whether a trial has decided, and whether a run is due."""
        while True:
            await asyncio.sleep(SETTLE_SECONDS)
            try:
                await asyncio.to_thread(self._look)
                await asyncio.to_thread(give_back)
            except ClawbackError as error:
                log.error("a look at trial and schedule failed: %s", error)

    def _look(self) -> None:
        """Off the event loop, with a connection of its own: adding a trial up reads every session of it."""
        spool.drain_if_waiting(self.home)
        with store.connect(self.home.database) as db:
            if ended := release.trial.settle(db, self.home, time.time()):
                log.warning("the trial is over: version %s is live", ended[1].number)
        if time.monotonic() - self.faded >= FADE_SECONDS:  # it reads all that is older than it keeps
            self.faded = time.monotonic()
            with store.connect(self.home.database) as db:
                copies.copy_if_due(db, config.load(self.home.config).privacy.copies)
            rating_inbox.fade(self.home)
        # What came together in quiet hours, or while the machine was busy, is trained on when they are over.
        if self.maybe_train():
            log.warning("a training run is being prepared in the background")
        if self.train is None and prompt_worker.maybe_start(self.home):
            log.warning("a search for a prompt started in the background")

    def maybe_train(self) -> bool:
        """Start a run if one is due, or ask for it where others wait, too; says whether it was started."""
        if self.train is None:
            return jobs.maybe_train(self.home)
        with store.connect(self.home.database) as db:
            if training_due(db, self.home):
                self.train()
        return False

    def spent_today(self) -> int:
        """Tokens of answers since midnight UTC."""
        today = int(time.time() // 86_400)
        if self._spent[0] != today:
            self._spent = today, self.db.count_tokens(today * 86_400.0)
        return self._spent[1]

    def spend(self, tokens: int) -> None:
        """Count the tokens of an answer."""
        self._spent = self._spent[0], self._spent[1] + tokens

    def version_for(self, model: str, session: str) -> Version:
        """Raises ``NotFound`` for a version that does not exist, and ``ModelError`` for a damaged one."""
        number = named(model)
        version = (
            self.db.version(number)
            if number is not None
            else release.trial.version_for(self.db, session, self.check)
        )
        version = self._of_this_base(version)
        self.check(version)
        return version

    def _of_this_base(self, version: Version) -> Version:
        """After a move to another base, until this server is started again: what was live on the base that it has loaded."""
        base = self.local.settings.model.base
        while self.forward is None and version.base not in ("", base) and version.number:
            version = self.db.version(version.parent or 0)
        return version

    def check(self, version: Version) -> None:
        """``release.check``, which reads the whole adapter, only where its files are not those that were checked before."""
        if not version.path:
            return
        files = sorted(Path(version.path).glob("*"))
        seen = tuple((file.name, *_stamp(file)) for file in files)
        if self.checked.get(version.number) != seen:
            release.check(version)
            self.checked[version.number] = seen

    def keep(self, like: Turn, answer: PartialAnswer) -> int:
        """Store an answer to the prompt of another turn as a turn of its own."""
        turn = Turn(
            session=f"web:{like.id}",
            messages=like.messages,
            response=answer.text,
            agent="clawback",
            version=answer.version,
            response_ids=tuple(answer.ids),
            response_logprobs=tuple(answer.logprobs),
            thinking=answer.thinking,
            ending=answer.ending,
        )
        return self.db.insert_turn(turn)


def keep_little() -> None:
    """Before the first large request: two pools of memory for all threads, where glibc makes one a thread and each keeps its own rest."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)


def keep_what_is_loaded() -> None:
    """Modules and the model stay as long as the server: a full collection of garbage need not look through them, during which nobody is answered
    (0.2 s with PyTorch and transformers). ``gc.unfreeze`` when it ends."""
    gc.freeze()


def _stamp(file: Path) -> tuple[int, int]:
    seen = file.stat()
    return seen.st_mtime_ns, seen.st_size
