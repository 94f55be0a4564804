"""SQLite databases of other programs, read without a write: tables of conversations, of messages, of prompts with answers.

A table is known by its columns. Columns may be programs (views, virtual tables, generated columns), so that only plain tables are read, and a
row has a limit in time and in length.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from clawback.capture.text_rows import Row
from clawback.errors import UsageError

if TYPE_CHECKING:
    from clawback.records import JsonObject

MAGIC = b"SQLite format 3\0"
ROW_SECONDS, MOST_BYTES = 30.0, 64 << 20
"""What a row of somebody's database may take, and the length of a value in it."""
_GROUPS = ("session_id", "chat_id", "conversation_id", "thread_id")
_PARENTS = ("session", "sessions", "chat", "chats", "conversation", "conversations", "thread", "threads")
_PROMPTS, _ANSWERS = ("prompt", "question", "instruction"), ("response", "answer", "completion", "output")


@contextmanager
def opened(path: Path) -> Iterator[tuple[sqlite3.Connection, Callable[[], None]]]:
    """The database, and the function that starts the time for a row again. Raises ``UsageError`` for one that cannot be read."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            until = [time.monotonic() + ROW_SECONDS]

            def restart() -> None:
                until[0] = time.monotonic() + ROW_SECONDS

            db.set_progress_handler(lambda: int(time.monotonic() > until[0]), 10_000)
            db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
            db.execute("PRAGMA trusted_schema = OFF")
            yield db, restart
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no database that can be read: {error}.") from error


def tables(db: sqlite3.Connection) -> dict[str, list[str]]:
    """Plain tables → their columns."""
    columns = {}
    for name, sql in db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name"):
        if "virtual" in str(sql).lower().split()[:3] or str(name).startswith("sqlite_"):
            continue
        columns[str(name)] = [str(row[1]) for row in db.execute(f"PRAGMA table_info({_quoted(name)})")]
    return columns


def sources(path: Path) -> list[tuple[str, Callable[[], Iterator[Row]]]]:
    """(name of a table, its records) of all tables that hold conversations or answers."""
    with opened(path) as (db, _):
        known = tables(db)
    readers: list[tuple[str, Callable[[], Iterator[Row]]]] = []
    parts = {"message", "part"} <= known.keys() and "data" in known["message"] and "data" in known["part"]
    for name, columns in known.items():
        has = set(columns)
        if parts and name in ("message", "part"):
            if name == "message":
                readers.append((name, partial(_opencode, path)))
        elif {"id", "chat"} <= has or {"data", "meta", "snapshot"} <= has:  # Open WebUI
            readers.append((name, partial(_rows, path, name)))
        elif {"role", "content"} <= has and (group := next((g for g in _GROUPS if g in has), "")):
            parent = next((p for p in _PARENTS if "id" in known.get(p, ())), "")
            readers.append((name, partial(_grouped, path, name, group, parent)))
        elif {"prompt", "response", "conversation_id"} <= has and not {"rating", "score", "label"} & has:
            readers.append((name, partial(_grouped, path, name, "conversation_id", "")))
        elif any(p in has for p in _PROMPTS) and any(a in has for a in _ANSWERS):
            readers.append((name, partial(_rows, path, name)))
    return readers


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _value(value: object) -> object:
    """A value of a column; JSON is read, bytes are left out."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return None if isinstance(value, bytes) else value


def _record(row: sqlite3.Row) -> JsonObject:
    return {name: read for name in row.keys() if (read := _value(row[name])) is not None}  # noqa: SIM118


def _rows(path: Path, table: str) -> Iterator[Row]:
    with opened(path) as (db, restart):
        for number, row in enumerate(db.execute(f"SELECT * FROM {_quoted(table)}"), 1):
            yield Row(number, value=_record(row))
            restart()


def _grouped(path: Path, table: str, group: str, parent: str) -> Iterator[Row]:
    """A record for each conversation of a table of messages, with what its own table says of it."""
    with opened(path) as (db, restart):
        sql = f"SELECT * FROM {_quoted(table)} ORDER BY {_quoted(group)}, rowid"
        number, name = 0, None
        messages: list[JsonObject] = []
        for row in db.execute(sql):
            if row[group] != name and messages:
                number += 1
                yield Row(number, value=_about(db, parent, name) | {"messages": messages})
                messages = []
            name = row[group]
            messages += _messages_in(_record(row))
            restart()
        if messages:
            yield Row(number + 1, value=_about(db, parent, name) | {"messages": messages})


def _messages_in(record: JsonObject) -> list[JsonObject]:
    """The message of a row, or the question and the answer of one that holds both (llm)."""
    if "prompt" not in record or "role" in record:
        return [record]
    asked = [
        {"role": role, "content": record[n]}
        for n, role in (("system", "system"), ("prompt", "user"))
        if record.get(n)
    ]
    return [*asked, {**record, "role": "assistant", "content": record.get("response")}]


def _about(db: sqlite3.Connection, parent: str, name: object) -> JsonObject:
    parent_row = (
        db.execute(f"SELECT * FROM {_quoted(parent)} WHERE id = ?", (name,)).fetchone() if parent else None
    )
    return {"id": str(name)} | (
        {k: v for k, v in _record(parent_row).items() if k != "messages"} if parent_row else {}
    )


def _opencode(path: Path) -> Iterator[Row]:
    """Sessions of opencode's database: messages and their parts, each as JSON."""
    with opened(path) as (db, restart):
        known = tables(db)
        sessions = [r[0] for r in db.execute("SELECT DISTINCT session_id FROM message ORDER BY session_id")]
        for number, session in enumerate(sessions, 1):
            info = _about(db, "session" if "id" in known.get("session", ()) else "", session)
            messages = []
            for row in db.execute(
                "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", (session,)
            ):
                message, parts = _value(row["data"]), []
                for part in db.execute(
                    "SELECT data FROM part WHERE message_id = ? ORDER BY id", (row["id"],)
                ):
                    parts.append(_value(part["data"]))
                if isinstance(message, dict):
                    messages.append(
                        {
                            "info": {**message, "id": row["id"]},
                            "parts": [p for p in parts if isinstance(p, dict)],
                        }
                    )
                restart()
            if messages:
                yield Row(number, value={"info": info, "messages": messages})
