"""Small helpers for HTTP and ASGI that the server's modules share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from clawback.errors import ClawbackError

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from clawback.records import JsonObject


class RequestRefused(Exception):
    """A request that goes no further: the status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Gone(Exception):
    """The client left before its request was whole."""


async def body(receive: Receive, most: int | None = None) -> bytes:
    """The whole body. Raises ``Gone`` where the client leaves first, ``RequestRefused`` beyond ``most`` bytes."""
    pieces: list[bytes] = []
    left = most
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        pieces.append(message.get("body", b""))
        if left is not None and (left := left - len(pieces[-1])) < 0:
            raise RequestRefused(413, f"The request is larger than {most} bytes.")
        if not message.get("more_body"):
            return b"".join(pieces)


async def gone(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def headers(scope: Scope) -> dict[str, str]:
    """Names in lower case."""
    return {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}


def again(body: bytes, receive: Receive) -> Receive:
    """``receive`` as it would have been: the body in one piece, then whatever else comes."""
    is_read = False

    async def from_start() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return from_start


async def lifespan(app: Any, scope: Scope, receive: Receive, send: Send) -> None:
    """Starts and ends an app. Why it cannot start is one sentence: Starlette's own message is a traceback."""
    failures: list[JsonObject] = []

    async def hold_failure(message: JsonObject) -> None:
        if message["type"] == "lifespan.startup.failed":
            failures.append(message)
        else:
            await send(message)

    try:
        await app(scope, receive, hold_failure)
    except ClawbackError as error:
        if not failures:  # it had started
            raise
        await send({**failures[0], "message": str(error)})
    except BaseException:
        for message in failures:
            await send(message)
        raise


async def respond(
    send: Send,
    status: int,
    data: bytes,
    kind: bytes = b"application/json",
    more: list[tuple[bytes, bytes]] | None = None,
) -> None:
    length = (b"content-length", str(len(data)).encode())
    start = {"type": "http.response.start", "status": status}
    await send(start | {"headers": [(b"content-type", kind), length, *(more or [])]})
    await send({"type": "http.response.body", "body": data, "more_body": False})


async def refuse(send: Send, scope: Scope, status: int, why: str) -> None:
    """An error as the dialect of the path writes it, or of the paths beside it; elsewhere ``{"error": "…"}``."""
    from clawback.dialects import of

    path = scope["path"]
    dialect = of(path)
    if dialect is None and path.startswith("/v1/"):
        dialect = of("/v1/messages" if path.startswith("/v1/messages/") else "/v1/chat/completions")
    told = dialect.error(status, why) if dialect else {"error": why}
    await respond(send, status, json.dumps(told, ensure_ascii=False).encode())
