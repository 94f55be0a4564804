"""Small HTTP helpers that the server's modules share."""

from __future__ import annotations

import json
import re
from typing import Any


class RequestRefused(Exception):
    """A request that goes no further: the status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Gone(Exception):
    """The client left before its request was whole."""


async def body(receive: Any, most: int | None = None) -> bytes:
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


MOST_UNPACKED = 64 * 2**20


def unpacked(raw: bytes, encoding: str) -> bytes:
    """A body without its ``Content-Encoding``. Raises ``ValueError`` for one that cannot be read, or is larger than 64 MiB."""
    if encoding in ("", "identity"):
        return raw
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ValueError(f"The content-encoding {encoding!r} is not read here; gzip, deflate and none are.")
    import zlib

    reading = zlib.decompressobj(47 if "gzip" in encoding else 15)
    try:
        made = reading.decompress(raw, MOST_UNPACKED)
    except zlib.error:
        raise ValueError(f"The body is not {encoding}.") from None
    if reading.unconsumed_tail or not reading.eof:
        raise ValueError(f"The body is cut off, or larger than {MOST_UNPACKED} bytes when unpacked.")
    return made


def in_utf8(raw: bytes, charset: str) -> bytes:
    """A text in the character set that its label names, as UTF-8; unchanged where it names none that is known."""
    import codecs

    try:
        name = codecs.lookup(charset).name if charset else "utf-8"
    except LookupError:
        return raw
    if name in ("utf-8", "ascii", "utf-8-sig"):
        return raw
    return raw.decode(name, "replace").encode()


MOST_MESSAGES = 10_000
_HALVES = re.compile(rb"\\u[dD][89a-fA-F]")
"""An escape of half a character; of a whole one there are two in a row."""
_PAIRS = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE = re.compile("[\ud800-\udfff]")
MOST_PARTS = 100_000


def parsed(raw: bytes, encoding: str = "") -> dict[str, Any]:
    """The JSON object of a request. Raises ``ValueError`` for anything else, and for one in more pieces than any conversation has:
    reading a million of them holds everything else up, and nothing else can run meanwhile.
    """
    raw = unpacked(raw, encoding)
    if raw.count(b"{") + raw.count(b"[") > MOST_PARTS:
        raise ValueError(f"The body has more than {MOST_PARTS} parts.")
    try:
        body = json.loads(raw)
        if _HALVES.search(raw):
            body = mended(body)
    except (ValueError, RecursionError):
        raise ValueError("The body is not JSON.") from None
    if not isinstance(body, dict):
        raise ValueError("The body is not a JSON object.")
    for name in ("messages", "input", "contents"):
        if isinstance(body.get(name), list) and len(body[name]) > MOST_MESSAGES:
            raise ValueError(f"{name}: more than {MOST_MESSAGES} are not read.")
    return body


def mended(value: Any) -> Any:
    """The same with every text such as can be stored and read by a tokenizer: ``"\\ud83d"`` is valid JSON, and half a character.
    Two halves that belong together become one, any other a sign that says so.
    """
    if isinstance(
        value, str
    ):  # a decoder would ask about each half in turn, and nothing else could run meanwhile
        return _LONE.sub("\ufffd", _PAIRS.sub(_joined, value))
    if isinstance(value, dict):
        return {mended(key): mended(inner) for key, inner in value.items()}
    return [mended(inner) for inner in value] if isinstance(value, list) else value


def _joined(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


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
    """An error as the dialect of the path writes it, or of the paths beside it; elsewhere ``{"error": "…"}``."""
    from clawback.dialects import of

    path = scope["path"]
    dialect = of(path)
    if dialect is None and path.startswith("/v1/"):
        dialect = of("/v1/messages" if path.startswith("/v1/messages/") else "/v1/chat/completions")
    told = dialect.error(status, why) if dialect else {"error": why}
    await respond(send, status, json.dumps(told, ensure_ascii=False).encode())
