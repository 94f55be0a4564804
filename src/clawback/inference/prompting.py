"""Adds the learned prompt to requests on their way to an upstream, and chooses the version that answers a session.

While no version with a prompt is live or on trial, nothing is parsed and nothing changes: requests pass byte
for byte. Otherwise a request of the person's own conversation is parsed once, off the event loop; an agent's
background requests (titles, summaries, sub-agents) pass unchanged, as does whatever cannot be parsed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from clawback.capture import conversation_threads
from clawback.capture.served import placed
from clawback.dialects import Asked, DialectReading, parsing
from clawback.dialects.system import put
from clawback.errors import ClawbackError
from clawback.paths import Home
from clawback.records import Version
from clawback.redact import redact
from clawback.release import trial
from clawback.store import Store, connect

log = logging.getLogger("clawback.serve")
PROMPT_HEADER = b"x-clawback-prompt"
"""Of an answer: the version whose prompt it was given under; 0 for none, in a trial of one."""


@dataclass(frozen=True, slots=True)
class Prompted:
    """What goes to the upstream. ``version``: who answers, None where no prompt is live or on trial; ``session``: known where that was asked for."""

    body: bytes
    version: int | None = None
    session: str = ""
    changed: bool = False

    @property
    def marks(self) -> list[tuple[bytes, bytes]]:
        """Headers of the answer."""
        return [] if self.version is None else [(PROMPT_HEADER, str(self.version).encode())]


def wanted(store: Store) -> bool:
    """Whether requests must be parsed: a version with a prompt is live, or is on trial, or is compared with one."""
    if not store.has_prompts():
        return False
    if store.live().prompt:
        return True
    running = trial.running(store)
    return running is not None and bool(store.version(running.candidate).prompt)


def prepare(
    store: Store,
    dialect: DialectReading,
    raw: bytes,
    headers: Mapping[str, str],
    choose: Callable[[str], Version],
) -> Prompted:
    """The request as it is forwarded. ``choose``: session → the version that answers it. On any error the agent's request passes unchanged."""
    try:
        return _prepared(store, dialect, raw, headers, choose)
    except Exception as error:  # a prompt must never cost an answer
        log.warning(
            "a request passed without the learned prompt: %s", redact(f"{type(error).__name__}: {error}")
        )
        return Prompted(raw)


def _prepared(
    store: Store,
    dialect: DialectReading,
    raw: bytes,
    headers: Mapping[str, str],
    choose: Callable[[str], Version],
) -> Prompted:
    encoding = headers.get("content-encoding", "").strip().lower()
    body = parsing.request_body(raw, encoding)
    asked = dialect.read(body)
    if conversation_threads.kind_of(asked, headers) == "side":
        return Prompted(raw)
    session, _ = placed(store, asked.messages, headers, body)
    session = session or uuid.uuid4().hex
    version = choose(session)
    made = put(dialect.name, body, version.prompt)
    if made is None:
        # It stands there already (an agent that was given it by other means), or has no place: it is not this version's doing.
        return Prompted(
            raw, version.number if not version.prompt or _there(asked, version.prompt) else None, session
        )
    # ASCII: half a surrogate pair in a conversation can be written so, and in no other way.
    return Prompted(json.dumps(made, separators=(",", ":")).encode("ascii"), version.number, session, True)


def _there(request: Asked, prompt: str) -> bool:
    return any(prompt in str(m.get("content")) for m in request.messages if m.get("role") == "system")


class PromptChooser:
    """Chooses versions and prompts for requests, on one thread with a connection of its own, because a long conversation takes a while to parse."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prompts")
        self.db: Store | None = None

    def start(self) -> None:
        """Opens the database, so that the first request does not wait for it."""
        self.thread.submit(self._store)

    async def __call__(self, dialect: DialectReading, raw: bytes, headers: Mapping[str, str]) -> Prompted:
        return await asyncio.get_running_loop().run_in_executor(
            self.thread, self._prepare, dialect, raw, headers
        )

    def close(self) -> None:
        self.thread.submit(self._close)
        self.thread.shutdown(wait=True)

    def _prepare(self, dialect: DialectReading, raw: bytes, headers: Mapping[str, str]) -> Prompted:
        try:
            db = self.db or self._store()
            if not wanted(db):
                return Prompted(raw)
            return prepare(db, dialect, raw, headers, lambda session: trial.version_for(db, session))
        except ClawbackError as error:  # a damaged database: the agent goes on
            log.warning("a request passed without the learned prompt: %s", redact(str(error)))
            return Prompted(raw)

    def _store(self) -> Store:
        self.db = connect(self.home.database)
        return self.db

    def _close(self) -> None:
        if self.db is not None:
            self.db.close()
