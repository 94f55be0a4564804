"""What the tables share: the connection, write transactions, small values by name, backup, the integrity check, and the time to delete things by."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from clawback.errors import NotFound, StoreError
from clawback.processes import boot_identity
from clawback.store.connection import DAMAGED, ODD, copy, copy_plain, sqlite3, store_error

if TYPE_CHECKING:
    from clawback.records import JsonObject

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


CLOCK = "clock"
"""Where the store keeps it: wall clock, boot, counter, the time that is trusted, and what was seen to pass since the last jump."""
BELIEVED = 7 * 86_400.0
"""Seconds that may pass unseen while the machine is off."""
ADJUSTED = 3600.0
"""A difference that small is the clock being set right."""


class Base:
    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path, self._db = path, db
        self._cleaning: tuple[bool, tuple[str, ...]] | None = None

    def clean(self, value: object) -> Any:
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

    def _read(self, sql: str, *values: object) -> list[sqlite3.Row]:
        try:
            return self._db.execute(sql, values).fetchall()
        except OverflowError:
            raise NotFound("There is no entry with so large a number.") from None
        except DAMAGED as error:
            raise store_error(self.path, error) from error

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
            raise store_error(self.path, error) from error

    @contextmanager
    def together(self) -> Iterator[None]:
        """A context manager: all writes within it are one transaction, with one disk sync: all of them are kept, or none."""
        with self._write():
            yield

    def get(self, key: str, default: object = None) -> Any:
        """A small value kept under a name (the EMA baseline, say), or ``default``."""
        rows = self._read("SELECT value FROM state WHERE key = ?", key)
        return json.loads(rows[0]["value"]) if rows else default

    def set(self, key: str, value: object) -> None:
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
                copy_plain(self._db, beside)
            else:
                copy(self._db, self.path, beside)
            beside.replace(path)
        except (sqlite3.Error, OSError) as error:
            beside.unlink(missing_ok=True)
            gone = f"the folder {path.parent} is not there" if not path.parent.is_dir() else ""
            why = gone or getattr(error, "strerror", None) or error
            raise StoreError(f"The backup {path} could not be written: {why}.") from error

    def integrity(self) -> list[str]:
        """What SQLite finds wrong with the file, and rows that point nowhere. Empty when all is well."""
        damage = [row[0] for row in self._read("PRAGMA integrity_check") if row[0] != "ok"]
        return damage + [
            f"a row of {r[0]} points to a missing {r[2]}" for r in self._read("PRAGMA foreign_key_check")
        ]

    # ------------------------------------------------------------------------------------ the time to delete things by
    #
    # What a home deletes by age it deletes by time that has really passed, as far as anything shows it: a clock that is set
    # ahead deletes nothing. On one boot the machine's own counter shows it exactly, sleep included. Over a restart the clock
    # is believed for a week; what it says to have passed beyond that counts only after one more period of the same length
    # has been seen to pass.

    def deletion_time(self, period: float, moment: float | None = None) -> float:
        """The time to count the age of things from that are deleted after ``period`` seconds; never later than the clock's.

        ``moment``: the clock, in place of the machine's (tests).
        """
        seen = self._look_at_clock(moment)
        self.set(CLOCK, seen)
        return self._trusted(seen, period)

    def trusted_time(self, period: float, moment: float | None = None) -> float:
        """The same, for who only looks."""
        return self._trusted(self._look_at_clock(moment), period)

    def clock_ahead(self) -> float:
        """Seconds that the clock says to have passed and nothing has shown."""
        return float(self._look_at_clock(None)["ahead"])

    def trust_clock(self) -> None:
        """The person says that the clock is right."""
        seen = self._look_at_clock(None)
        self.set(CLOCK, seen | {"trusted": seen["wall"], "ahead": 0.0})

    def _look_at_clock(self, moment: float | None) -> JsonObject:
        wall = now() if moment is None else moment
        boot, counter = (boot_identity(), _counter()) if moment is None else ("", 0.0)
        known = self.get(CLOCK) or self._first_clock(wall)
        passed = wall - known["wall"]
        if boot and boot == known["boot"]:
            passed = counter - known["counter"]
        elif not 0 <= passed <= BELIEVED:
            passed = 0.0
        trusted, seen = known["trusted"] + passed, known["seen"] + passed
        ahead = wall - trusted
        if ahead <= ADJUSTED:
            trusted, ahead = wall, 0.0
        elif ahead > known["ahead"] + ADJUSTED:
            seen = 0.0  # it has jumped
        return {
            "wall": wall,
            "boot": boot,
            "counter": counter,
            "trusted": trusted,
            "seen": seen,
            "ahead": ahead,
        }

    @staticmethod
    def _trusted(seen: JsonObject, period: float) -> float:
        return float(seen["wall"] if seen["seen"] >= period else seen["trusted"])

    def _first_clock(self, wall: float) -> JsonObject:
        """Of a home that has not looked before: its newest turn is the last that is known."""
        newest = self._read("SELECT max(created_at) AS at FROM turns")[0]["at"]
        last = wall if newest is None else min(float(newest), wall)
        return {"wall": last, "boot": "", "counter": 0.0, "trusted": last, "seen": 0.0, "ahead": 0.0}


def now() -> float:
    return time.time()


def _counter() -> float:
    """Seconds since the machine started, sleep included; nobody can set it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
