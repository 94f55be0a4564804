"""Answers as they come, for a terminal on this machine: from the running server of this home, else from the model loaded into this process.

Both store the answer with its tokens, and both store what there is of an answer that the person stops.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from clawback import config
from clawback.errors import ClawbackError, NotFound, UsageError
from clawback.paths import Home, secret
from clawback.records import Message, Turn, Version

if TYPE_CHECKING:
    from clawback.inference.local import LocalEngine, PartialAnswer
    from clawback.store import Store

LONGEST = 2048
"""Tokens of an answer where the settings name no limit: a base model need not end by itself."""
ANSWER_SECONDS = 600.0
"""How long the server may say nothing before it is given up."""
STORED_SECONDS = 5.0
"""How long a server may take to store an answer whose client has left."""
POLL_SECONDS = 0.02
CLIENT = "clawback-cli"
"""The user agent of the terminal."""


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """What is asked. ``version``: None for whichever is live."""

    messages: tuple[Message, ...]
    session: str
    seed: int
    version: Version | None = None
    max_tokens: int = LONGEST


class AnswerSource(Protocol):
    """Where answers come from. One answer at a time."""

    draws: int
    """How many draws the newest answer is the best of (``release.best_of``); 1 for a single draw."""
    notice: str
    """What the person should know about that; "" for nothing."""

    @property
    def activity(self) -> str:
        """What the next answer waits for first."""

    def answer(self, question: AnswerRequest) -> Iterator[str]:
        """The answer's text, piece by piece. Raises ``UsageError`` for a question that cannot be put, ``ClawbackError`` where answering fails."""

    def finish(self, cut: bool) -> Turn | None:
        """The stored turn of the newest answer; None where nothing came. ``cut``: the person stopped it."""

    def close(self) -> None: ...


def limit_of(settings: config.Config) -> int:
    """Tokens of the longest answer in the terminal."""
    return settings.generation.max_tokens or LONGEST


class ServerAnswers:
    """Answers of a server that runs already, asked over loopback with the token of its home."""

    activity = "answering"

    def __init__(self, home: Home, store: Store, port: int) -> None:
        self.home, self.store, self.port = home, store, port
        self.connection: Any = None
        self.session, self.newest = "", 0
        self.draws, self.notice = 1, ""

    def answer(self, question: AnswerRequest) -> Iterator[str]:
        """See ``AnswerSource``."""
        import http.client

        from clawback.capture.conversation_threads import FOLDER_HEADER

        self.session, self.newest = question.session, self._newest(question.session)
        body = {
            "model": "clawback" if question.version is None else f"clawback-v{question.version.number}",
            "messages": list(question.messages),
            "stream": True,
            "seed": question.seed,
            "max_tokens": question.max_tokens,
        }
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {secret(self.home.root / 'token')}",
            "User-Agent": CLIENT,
            "X-Session-Id": question.session,
            "X-Turn-Type": "main",
            FOLDER_HEADER: quote(str(Path.cwd())),
        }
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        try:
            self.connection.request("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)
            response = self.connection.getresponse()
            if response.status != 200:
                raise _refusal(response.status, response.read(100_000))
            self.draws = int(response.headers.get("x-clawback-best-of") or 1)
            yield from _pieces(response)
        except (OSError, http.client.HTTPException) as error:
            raise ClawbackError(f"The server on port {self.port} broke off the answer: {error}.") from error

    def finish(self, cut: bool) -> Turn | None:
        """See ``AnswerSource``. The server stores an answer before it sends its end, and one that was stopped once it notices that."""
        self.close()
        deadline = time.monotonic() + (STORED_SECONDS if cut else 0.0)
        while True:
            if self._newest(self.session) > self.newest:
                return self.store.turns(limit=1, session=self.session)[0]
            if time.monotonic() >= deadline:
                return None
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """End the connection: an answer under way stops."""
        if self.connection is not None:
            self.connection.close()

    def _newest(self, session: str) -> int:
        return max((turn.id for turn in self.store.turns(limit=1, session=session)), default=0)


class EngineAnswers:
    """Answers of the model in this process, by the engine that the server uses."""

    def __init__(self, home: Home, store: Store) -> None:
        import asyncio

        from clawback.inference.best_answer import BestAnswers

        self.home, self.store = home, store
        self.runner = asyncio.Runner()
        self.local: LocalEngine | None = None
        self.base = ""
        self.question: AnswerRequest | None = None
        self.latest: PartialAnswer | None = None
        self.best = BestAnswers(config.load(home.config))
        self.draws, self.notice = 1, ""

    @property
    def activity(self) -> str:
        """See ``AnswerSource``."""
        return "answering" if self.local else f"loading {Path(config.load(self.home.config).model.base).name}"

    def load(self, version: Version) -> None:
        """Load the version's base model, unless it is loaded. Raises ``ModelError``, ``MissingExtra``."""
        import msgspec

        from clawback.inference.local import LocalEngine
        from clawback.release.version_registry import check, revision_of

        check(version)
        settings = config.load(self.home.config)
        base = version.base or settings.model.base
        if self.local is not None and self.base == base:
            return
        if self.local is not None:
            self.local.close()
        local = LocalEngine(self.home)
        revision = revision_of(settings, base, version.base_revision)
        model = msgspec.structs.replace(settings.model, base=base, revision=revision)
        local.settings = msgspec.structs.replace(settings, model=model)
        local.start()
        self.local, self.base = local, base

    def answer(self, question: AnswerRequest) -> Iterator[str]:
        """See ``AnswerSource``."""
        from clawback.dialects import Asked
        from clawback.inference.local import asks_about_a_picture

        version = question.version or self.store.live()
        self.load(version)
        assert self.local
        if asks_about_a_picture(question.messages[-1]) and not self.local.sees:
            raise UsageError(f"{self.base} reads text alone: ask without --picture.")
        self.question, self.latest = question, None
        asked = Asked(question.messages, seed=question.seed, max_tokens=question.max_tokens)
        current = None if question.version else self.best.trial(self.store, asked, version)
        self.notice = "" if current or question.version else self.best.reading.notice(self.store)
        self.draws = current.count if current else 1
        if current:
            answers = self.best.answer(self.local, asked, version, current)
        else:
            answers = self.local.answer(asked, version)
        try:
            while (step := self.runner.run(_next(answers))) is not None:
                self.latest, piece = step
                if piece:
                    yield piece
        finally:
            self.runner.run(answers.aclose())

    def finish(self, cut: bool) -> Turn | None:
        """See ``AnswerSource``."""
        answer, question = self.latest, self.question
        if answer is None or question is None or not answer.ids:
            return None
        answer.complete = not cut
        chosen = answer.best_of > 1  # no sample of the version (release.best_of)
        turn = Turn(
            session=question.session,
            messages=question.messages,
            response=answer.text,
            agent="clawback",
            model=answer.as_answer().model if chosen else "",
            version=None if chosen else answer.version,
            cwd=str(Path.cwd()),
            response_ids=None if chosen else tuple(answer.ids),
            response_logprobs=None if chosen else tuple(answer.logprobs),
            thinking=answer.thinking,
            ending=answer.ending,
        )
        return self.store.add_turn(turn)

    def close(self) -> None:
        """End the engine's thread."""
        if self.local is not None:
            self.local.close()
            self.local = None
        self.runner.close()


class CompleteAnswers:
    """Answers of an engine that does not stream (MLX): each comes in one piece."""

    activity = "answering"

    def __init__(self, home: Home, store: Store) -> None:
        self.home, self.store = home, store
        from clawback.jobs.answering import Answering

        self.policy: Any = None
        self.number = -1
        self.turn: Turn | None = None
        self.answering = Answering(home, store)
        self.draws, self.notice = 1, ""

    def answer(self, question: AnswerRequest) -> Iterator[str]:
        """See ``AnswerSource``."""
        from clawback import release

        version, self.turn = question.version or self.store.live(), None
        if self.number != version.number:
            self.policy, self.number = release.load(self.home, version), version.number
        draw = self.answering.draw(
            self.policy, version, question.messages, question.seed, question.max_tokens
        )
        self.draws, self.notice = draw.count, draw.notice
        self.turn = draw.turn(question.session, question.messages, version.number, str(Path.cwd()))
        yield draw.completion.text

    def finish(self, cut: bool) -> Turn | None:  # noqa: ARG002 — it is complete, or there is none
        """See ``AnswerSource``."""
        return self.store.add_turn(self.turn) if self.turn else None

    def close(self) -> None:
        """Nothing runs between answers."""


def running_server(home: Home, settings: config.Config) -> int | None:
    """The port of a server of this home whose own model answers, and which has the model of the settings; None where there is none."""
    from clawback.capture import script, server_proof

    announced = script.announced(home)
    if announced is None or not server_proof.proven(home, announced[0]):
        return None
    state = _status(home, announced[0])
    usable = state.get("upstream") is False and state.get("model") == settings.model.base
    return announced[0] if usable else None


def source_of(home: Home, store: Store) -> AnswerSource:
    """The running server where there is one, else an engine in this process, which loads its model with the first question."""
    settings = config.load(home.config)
    if port := running_server(home, settings):
        return ServerAnswers(home, store, port)
    return CompleteAnswers(home, store) if settings.model.engine == "mlx" else EngineAnswers(home, store)


def _status(home: Home, port: int) -> Mapping[str, object]:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10.0)
    with suppress(OSError, http.client.HTTPException, ValueError):
        token = secret(home.root / "token")
        connection.request("GET", "/api/status", headers={"Authorization": f"Bearer {token}"})
        state = json.loads(connection.getresponse().read(1_000_000))
        return state if isinstance(state, dict) else {}
    return {}


def _refusal(status: int, raw: bytes) -> ClawbackError:
    """The server's sentence."""
    sentence = f"The server refused the question (status {status})."
    with suppress(ValueError, LookupError, TypeError):
        error = json.loads(raw)["error"]
        sentence = error if isinstance(error, str) else error["message"]
    kinds = {400: UsageError, 404: NotFound}
    return kinds.get(status, ClawbackError)(sentence)


def _pieces(lines: Iterator[bytes]) -> Iterator[str]:
    """The text in a stream of server-sent events. Raises ``ClawbackError`` where it ends too early."""
    for line in lines:
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return
        if not line.startswith(b"data:"):
            continue
        with suppress(ValueError, LookupError, TypeError):
            if text := json.loads(data)["choices"][0]["delta"].get("content"):
                yield text
    raise ClawbackError("The server broke off the answer; `clawback doctor` may say why.")


async def _next(answers: AsyncGenerator[tuple[PartialAnswer, str], None]) -> tuple[PartialAnswer, str] | None:
    return await anext(answers, None)
