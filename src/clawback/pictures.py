"""Pictures in messages: ``image_url`` parts with ``data:`` addresses.

Whether something is a picture its first bytes say, never the media type that somebody wrote beside it. Nothing is
fetched for one, and nothing is decoded here.
"""

from __future__ import annotations

from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clawback.records import PICTURE, JsonObject, Message

MOST_BYTES = 20 << 20
"""Of a picture; a larger one counts as none."""
_BEGINNINGS = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF87a": "gif", b"GIF89a": "gif"}

Part = Mapping[str, Any]


def kind_of(data: bytes) -> str:
    """``png``, ``jpeg``, ``gif`` or ``webp``; "" for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return next((kind for start, kind in _BEGINNINGS.items() if data.startswith(start)), "")


def data_of(part: object) -> bytes | None:
    """The picture that a part of a message brings along; None where it brings none."""
    if not isinstance(part, Mapping) or part.get("type") != "image_url":
        return None
    given = part.get("image_url")
    address = given.get("url") if isinstance(given, Mapping) else given
    if not isinstance(address, str) or address[:5].lower() != "data:":
        return None
    head, _, body = address.partition(",")
    if not head.lower().endswith(";base64") or len(body) > MOST_BYTES * 4 // 3 + 4:
        return None
    try:
        data = a2b_base64(body, strict_mode=True)
    except (Error, ValueError):
        return None
    return data if kind_of(data) else None


def part_of(data: bytes) -> JsonObject:
    """The part that brings a picture along."""
    body = b2a_base64(data, newline=False).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind_of(data)};base64,{body}"}}


def pictures(content: object) -> list[bytes]:
    """Those among the parts of a message."""
    parts = content if isinstance(content, (list, tuple)) else ()
    return [data for part in parts if (data := data_of(part)) is not None]


def mark() -> JsonObject:
    """What stands where a picture was left out."""
    return {"type": "text", "text": PICTURE}


def changed(messages: Sequence[Message], change: Callable[[Part], Part]) -> list[Message]:
    """The messages with what ``change`` makes of each part; messages of plain text as they are."""
    return [
        {**m, "content": [change(p) if isinstance(p, Mapping) else p for p in content]}
        if isinstance(content := m.get("content"), (list, tuple))
        else m
        for m in messages
    ]


def marked(messages: Sequence[Message]) -> list[Message]:
    """Without pictures, and without addresses of any: a mark stands in place of each."""
    return changed(messages, lambda part: mark() if part.get("type") == "image_url" else part)


def limited(messages: Sequence[Message], each: int, together: int) -> list[Message]:
    """The newest pictures that came with the messages, each up to ``each`` bytes and ``together`` in all; a mark in place of any other."""
    left = together

    def limit(part: Part) -> Part:
        nonlocal left
        if part.get("type") != "image_url":
            return part
        data = data_of(part) if each else None
        if data is None or len(data) > min(each, left):
            return mark()
        left -= len(data)
        return part_of(data)

    # Newest first: the last part of the last message has the first claim.
    turned = changed([_turned(m) for m in reversed(messages)], limit)
    return [_turned(m) for m in reversed(turned)]


def _turned(message: Message) -> Message:
    content = message.get("content")
    return {**message, "content": list(reversed(content))} if isinstance(content, (list, tuple)) else message
