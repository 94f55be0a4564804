"""Writes turns on one thread: exchanges that end at the same time share one transaction and one disk sync.

``record`` returns when the turn is on the disk. The proxy awaits that before it passes on the *last* bytes of
a response, so whatever a client has seen the end of is kept, and no earlier byte ever waits. Parsing the
exchange, removing secrets and finding the session all happen here, off the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from clawback.capture import conversation_threads, ingest, spool
from clawback.capture.served import ServedTurn, served_turn, store_turn
from clawback.config import PrivacySection
from clawback.dialects import DialectReading, Said, parsing
from clawback.errors import StoreBusy
from clawback.paths import Home
from clawback.records import Turn
from clawback.redact import redact

log = logging.getLogger("clawback.serve")
MOST_TOGETHER = 256
"""Exchanges in one transaction."""
MOST_LOGGED = 100
"""Different sentences about answers that could not be read; each is logged once."""


@dataclass(frozen=True, slots=True)
class ProxyExchange:
    """A request with its response. ``said`` where it is known already, else ``raw`` bytes to read it from."""

    dialect: DialectReading
    body: Mapping[str, Any] | bytes
    """Read already, or as it came: then it is read by the recorder, for reading holds others up."""
    headers: Mapping[str, str]
    raw: bytes = b""
    encoding: str = ""
    """``Content-Encoding`` of ``raw``."""
    charset: str = ""
    """Of ``raw``, where its label names one."""
    left: bool = False
    """Whether the client left before the end."""
    answer: Said | None = None
    session: str = ""
    """Where it is known already."""
    vouched: bool = False
    """Whether it came with the token. Else anybody on this machine may have sent it."""
    version: int | None = None
    response_ids: tuple[int, ...] | None = None
    response_logprobs: tuple[float, ...] | None = None
    began: float = field(default_factory=time.time)


class Recorder:
    """Start it, hand exchanges in from any thread or task, close it: what was handed in before is written."""

    def __init__(self, home: Home, privacy: PrivacySection) -> None:
        self.home, self.privacy = home, privacy
        self.waiting: queue.SimpleQueue[tuple[ProxyExchange, asyncio.Future[int | None]] | None] = (
            queue.SimpleQueue()
        )
        self.recorded = 0
        self.failed = 0
        self._logged: set[str] = set()
        self.thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def close(self) -> None:
        self.waiting.put(None)
        self.thread.join(timeout=30)

    async def record(self, exchange: ProxyExchange) -> int | None:
        """The number of the turn, or None where there was nothing to keep, where it waits for a locked database, or where it could not be kept (which is
        logged)."""
        done: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self.waiting.put((exchange, done))
        return await done

    def _run(self) -> None:
        store: Any = None
        # Opened now, so that the first exchange does not wait; whatever is wrong with it, that exchange meets it and says so.
        with suppress(Exception):
            store = ingest.connect(self.home)
        try:
            while True:
                exchanges, last = self._next_exchanges()
                turns = [self._read(exchange) for exchange, _ in exchanges]
                try:
                    store = store or ingest.connect(self.home)
                    numbers = self._write(store, turns)
                except StoreBusy:
                    self._spool(turns)
                    numbers = [None] * len(turns)
                except Exception as error:
                    self._log_failure(error, len(turns))
                    numbers = [None] * len(turns)
                for (_, done), number in zip(exchanges, numbers, strict=True):
                    done.get_loop().call_soon_threadsafe(_settle, done, number)
                if last:
                    spool.drain_if_waiting(self.home)
                    return
        finally:
            if store is not None:
                store.close()

    def _next_exchanges(self) -> tuple[list[tuple[ProxyExchange, asyncio.Future[int | None]]], bool]:
        """Waits for an exchange and takes those behind it; and whether the recorder is to end after them."""
        exchanges: list[tuple[ProxyExchange, asyncio.Future[int | None]]] = []
        while not exchanges or (len(exchanges) < MOST_TOGETHER and not self.waiting.empty()):
            exchange = self.waiting.get()
            if exchange is None:
                return exchanges, True
            exchanges.append(exchange)
        return exchanges, False

    def _write(self, store: Any, turns: list[ServedTurn | None]) -> list[int | None]:
        """All in one transaction, after those that wait already; where that fails, each on its own, so that one bad
        exchange costs only itself. Where the database is locked they wait in files."""
        if not any(turns):
            return [None] * len(turns)
        try:
            if spool.waiting(self.home):
                with suppress(OSError):  # a file that cannot be read holds nobody up
                    spool.drain(self.home)
            with store.together():
                numbers = [store_turn(store, turn, self.privacy) if turn else None for turn in turns]
        except StoreBusy:
            self._spool(turns)
            return [None] * len(turns)
        except Exception as error:
            if len(turns) == 1:
                self._log_failure(error)
                return [None]
            return [number for turn in turns for number in self._write(store, [turn])]
        self.recorded += sum(number is not None for number in numbers)
        return numbers

    def _spool(self, turns: list[ServedTurn | None]) -> None:
        """Another process holds the database: the turns wait in files, and are stored by whoever can write next."""
        for turn in filter(None, turns):
            try:
                spool.keep_served(self.home, turn, self.privacy)
                self.recorded += 1
            except Exception as error:
                self._log_failure(error)

    def _log_failure(self, error: Exception, turns: int = 1) -> None:
        self.failed += turns
        log.error("a turn could not be recorded: %s", redact(f"{type(error).__name__}: {error}"))

    def _read(self, exchange: ProxyExchange) -> ServedTurn | None:
        """What the exchange says; None where there is nothing to keep, or it cannot be read (which is logged)."""
        try:
            return self._turn(exchange)
        except Exception as error:
            self._log_failure(error)
            return None

    def _turn(self, exchange: ProxyExchange) -> ServedTurn | None:
        given, encoding = exchange.body, exchange.headers.get("content-encoding", "").strip().lower()
        try:
            body = parsing.request_body(given, encoding) if isinstance(given, bytes) else given
        except ValueError as error:
            log.warning("a request passed, and was not recorded: %s", redact(str(error)))
            return None
        try:
            asked = exchange.dialect.read(body)
        except ValueError:  # nothing was asked
            return None
        said = exchange.answer or self._read_answer(exchange)
        if said is None or not said.says_something:
            return None
        turn = Turn(
            session=exchange.session,
            messages=tuple(asked.messages),
            response=said.text,
            thinking=said.thinking,
            agent=conversation_threads.agent_of(exchange.headers),
            kind=conversation_threads.kind_of(asked, exchange.headers),
            model=(said.model or asked.model)[:200],
            version=exchange.version,
            created_at=exchange.began,
            calls=tuple(said.calls),
            response_ids=exchange.response_ids,
            response_logprobs=exchange.response_logprobs,
            vouched=exchange.vouched,
            cwd=conversation_threads.folder_of(exchange.headers) if exchange.vouched else "",
            ending=said.ending,
        )
        return served_turn(turn, exchange.headers, body)

    def _read_answer(self, exchange: ProxyExchange) -> Said | None:
        """What was answered; None where that cannot be read, which is logged once for each kind of answer."""
        name = exchange.dialect.name
        try:
            raw = parsing.to_utf8(parsing.decompress(exchange.raw, exchange.encoding), exchange.charset)
        except ValueError as error:
            self._log_once(f"an answer ({name}) passed, and was not recorded: {error}")
            return None
        said = exchange.dialect.hear(raw)
        if said.unknown:
            self._log_once(
                f"an answer ({name}) ended for a reason that is not known here ({said.unknown!r}): it counts as complete"
            )
        if exchange.left and said.ending == "incomplete":
            said = replace(said, ending="interrupted")
        if not said.says_something and said.ending in ("incomplete", "interrupted"):
            return None  # nothing of it came, and who broke off is logged where that was noticed
        if not said.says_something:
            what = "only thoughts" if said.thinking else "nothing that can be recorded"
            self._log_once(f"an answer ({name}, {said.ending or 'complete'}) passed with {what} in it")
            return None
        return said

    def _log_once(self, sentence: str) -> None:
        if sentence not in self._logged and len(self._logged) < MOST_LOGGED:
            self._logged.add(sentence)
            log.warning("%s", redact(sentence))


def _settle(done: asyncio.Future[int | None], number: int | None) -> None:
    if not done.done():  # the client may have gone, and its task with it
        done.set_result(number)
