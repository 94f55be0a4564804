"""What the tables share: the connection, write transactions, small values by name, backup and the integrity check."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from clawback.errors import NotFound, StoreError
from clawback.store import connection, troubles
from clawback.store.driver import sqlite3
from clawback.store.schema import DAMAGED, ODD

P = ParamSpec("P")
R = TypeVar("R")

OWN = "(f.kind != 'judge' AND f.source NOT LIKE 'hint:%')"
"""Feedback that somebody gave, unlike what a judge model added."""
RATED = f"({OWN} AND f.kind != 'implicit')"
"""Feedback that makes a turn a rated one: no guess does."""


def readable(of_row: Callable[P, R]) -> Callable[P, R]:
    """For what makes a record of a row: a row that a damaged disk has changed is told of in a sentence (``StoreError``)."""

    def read(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return of_row(*arguments, **named)
        except ODD as error:
            raise StoreError(
                "The database is damaged: a row of it cannot be read. `clawback data salvage` saves the others (`clawback doctor` says more)."
            ) from error

    return read


class Base:
    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path, self._db = path, db
        self._cleaning: tuple[bool, tuple[str, ...]] | None = None

    def clean(self, value: Any) -> Any:
        """A text, or a message with its texts, as it may be stored: without secrets. Every text from outside comes through here."""
        if not value:
            return value
        redacting, rules = self._privacy()
        if redacting:
            from clawback.redact import redact_all

            value = redact_all(value)
        if rules:
            from clawback.redact import by_rules

            value = by_rules(rules, value)
        return value

    def _privacy(self) -> tuple[bool, tuple[str, ...]]:
        """Whether secrets are taken out, and the person's own rules: as the settings beside the database say."""
        if self._cleaning is None:
            self._cleaning = True, ()
            with suppress(OSError):
                settings = self.path.with_name("config.toml")
                # Reading settings costs more than all the rest; only who changed these has to pay for it.
                if b"[privacy]" in settings.read_bytes():
                    from clawback import config

                    privacy = config.load(settings).privacy
                    self._cleaning = privacy.redact, privacy.rules
        return self._cleaning

    def close(self) -> None:
        self._db.close()

    @property
    def in_transaction(self) -> bool:
        """Whether the caller is inside ``together``: nothing of it is stored yet."""
        return self._db.in_transaction

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        try:
            return self._db.execute(sql, values).fetchall()
        except OverflowError:
            raise NotFound("There is no entry with so large a number.") from None
        except DAMAGED as error:
            raise troubles.store_error(self.path, error) from error

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """One transaction. IMMEDIATE: writers queue up at its start, so that none fails half-way."""
        if self._db.in_transaction:  # inside another call's transaction
            yield self._db
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                # A full disk, say, has rolled back by itself.
                with suppress(sqlite3.OperationalError):
                    self._db.execute("ROLLBACK")
                raise
        except OverflowError:
            raise NotFound("There is no entry with so large a number.") from None
        except DAMAGED as error:
            raise troubles.store_error(self.path, error) from error

    def get(self, key: str, default: Any = None) -> Any:
        """A small value kept under a name (the EMA baseline, say), or ``default``."""
        rows = self._read("SELECT value FROM state WHERE key = ?", key)
        return json.loads(rows[0]["value"]) if rows else default

    def set(self, key: str, value: Any) -> None:
        """Keep a small JSON value under a name."""
        with self._write() as db:
            db.execute(
                "INSERT INTO state VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (key, json.dumps(value)),
            )

    def backup(self, path: Path, *, plain: bool = False) -> None:
        """Copy the database while others go on using it. The copy appears whole or not at all, mode 0600; one of an encrypted database needs
        the same key, unless ``plain``.

        Raises ``StoreError`` when the copy cannot be written.
        """
        beside = path.with_name(path.name + ".part")
        try:
            beside.unlink(missing_ok=True)
            os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            if plain:
                connection.copy_plain(self._db, beside)
            else:
                connection.copy(self._db, self.path, beside)
            beside.replace(path)
        except (sqlite3.Error, OSError) as error:
            beside.unlink(missing_ok=True)
            gone = f"the folder {path.parent} is not there" if not path.parent.is_dir() else ""
            why = gone or getattr(error, "strerror", None) or error
            raise StoreError(f"The backup {path} could not be written: {why}.") from error

    def integrity(self) -> list[str]:
        """What SQLite finds wrong with the file, and rows that point nowhere. Empty when all is well."""
        found = [row[0] for row in self._read("PRAGMA integrity_check") if row[0] != "ok"]
        return found + [
            f"a row of {r[0]} points to a missing {r[2]}" for r in self._read("PRAGMA foreign_key_check")
        ]


def now() -> float:
    return time.time()
