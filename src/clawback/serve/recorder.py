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
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clawback import feedback, pictures
from clawback.capture import conversations
from clawback.config import Privacy
from clawback.paths import Home
from clawback.records import Message, Turn
from clawback.redact import redact
from clawback.serve import wire
from clawback.serve.dialects import Asked, Reading, Said
from clawback.thinking import split_thinking

log = logging.getLogger("clawback.serve")
MOST_TOGETHER = 256
"""Exchanges in one transaction."""
MOST_LOGGED = 100
"""Different sentences about answers that could not be read; each is logged once."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request with its response. ``said`` where it is known already, else ``raw`` bytes to read it from."""

    dialect: Reading
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
    said: Said | None = None
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

    def __init__(self, home: Home, privacy: Privacy) -> None:
        self.home, self.privacy = home, privacy
        self.waiting: queue.SimpleQueue[tuple[Exchange, asyncio.Future[int | None]] | None] = (
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

    async def record(self, exchange: Exchange) -> int | None:
        """The number of the turn, or None where there was nothing to keep or it could not be kept (which is logged)."""
        done: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self.waiting.put((exchange, done))
        return await done

    def _run(self) -> None:
        from clawback.store import connect

        with connect(self.home.database) as store:
            while True:
                first = self.waiting.get()
                if first is None:
                    return
                batch = [first]
                stop = False
                while len(batch) < MOST_TOGETHER and not self.waiting.empty():
                    if (more := self.waiting.get()) is None:
                        stop = True
                        break
                    batch.append(more)
                numbers = self._write(store, [exchange for exchange, _ in batch])
                for (_, done), number in zip(batch, numbers, strict=True):
                    done.get_loop().call_soon_threadsafe(_settle, done, number)
                if stop:
                    return

    def _write(self, store: Any, batch: list[Exchange]) -> list[int | None]:
        """All in one transaction; where that fails, each on its own, so that one bad exchange costs only itself."""
        try:
            with store.together():
                numbers = [self._one(store, exchange) for exchange in batch]
        except Exception as error:
            if len(batch) == 1:
                self.failed += 1
                log.error("a turn could not be recorded: %s", redact(f"{type(error).__name__}: {error}"))
                return [None]
            return [number for exchange in batch for number in self._write(store, [exchange])]
        self.recorded += sum(number is not None for number in numbers)
        return numbers

    def _one(self, store: Any, exchange: Exchange) -> int | None:
        given, encoding = exchange.body, exchange.headers.get("content-encoding", "").strip().lower()
        try:
            body = wire.parsed(given, encoding) if isinstance(given, bytes) else given
        except ValueError as error:
            log.warning("a request passed, and was not recorded: %s", redact(str(error)))
            return None
        try:
            asked = exchange.dialect.read(body)
        except ValueError:  # nothing was asked
            return None
        said = exchange.said or self._heard(exchange)
        if said is None or not said.says_something:
            return None
        messages, headers = asked.messages, exchange.headers
        session, before = placed(store, messages, headers, body)
        session = exchange.session or session
        turn = Turn(
            session=session,
            messages=self._kept(messages),
            response=said.text,
            thinking=said.thinking,
            agent=conversations.agent_of(headers),
            kind=self._kind(asked, headers),
            model=(said.model or asked.model)[:200],
            version=exchange.version,
            created_at=exchange.began,
            calls=tuple(said.calls),
            response_ids=exchange.response_ids,
            response_logprobs=exchange.response_logprobs,
            vouched=exchange.vouched,
            ending=said.ending,
        )
        number: int = store.add_turn(turn).id
        # A client sends an answer back with the thoughts in it, or without.
        for text in dict.fromkeys((split_thinking(said.text)[1], said.text)):
            store.put_place(conversations.place_after(messages, text, said.calls), number)
        if before and turn.kind == "main":
            store.put_next_state(before[0], self._kept(before[1]))
            if store.turn(before[0]).vouched:  # else anybody could make guesses by asking twice
                feedback.notice(store, before[0], conversations.human(before[1]))
        if headers.get("x-session-done", "").strip().lower() in ("1", "true", "yes"):
            store.finish_session(session)
        return number

    def _heard(self, exchange: Exchange) -> Said | None:
        """What was answered; None where that cannot be read, which is logged once for each kind of answer."""
        name = exchange.dialect.name
        try:
            raw = wire.in_utf8(wire.unpacked(exchange.raw, exchange.encoding), exchange.charset)
        except ValueError as error:
            self._log_once(f"an answer ({name}) passed, and was not recorded: {error}")
            return None
        said = exchange.dialect.hear(raw)
        calls = tuple(wire.mended(dict(call)) for call in said.calls)
        said = replace(said, text=wire.mended(said.text), thinking=wire.mended(said.thinking), calls=calls)
        if said.unknown:
            self._log_once(
                f"an answer ({name}) ended for a reason that is not known here ({said.unknown!r}): it counts as complete"
            )
        if exchange.left and said.ending == "incomplete":
            said = replace(said, ending="interrupted")
        if not said.says_something:
            what = "only thoughts" if said.thinking else "nothing that can be recorded"
            self._log_once(f"an answer ({name}, {said.ending or 'complete'}) passed with {what} in it")
            return None
        return said

    def _log_once(self, sentence: str) -> None:
        if sentence not in self._logged and len(self._logged) < MOST_LOGGED:
            self._logged.add(sentence)
            log.warning("%s", redact(sentence))

    def _kind(self, asked: Asked, headers: Mapping[str, str]) -> Any:
        return conversations.kind_of(
            asked.messages,
            tools=bool(asked.tools),
            schema=asked.schema,
            max_tokens=asked.max_tokens,
            headers=headers,
        )

    def _kept(self, messages: Any) -> tuple[Message, ...]:
        """As they are stored: without sounds and what OpenClaw added, with the newest pictures, and no larger than is asked for (the newest are kept)."""
        spoken = [{**m, "content": _without_media(m.get("content"))} for m in conversations.spoken(messages)]
        limits = self.privacy.max_picture_bytes, self.privacy.max_turn_picture_bytes
        seen = pictures.limited(spoken, *limits)
        room = self.privacy.max_turn_bytes
        kept: list[Message] = []
        for message in reversed(seen):
            room -= len(str(pictures.marked([message])[0]))
            if room < 0 and kept:
                break
            kept.append(message)
        return tuple(reversed(kept))


def placed(
    store: Any, messages: Sequence[Message], headers: Mapping[str, str], body: Mapping[str, Any]
) -> tuple[str, tuple[int, list[Message]] | None]:
    """The session that is named or continued (a new one otherwise), and the previous turn with what came back to it."""
    known = conversations.places(messages)
    found = store.at_place([place for _, place in known])
    named = conversations.session_of(headers, body)
    if found is None:
        return named or uuid.uuid4().hex, None
    index, turn, session = found
    return named or session, (turn, conversations.came_back(messages, known[index][0]))


_MEDIA = {"input_audio": "[audio]", "file": "[file]", "video_url": "[video]"}


def _without_media(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [
        {"type": "text", "text": _MEDIA[str(b["type"])]}
        if isinstance(b, dict) and str(b.get("type")) in _MEDIA
        else b
        for b in content
    ]


def _settle(done: asyncio.Future[int | None], number: int | None) -> None:
    if not done.done():  # the client may have gone, and its task with it
        done.set_result(number)
