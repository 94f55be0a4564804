"""Opens the database with safe settings, and applies numbered migrations.

Each file of ``migrations/`` is one step; ``PRAGMA user_version`` says how many have been applied.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from clawback.errors import StoreError
from clawback.store import connection, troubles
from clawback.store.connection import sqlite3

MIGRATIONS = Path(__file__).with_name("migrations")
DAMAGED = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged file raises: where the damage is in a name, sqlite3 fails to decode its own message about it."""
ODD = (IndexError, KeyError, TypeError, ValueError, AttributeError)
"""What reading the rows of a damaged file raises: columns that are gone, numbers where a text was, text that is no JSON."""
_NO_ROOM = ("I/O", "unable to open", "full")
"""Words of the errors that a full disk makes, and other troubles as well."""
BUSY_SECONDS = 10.0
"""How long a writer waits for the one before it."""


def newest() -> int:
    """The version of the schema that this program knows."""
    return max(int(p.name[:4]) for p in MIGRATIONS.iterdir() if p.suffix == ".sql")


def open_database(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Open the file (made on first use, mode 0600) with the newest schema.

    Raises ``StoreError`` when it is damaged, locked for too long, or written by a newer Clawback; such a file is
    left as it was, byte for byte.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError as error:
        raise StoreError(f"The database {path} cannot be made: {error.strerror}.") from error
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return _open_to_read(path)
    try:
        return _open_to_write(path, busy_seconds)
    except DAMAGED as error:
        if not any(word in str(error) for word in _NO_ROOM) or not troubles.is_full(path.parent):
            raise troubles.store_error(path, error) from error
    return _open_on_full_disk(path)


def _open_to_write(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Raises what is in ``DAMAGED``, and ``StoreError`` for a newer schema."""
    db, found = _open(path, busy_seconds)
    try:
        if found > newest():
            raise StoreError(
                f"The database {path} was written by a newer Clawback (schema {found}, this one knows {newest()}); "
                "it was left untouched: upgrade Clawback to use it."
            )
        if db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            db.execute("PRAGMA journal_mode = WAL")
        # FULL: what was acknowledged survives a power cut, for one fsync a write.
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        if found < newest():
            _migrate(db, path)
    except (*DAMAGED, StoreError):
        db.close()
        raise
    return db


def _open(path: Path, busy_seconds: float) -> tuple[sqlite3.Connection, int]:
    """A connection, and the schema it found. Where the file was replaced meanwhile (it was encrypted, or decrypted) the new one is opened:
    what would be written to the old one would be lost."""
    while True:
        before = connection.identity(path)
        try:
            # isolation_level=None: transactions are begun and ended by us, visibly.
            db, found = connection.connect(
                path, timeout=busy_seconds, isolation_level=None, check_same_thread=False
            )
        except DAMAGED:
            if connection.identity(path) == before:
                raise
            continue
        if connection.identity(path) == before:
            return db, found
        db.close()


def _open_to_read(path: Path) -> sqlite3.Connection:
    """A home that cannot be written, such as a backup that is mounted read-only: it can be looked at. Raises ``StoreError``."""
    from urllib.parse import quote

    try:
        # immutable: nobody can write it, and SQLite need not make the files that it shares with writers.
        db, found = connection.connect(
            path,
            name=f"file:{quote(str(path))}?mode=ro&immutable=1",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
    except DAMAGED as error:
        raise troubles.store_error(path, error) from error
    if found != newest():
        db.close()
        raise StoreError(
            f"The database {path} has schema {found}, this program reads {newest()}, and it cannot be brought up to date: {path.parent} cannot be written."
        )
    return db


def _open_on_full_disk(path: Path) -> sqlite3.Connection:
    """To look only: the files that SQLite shares with other processes have no room, so it keeps their content in memory. Raises ``StoreError``."""
    try:
        db, found = connection.connect(
            path,
            first_statement="PRAGMA locking_mode = EXCLUSIVE",
            timeout=1.0,
            isolation_level=None,
            check_same_thread=False,
        )
        db.execute("PRAGMA query_only = ON")
    except DAMAGED as error:
        raise troubles.store_error(path, error) from error
    if found != newest():
        db.close()
        raise StoreError(
            f"The disk of {path} is full, so the database cannot be brought up to date: make room and try again."
        )
    return db


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    """Take the missing steps in one transaction: all of them or none. A file with content is copied first."""
    db.execute("BEGIN IMMEDIATE")
    try:
        found = db.execute("PRAGMA user_version").fetchone()[0]  # another process may have been faster
        if 0 < found < newest():
            _keep_copy(path, found)
        for file in sorted(MIGRATIONS.glob("[0-9]*.sql")):
            if (number := int(file.name[:4])) > found:
                for statement in _statements(file.read_text("utf-8")):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {number}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _statements(script: str) -> list[str]:
    """The statements of a script one by one: ``executescript`` would commit the transaction around them."""
    statements, rest = [], ""
    for line in script.splitlines(keepends=True):
        rest += line
        if sqlite3.complete_statement(rest):
            statements.append(rest)
            rest = ""
    return statements


def _keep_copy(path: Path, version: int) -> None:
    """A copy of the file as it was before the migration, beside it."""
    copy = path.with_name(f"{path.name}.schema-{version}.backup")
    source, _ = connection.connect(path)
    with closing(source):
        connection.copy(source, path, copy)
    copy.chmod(0o600)
