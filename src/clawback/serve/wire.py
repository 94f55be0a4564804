"""Small things about HTTP that the rooms of the server share."""

from __future__ import annotations

import json
from typing import Any


class Refused(Exception):
    """A request that goes no further: the status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Gone(Exception):
    """The client left before its request was whole."""


async def body(receive: Any, most: int | None = None) -> bytes:
    """The whole body. Raises ``Gone`` where the client leaves first, ``Refused`` beyond ``most`` bytes."""
    pieces: list[bytes] = []
    left = most
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        pieces.append(message.get("body", b""))
        if left is not None and (left := left - len(pieces[-1])) < 0:
            raise Refused(413, f"The request is larger than {most} bytes.")
        if not message.get("more_body"):
            return b"".join(pieces)


async def gone(receive: Any) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def headers(scope: Any) -> dict[str, str]:
    """Names in lower case."""
    return {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}


async def respond(
    send: Any,
    status: int,
    data: bytes,
    kind: bytes = b"application/json",
    more: list[tuple[bytes, bytes]] | None = None,
) -> None:
    length = (b"content-length", str(len(data)).encode())
    start = {"type": "http.response.start", "status": status}
    await send(start | {"headers": [(b"content-type", kind), length, *(more or [])]})
    await send({"type": "http.response.body", "body": data, "more_body": False})


async def refuse(send: Any, scope: Any, status: int, why: str) -> None:
    """An error as the dialect of the path writes it; elsewhere ``{"error": "…"}``."""
    from clawback.serve.dialects import BY_PATH

    dialect = BY_PATH.get(scope["path"])
    told = dialect.error(status, why) if dialect else {"error": why}
    await respond(send, status, json.dumps(told, ensure_ascii=False).encode())
