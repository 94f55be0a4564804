"""``/v1/…``: requests to a model, answered by the embedded engine where there is no upstream.

Requests are parsed on a thread of their own, one at a time: a conversation of ten thousand messages takes a
second to parse, and the event loop has others to serve meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from array import array
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from clawback.capture.served import placed
from clawback.dialects import BY_PATH, OLLAMA, Asked, Dialect, ollama, parsing, shapes
from clawback.errors import ClawbackError, NotFound, UsageError
from clawback.inference import ollama_api, tool_choice, wire
from clawback.inference.local import BASE, PartialAnswer, asks_about_a_picture
from clawback.inference.local_responses import Talk
from clawback.inference.prompting import PROMPT_HEADER
from clawback.inference.recorder import ProxyExchange
from clawback.inference.server import Server
from clawback.records import JsonObject, Version
from clawback.redact import redact
from clawback.release.best_of import BestOfTrial

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

log = logging.getLogger("clawback.serve")
MOST_TEXTS = 256
"""Texts of one request for embeddings."""


class AnswersAPI:
    """An ASGI app."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reader")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if path in OLLAMA and method != ollama_api.METHODS.get(path, "POST"):
            await wire.refuse(send, scope, 405, f"{method} is not answered here.")
        elif path in ollama_api.LOOKS:
            await self._tell(scope, receive, send, self._look)
        elif path in BY_PATH and path in OLLAMA:
            await self._answer_to_ollama(scope, receive, send, BY_PATH[path])
        elif path in BY_PATH and method == "POST":
            await self._answer(scope, receive, send, BY_PATH[path], await wire.body(receive))
        elif path == "/v1/messages/count_tokens" and method == "POST":
            await self._tell(scope, receive, send, self._count)
        elif path == "/v1/embeddings" and method == "POST":
            await self._tell(scope, receive, send, self._embed)
        elif path in ollama_api.EMBEDS:
            await self._tell(scope, receive, send, self._embed_for_ollama)
        elif (path == "/v1/models" or path.startswith("/v1/models/")) and method in ("GET", "HEAD"):
            await self._tell(scope, receive, send, self._models)
        elif path in BY_PATH or path in ("/v1/models", "/v1/embeddings"):
            await wire.refuse(send, scope, 405, f"{method} is not answered here.")
        else:
            await wire.refuse(send, scope, 404, f"There is nothing at {path}.")

    async def _tell(self, scope: Scope, receive: Receive, send: Send, what: Any) -> None:
        """The JSON that ``what`` makes of the request, or why not."""
        try:
            told = await what(scope, await wire.body(receive))
        except (ValueError, UsageError) as error:
            await wire.refuse(send, scope, 404 if isinstance(error, NotFound) else 400, str(error))
        except ClawbackError as error:
            await wire.refuse(send, scope, 503, str(error))
        else:
            await wire.respond(send, 200, json.dumps(told).encode())

    async def _models(self, scope: Scope, _: bytes) -> JsonObject:
        names = ollama_api.names(self.server)
        models = [{"id": n, "object": "model", "created": 0, "owned_by": "clawback"} for n in names]
        wanted = scope["path"].removeprefix("/v1/models").strip("/")
        if not wanted:
            return {"object": "list", "data": models}
        if wanted not in names:
            raise NotFound(f"There is no model {wanted[:100]!r}; GET /v1/models lists them.")
        return models[names.index(wanted)]

    async def _count(self, scope: Scope, raw: bytes) -> JsonObject:
        asked = BY_PATH["/v1/messages"].read(await self._parsed(scope, raw))
        return {"input_tokens": len((await self.server.local.look(asked, self.server.db.live().prompt))[0])}

    async def _look(self, scope: Scope, raw: bytes) -> JsonObject:
        body = await self._parsed(scope, raw) if raw else {}
        return ollama_api.look(self.server, scope["path"], body)

    async def _embed_for_ollama(self, scope: Scope, raw: bytes) -> JsonObject:
        body, path = await self._parsed(scope, raw), scope["path"]
        vectors, tokens = await self._vectors(body, "prompt" if path == "/api/embeddings" else "input")
        return ollama_api.vectors_of(path, parsing.text(body.get("model")), vectors, tokens)

    async def _vectors(self, body: Mapping[str, object], field: str) -> tuple[list[list[float]], int]:
        """Means of the base model's last hidden states, of length one; and how many tokens were read."""
        texts = [body.get(field)] if isinstance(body.get(field), str) else body.get(field)
        if not isinstance(texts, list) or not texts or not all(isinstance(t, str) and t for t in texts):
            raise ValueError(f"{field}: a text, or a list of texts, is needed")
        if len(texts) > MOST_TEXTS:
            raise ValueError(f"{field}: at most {MOST_TEXTS} texts at once")
        if body.get("dimensions"):
            raise ValueError("dimensions: vectors are as long as the base model is wide; leave it out.")
        return await self.server.local.embed(texts)

    async def _embed(self, scope: Scope, raw: bytes) -> JsonObject:
        body = await self._parsed(scope, raw)
        written = body.get("encoding_format")
        if written not in (None, "float", "base64"):
            raise ValueError("encoding_format: float or base64 is needed.")
        vectors, tokens = await self._vectors(body, "input")
        packed = written == "base64"
        data = [
            {
                "object": "embedding",
                "index": place,
                "embedding": base64.b64encode(array("f", v).tobytes()).decode() if packed else v,
            }
            for place, v in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": BASE, "usage": usage}

    async def _parsed(self, scope: Scope, raw: bytes) -> JsonObject:
        encoding = wire.headers(scope).get("content-encoding", "").strip().lower()
        return await asyncio.get_running_loop().run_in_executor(
            self.reader, parsing.request_body, raw, encoding
        )

    # --------------------------------------------------------------------------------------------- an answer

    def _read(
        self, dialect: Dialect, raw: bytes, headers: Mapping[str, str]
    ) -> tuple[JsonObject, Asked, str, Version, BestOfTrial | None]:
        """On the parsing thread: the body, what it asks, its session, the version that is to answer, and whether by the best of several draws."""
        body = parsing.request_body(raw, headers.get("content-encoding", "").strip().lower())
        asked = dialect.read(body)
        if no := shapes.odd(body) or dialect.refuses(body):
            raise ValueError(no)
        if not asked.messages:
            raise ValueError("messages: there is nothing in them that can be answered.")
        if asks_about_a_picture(asked.messages[-1]) and not self.server.local.sees:
            raise ValueError("This model reads text alone: send the message without its picture.")
        asked = tool_choice.applied(asked, tool_choice.parse(body))
        session, _ = placed(self.server.db, asked.messages, headers, body)
        version = self.server.version_for(asked.model, session)
        return body, asked, session, version, self.server.best_answers.trial(self.server.db, asked, version)

    async def _answer_to_ollama(self, scope: Scope, receive: Receive, send: Send, dialect: Dialect) -> None:
        """As ``_answer``; a request without a question only has the model loaded, which it is."""
        raw = await wire.body(receive)
        try:
            ready = ollama.loaded(await self._parsed(scope, raw))
        except ValueError as error:
            await wire.refuse(send, scope, 400, str(error))
            return
        if ready is None:
            await self._answer(scope, receive, send, dialect, raw)
        else:
            await wire.respond(send, 200, json.dumps(ready).encode())

    async def _answer(self, scope: Scope, receive: Receive, send: Send, dialect: Dialect, raw: bytes) -> None:
        headers = wire.headers(scope)
        try:
            reading = asyncio.get_running_loop().run_in_executor(
                self.reader, self._read, dialect, raw, headers
            )
            body, asked, session, version, trial = await reading
            local = self.server.local
            pieces = (
                local.answer(asked, version)
                if trial is None
                else self.server.best_answers.answer(local, asked, version, trial)
            )
            answer, first = await anext(pieces)
        except (ValueError, UsageError) as error:
            status = 404 if isinstance(error, NotFound) else 400
            await wire.refuse(send, scope, status, str(error))
            return
        except ClawbackError as error:
            log.error("an answer failed: %s", redact(str(error)))
            await wire.refuse(send, scope, 503, str(error))
            return
        chosen = answer.best_of > 1
        # What is held to a schema is not what the policy alone would have drawn.
        sampled = not (chosen or asked.must_call or asked.form is not None)
        if asked.raw is not None or (asked.form is not None and not asked.tools):
            # There is no conversation to train on: it saw no chat template, or a program asked for a document.
            headers = {**headers, "x-turn-type": "side"}

        async def record() -> None:
            number = await self.server.recorder.record(
                ProxyExchange(
                    dialect,
                    body,
                    headers,
                    session=session,
                    answer=answer.as_answer(),
                    # One that was chosen is no sample of the version (release.best_of).
                    version=None if chosen else version.number,
                    response_ids=tuple(answer.ids) if sampled else None,
                    response_logprobs=tuple(answer.logprobs) if sampled else None,
                    vouched=bool(scope.get("clawback.vouched")),
                )
            )
            log.debug("turn %s by version %s", number, version.number)

        gone = asyncio.create_task(wire.gone(receive))
        talk = Talk(scope, send, dialect, asked, pieces, answer, record, _marks(version, answer), gone)
        try:
            await (talk.stream(first) if asked.stream else talk.respond())
        finally:
            gone.cancel()
            self.server.spend(answer.drawn_tokens or len(answer.ids))


def _marks(version: Version, answer: PartialAnswer) -> list[tuple[bytes, bytes]]:
    """Headers that say who answered."""
    number = str(version.number).encode()
    marks = [(b"x-clawback-version", number)]
    if answer.best_of > 1:
        marks.append((b"x-clawback-best-of", str(answer.best_of).encode()))
    if version.prompt and answer.request.raw is None:
        marks.append((PROMPT_HEADER, number))
    return marks
