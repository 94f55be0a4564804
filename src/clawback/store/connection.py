"""Opens a database file, encrypted or not, with rows that are read by name.

SQLite and SQLCipher are two libraries in one process, and POSIX drops *all* locks that a process has on a
file when it closes the file once. So the encryption of a database is never determined by opening its file,
and the two never hold the same file at a time: the record beside it says which one to use, and the other is
tried only if that fails.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.errors import MissingExtra
from clawback.store import keys

if TYPE_CHECKING:
    import sqlite3 as sqlite3  # others have it from here
else:
    # Python's SQLite without the part of it that converts dates, which nothing here stores: that part loads `datetime`, a millisecond of every hook.
    try:
        import _sqlite3 as sqlite3  # the module that `sqlite3` passes on: the same classes
    except ImportError:  # a Python that keeps it elsewhere
        import sqlite3


def connect(
    path: Path, *, name: str | None = None, first_statement: str = "", **options: Any
) -> tuple[sqlite3.Connection, int]:
    """A connection, and the version of the schema. ``name``: an URI that stands for the path; ``first_statement``: a statement that comes first.

    Raises ``sqlite3.Error``, ``StoreError`` where the key is not there, ``MissingExtra``.
    """
    encrypted = keys.encrypted(path)
    try:
        return _opened(path, bool(encrypted), name, first_statement, options)
    except sqlite3.DatabaseError as error:
        if encrypted is None or "not a database" not in str(error):
            raise
        try:
            found = _opened(path, not encrypted, name, first_statement, options)
        except sqlite3.DatabaseError:
            raise error from None
    keys.note(path, not encrypted)  # it was killed between the two
    return found


def open_copy(path: Path, of: Path) -> sqlite3.Connection:
    """A copy of a database, by the key of that database. Raises ``sqlite3.Error``, ``StoreError``, ``MissingExtra``."""
    if keys.encrypted(of):
        db = open_encrypted(path, keys.load(of), isolation_level=None)
    else:
        db = sqlite3.connect(path, isolation_level=None)
        db.row_factory = sqlite3.Row
    try:
        db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def _opened(
    path: Path, encrypted: bool, name: str | None, first_statement: str, options: dict[str, Any]
) -> tuple[sqlite3.Connection, int]:
    if encrypted:
        db = open_encrypted(path, keys.load(path), name=name, **options)
    else:
        db = sqlite3.connect(name or path, **options)
        db.row_factory = sqlite3.Row
    try:
        if first_statement:
            db.execute(first_statement)
        return db, int(db.execute("PRAGMA user_version").fetchone()[0])
    except BaseException:
        db.close()
        raise


def open_encrypted(
    path: Path, key: bytes | None, *, name: str | None = None, **options: Any
) -> sqlite3.Connection:
    """A connection through SQLCipher; without a key to a plain database. Raises ``MissingExtra``."""
    try:
        from clawback.store import cipher
    except ImportError:
        from clawback import installed

        raise MissingExtra(
            f"The database {path} is encrypted, and what reads it is not installed. Run: {installed.add('crypt')}"
        ) from None
    return cipher.connect(name or path, key, **options)


def opens(path: Path, key: bytes) -> bool:
    """Whether that key opens an encrypted database."""
    with closing(open_encrypted(path, key)) as db:
        try:
            db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.DatabaseError:
            return False
    return True


def copy(db: sqlite3.Connection, of: Path, path: Path) -> None:
    """All of a database, while others go on using it, into an empty file; with the same key where it has one."""
    plain = isinstance(db, sqlite3.Connection)
    with closing(sqlite3.connect(path) if plain else open_encrypted(path, keys.load(of))) as target:
        db.backup(target)


def copy_plain(db: sqlite3.Connection, path: Path) -> None:
    """All of a database into an empty file, without a key."""
    if isinstance(db, sqlite3.Connection):
        with closing(sqlite3.connect(path)) as target:
            db.backup(target)
        return
    export(db, path, None)  # type: ignore[unreachable]


def export(db: sqlite3.Connection, path: Path, key: bytes | None) -> None:
    """All of a database that SQLCipher has open, into an empty file with another key, or none."""
    db.execute("ATTACH DATABASE ? AS part KEY ?", (str(path), f"x'{key.hex()}'" if key else ""))
    try:
        db.execute("SELECT sqlcipher_export('part')")
        # These two are not exported: without the first, migrations would run once more.
        for name in ("user_version", "application_id"):
            value = db.execute(f"PRAGMA main.{name}").fetchone()[0]
            db.execute(f"PRAGMA part.{name} = {int(value)}")
    finally:
        db.execute("DETACH DATABASE part")


def identity(path: Path) -> int:
    """Which file stands under that name: another one once it has been replaced."""
    return os.stat(path).st_ino  # noqa: PTH116
