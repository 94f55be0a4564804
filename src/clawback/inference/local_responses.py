"""Answers of the embedded engine as HTTP responses: whole, or streamed.

An answer is recorded before its end is sent. If the client disconnects, generation stops and the partial
answer is stored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback.dialects import Asked, Dialect
from clawback.errors import ClawbackError
from clawback.inference import wire
from clawback.inference.local import PartialAnswer

if TYPE_CHECKING:
    from starlette.types import Scope, Send


@dataclass(frozen=True, slots=True)
class Talk:
    scope: Scope
    send: Send
    dialect: Dialect
    request: Asked
    pieces: AsyncGenerator[tuple[PartialAnswer, str], None]
    answer: PartialAnswer
    record: Callable[[], Awaitable[None]]
    marks: list[tuple[bytes, bytes]]
    """Headers of ours."""
    gone: asyncio.Task[None]
    """Done when whoever asked has left."""

    async def respond(self) -> None:
        try:
            async for _ in self.pieces:
                if self.gone.done():
                    await self._leave()
                    return
        except ClawbackError as error:
            await wire.refuse(self.send, self.scope, 503, str(error))
            return
        await self.record()
        data = json.dumps(self.dialect.write(self.answer.reply()), ensure_ascii=False).encode()
        await wire.respond(self.send, 200, data, more=self.marks)

    async def stream(self, first: str) -> None:
        """``first``: the piece that was waited for before anything was promised."""
        label = self.dialect.stream_type.encode()
        kind = [(b"content-type", label), (b"cache-control", b"no-cache"), *self.marks]
        await self.send({"type": "http.response.start", "status": 200, "headers": kind})
        await self._say(b"".join(self.dialect.open(self.answer.reply())))
        if first:
            await self._say(self.dialect.delta(self.answer.reply(), first))
        async for _, piece in self.pieces:
            if self.gone.done():
                await self._leave()
                return
            if piece:
                await self._say(self.dialect.delta(self.answer.reply(), piece))
        await self.record()
        await self._say(b"".join(self.dialect.close(self.answer.reply(), self.request.usage)), more=False)

    async def _say(self, data: bytes, more: bool = True) -> None:
        await self.send({"type": "http.response.body", "body": data, "more_body": more})

    async def _leave(self) -> None:
        await self.pieces.aclose()
        self.answer.complete = False
        await self.record()
