"""SQLCipher with the interface of ``sqlite3``. Imported only where a database is encrypted.

sqlcipher3's errors are not subclasses of ``sqlite3.Error``: they are re-raised as those of the same name, so
that callers need not know which of the two it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from sqlcipher3 import dbapi2 as cipher

P = ParamSpec("P")
R = TypeVar("R")


def _translated(call: Callable[P, R]) -> Callable[P, R]:
    def translated(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return call(*arguments, **named)
        except cipher.Error as error:
            raise getattr(sqlite3, type(error).__name__, sqlite3.DatabaseError)(*error.args) from error

    return translated


class Cursor(cipher.Cursor):  # type: ignore[misc]
    execute = _translated(cipher.Cursor.execute)
    executemany = _translated(cipher.Cursor.executemany)
    fetchone = _translated(cipher.Cursor.fetchone)
    fetchmany = _translated(cipher.Cursor.fetchmany)
    fetchall = _translated(cipher.Cursor.fetchall)


class Connection(cipher.Connection):  # type: ignore[misc]
    backup = _translated(cipher.Connection.backup)

    def cursor(self, factory: object = Cursor) -> Any:
        return super().cursor(factory)

    def execute(self, *arguments: object) -> Any:
        return self.cursor().execute(*arguments)

    def executemany(self, *arguments: object) -> Any:
        return self.cursor().executemany(*arguments)


def connect(path: Path | str, key: bytes | None, **options: object) -> sqlite3.Connection:
    """A connection with that key; None: to a database that is not encrypted (it can be encrypted from there). Raises ``sqlite3.Error``."""
    try:
        db = Connection(str(path), **options)
    except cipher.Error as error:
        raise getattr(sqlite3, type(error).__name__, sqlite3.DatabaseError)(*error.args) from error
    db.row_factory = cipher.Row
    if key is not None:
        # First of all: what it would write to stderr where the key is wrong is told in a sentence of ours.
        db.execute("PRAGMA cipher_log_level = NONE")
        db.execute(f"PRAGMA key = \"x'{key.hex()}'\"")
    return cast(sqlite3.Connection, db)
