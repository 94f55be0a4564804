"""The server of one episode: what a program asks in any dialect waits here until the policy has answered.

Requests come in by HTTP and are put to the policy one at a time, in order; a program's parallel requests wait for each
other. The answer goes back in the dialect of the request, whole or as events.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from socket import socket
from typing import TYPE_CHECKING, Any

from clawback.dialects import BY_PATH, Asked, Dialect, parsing
from clawback.dialects.shapes import DialectReply
from clawback.environments.core import ConversationRequest
from clawback.inference import tools, wire
from clawback.inference.conversation_tokens import fitted_conversation

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from clawback.policy import Policy

MODEL = "clawback"
MOST_BYTES = 64 * 2**20
"""Of a request."""
COUNT_PATH = "/v1/messages/count_tokens"
CHARACTERS = 4
"""Of a token, where a program wants a count before it asks."""


@dataclass(eq=False)
class PendingRequest:
    """A request that waits for its answer."""

    conversation: Asked
    dialect: Dialect
    answer: asyncio.Future[DialectReply]
    prompt_tokens: int = 0

    def request(self) -> ConversationRequest:
        """As an episode takes it."""
        return ConversationRequest(self.conversation.messages, self.encode, self.conversation.max_tokens)

    def encode(self, policy: Policy) -> tuple[Sequence[int], int]:
        ids, length = fitted_conversation(policy, self.conversation, policy.chat.system)
        self.prompt_tokens = len(ids)
        return ids, length

    def reply(self, message: Mapping[str, object]) -> DialectReply:
        """The policy's message in the terms of the request: text, and the calls in it."""
        text, request = str(message.get("content") or ""), self.conversation
        stops = [(text.index(stop), stop) for stop in request.stop if stop in text]
        end, stopped = min(stops, default=(len(text), ""))
        text, calls = text[:end], ()
        if request.field is not None:
            text = request.field.around(text)
        elif request.form is None:
            text, calls = tools.find(text, request.tools)  # type: ignore[assignment]
        return DialectReply(
            id=secrets.token_hex(12),
            model=request.model or MODEL,
            created=int(time.time()),
            prompt_tokens=self.prompt_tokens,
            tokens=max(1, len(text) // CHARACTERS),
            text=text,
            calls=calls,
            finished=not message.get("cut"),
            stopped=stopped,
        )


class HarnessSession:
    """``start`` it on a socket; ``next`` gives the questions, each of which is to be answered before the next one comes."""

    def __init__(self) -> None:
        self.key = secrets.token_urlsafe(24)
        """What a program has to show."""
        self._questions: asyncio.Queue[PendingRequest] = asyncio.Queue()
        self._server: Any = None
        self._serving: asyncio.Task[None] | None = None

    def start(self, listener: socket) -> None:
        """Answer whoever connects, on the running event loop.

        On a descriptor of its own: a box that is judged closes its listener from another thread, the loop would keep the number of the
        closed one as watched, and whatever gets that number next (the listener of another episode) would never be looked at.
        """
        import uvicorn

        own = listener.dup()

        config = uvicorn.Config(
            self, lifespan="off", log_level="critical", access_log=False, timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[own]))

    async def close(self) -> None:
        """Refuse what still waits."""
        while not self._questions.empty():
            self._questions.get_nowait().answer.cancel()
        if self._serving is not None:
            self._server.should_exit = self._server.force_exit = True
            with suppress(Exception):
                await asyncio.wait_for(self._serving, 10)
            self._serving = None

    async def next(self) -> PendingRequest:
        """The next question that somebody still waits for."""
        while True:
            question = await self._questions.get()
            if not question.answer.done():
                return question

    # ------------------------------------------------------------------------------------------------- by HTTP

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        with suppress(wire.Gone):
            try:
                await self._respond(scope, receive, send)
            except wire.RequestRefused as error:
                await wire.refuse(send, scope, error.status, str(error))
            except ValueError as error:
                await wire.refuse(send, scope, 400, str(error))

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method, headers = scope["path"], scope["method"], wire.headers(scope)
        if method == "HEAD":
            await wire.respond(send, 200, b"")
            return
        token = headers.get("authorization", "").removeprefix("Bearer ").strip() or headers.get(
            "x-api-key", ""
        )
        if not secrets.compare_digest(token.encode(), self.key.encode()):
            raise wire.RequestRefused(
                401, "This server answers one episode: use the key that its program was given."
            )
        if path == "/v1/models" and method == "GET":
            models = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": MODEL}]}
            await wire.respond(send, 200, json.dumps(models).encode())
            return
        raw = await wire.body(receive, MOST_BYTES)
        if path == COUNT_PATH:
            await wire.respond(send, 200, json.dumps({"input_tokens": len(raw) // CHARACTERS}).encode())
            return
        dialect = BY_PATH.get(path)
        if dialect is None or method != "POST":
            raise wire.RequestRefused(404, f"An episode's server has {', '.join(BY_PATH)}, and no {path}.")
        body = parsing.request_body(raw, headers.get("content-encoding", ""))
        question = PendingRequest(dialect.read(body), dialect, asyncio.get_running_loop().create_future())
        await self._answer(question, receive, send)

    async def _answer(self, question: PendingRequest, receive: Receive, send: Send) -> None:
        """Wait for the answer, or for whoever asked to leave."""
        self._questions.put_nowait(question)
        gone = asyncio.create_task(wire.gone(receive))
        waiting: list[asyncio.Future[Any]] = [gone, question.answer]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not question.answer.done():
            question.answer.cancel()
            raise wire.Gone
        if question.answer.cancelled():
            raise wire.RequestRefused(503, "The episode is over.")
        reply = question.answer.result()
        if question.conversation.stream:
            await _stream(question, reply, send)
        else:
            data = json.dumps(question.dialect.write(reply), ensure_ascii=False).encode()
            await wire.respond(send, 200, data)


async def _stream(question: PendingRequest, reply: DialectReply, send: Send) -> None:
    dialect = question.dialect
    events = b"".join(dialect.open(replace(reply, text="", calls=(), tokens=0)))
    if reply.text:
        events += dialect.delta(reply, reply.text)
    events += b"".join(dialect.close(reply, question.conversation.usage))
    await wire.respond(send, 200, events, dialect.stream_type.encode())
