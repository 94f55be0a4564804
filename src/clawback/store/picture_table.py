"""Pictures: stored once each, apart from the messages that show them.

An agent sends its whole conversation with each request, pictures and all. So a message in a row has a numbered part
in place of a picture, and tables say which picture that number is in this turn or episode: the number means nothing
elsewhere, so no request can name another conversation's picture.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from clawback.store.connection import sqlite3
from clawback.store.database import Base

if TYPE_CHECKING:
    from clawback.records import Message

Owner = Literal["turn", "episode"]


class PictureTable(Base):
    def _link_pictures(
        self, db: sqlite3.Connection, owner: Owner, number: int, pictures: Sequence[bytes]
    ) -> None:
        """Store the pictures of a turn or an episode, as ``taken_out`` numbers them."""
        from hashlib import sha256  # loads OpenSSL, and most turns that a hook stores have no picture

        for place, data in enumerate(pictures):
            digest = sha256(data).digest()
            db.execute(
                "INSERT INTO pictures (digest, data) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING",
                (digest, data),
            )
            db.execute(
                f"INSERT INTO {owner}_pictures SELECT ?, ?, id FROM pictures WHERE digest = ?",
                (number, place, digest),
            )

    def _pictures_of(self, owner: Owner, numbers: Collection[int]) -> dict[int, dict[int, Mapping[str, Any]]]:
        """Turn or episode → number → the part that brings the picture. A picture that several show is one object."""
        from hashlib import sha256

        from clawback.pictures import part_of

        listed = json.dumps(sorted(numbers))
        rows = self._read(
            f"SELECT {owner}_id, number, picture_id FROM {owner}_pictures WHERE {owner}_id IN (SELECT value FROM json_each(?))",
            listed,
        )
        wanted = json.dumps(sorted({row[2] for row in rows}))
        data = self._read(
            "SELECT id, digest, data FROM pictures WHERE id IN (SELECT value FROM json_each(?))", wanted
        )
        # One that is no longer what its hash says is as good as gone.
        parts = {
            row["id"]: part_of(row["data"]) for row in data if sha256(row["data"]).digest() == row["digest"]
        }
        pictures: dict[int, dict[int, Mapping[str, Any]]] = {}
        for of, place, picture in rows:
            if picture in parts:
                pictures.setdefault(of, {})[place] = parts[picture]
        return pictures


def taken_out(messages: Sequence[Message]) -> tuple[list[Message], list[bytes]]:
    """The messages as they are stored, with a number in place of each picture, and the pictures in the order of these numbers."""
    if not any(isinstance(m.get("content"), (list, tuple)) for m in messages):
        return list(messages), []
    from clawback import pictures

    numbers_of: dict[bytes, int] = {}

    def change(part: Mapping[str, object]) -> Mapping[str, Any]:
        if part.get("type") != "image_url":
            return part
        data = pictures.data_of(part)
        if data is None:  # somebody else's number is none of ours
            return {key: value for key, value in part.items() if key != "number"}
        return {"type": "image_url", "number": numbers_of.setdefault(data, len(numbers_of))}

    return pictures.changed(messages, change), list(numbers_of)


def put_back(messages: Sequence[Message], known: Mapping[int, Mapping[str, Any]] | None) -> list[Message]:
    """The messages with their pictures; with None, or where one is gone, a mark stands in its place."""
    from clawback import pictures

    def change(part: Mapping[str, object]) -> Mapping[str, Any]:
        number = part.get("number") if part.get("type") == "image_url" else None
        return ((known or {}).get(number) or pictures.mark()) if isinstance(number, int) else part

    return pictures.changed(messages, change)


def numbers(messages: Sequence[Message]) -> list[int]:
    """Of the pictures that stand in stored messages."""
    parts = (p for m in messages if isinstance(c := m.get("content"), list) for p in c if isinstance(p, dict))
    return [n for p in parts if p.get("type") == "image_url" and isinstance(n := p.get("number"), int)]


def shows_pictures(text: str) -> bool:
    """Whether messages, as JSON, may have numbers of pictures in them."""
    return '"number"' in text and '"image_url"' in text
