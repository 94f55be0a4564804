"""Encrypts or decrypts the database in place: the new file is written completely, checked, synced, and renamed over the old one.

Meanwhile nobody else has the database open, and nobody can: an exclusive lock is held on the old file, and a
process that waits for it notices afterwards that the file has been replaced (``store.connection``). If the
process is killed at any point, the home holds the old database or the new one, whole. The key is on the disk
before the first encrypted byte is.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from clawback import store
from clawback.capture import spool
from clawback.encryption import keys
from clawback.encryption.keys import Kept
from clawback.errors import Busy, StoreError, UsageError
from clawback.files import sync
from clawback.paths import Home
from clawback.release.version_registry import LOCK_SECONDS
from clawback.store import connection, copies

PART = ".part"
PLAIN = b"SQLite format 3\0"
"""How a database begins that is not encrypted."""
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class EncryptionState:
    """``kept``: where the key is. ``files``: databases in the home, and whether each is encrypted."""

    encrypted: bool
    storage: Kept | None
    why: str = ""
    """Why the key is kept there and no better place."""

    def text(self) -> str:
        where = {
            "keyring": "in your keyring",
            "credential": f"in the credential {keys.CREDENTIAL} that systemd hands over",
            "file": f"in the file {keys.KEY_FILE} beside the database (mode 0600): whoever reads your files reads the key",
            None: "",
        }[self.storage]
        if not self.encrypted:
            return "The database is not encrypted." + (f" A key is kept {where}." if self.storage else "")
        return f"The database is encrypted. Its key is kept {where}." + (f" {self.why}" if self.why else "")


def is_encrypted(path: Path) -> bool:
    """Whether the file is, by how it begins. Not for a process that has the database open (see ``store.connection``)."""
    with path.open("rb", buffering=0) as file:
        head = file.read(len(PLAIN))
    return len(head) == len(PLAIN) and head != PLAIN


def state(home: Home) -> EncryptionState:
    """How it stands."""
    return EncryptionState(
        home.database.exists() and is_encrypted(home.database), keys.recorded(home.database)
    )


def encrypt(home: Home, kind: Kept | None = None) -> EncryptionState:
    """Encrypt the database and the copies that migrations left. Raises ``Busy``, ``UsageError`` where it is encrypted, ``MissingExtra``."""
    with _alone(home):
        if home.database.exists() and is_encrypted(home.database):
            raise UsageError("The database is encrypted already.")
        connection.open_encrypted(Path(":memory:"), None).close()  # before a key is made
        with store.connect(home.database):  # made, and brought up to date
            pass
        key, place, why = keys.make(home.database, kind)
        for path in _databases(home):
            if not is_encrypted(path):
                _rewrite(path, None, key)
        keys.note(home.database, True)
    spool.drain_if_waiting(home)  # what waits in files of its own was not encrypted
    return EncryptionState(True, place, why)


def decrypt(home: Home) -> EncryptionState:
    """The other way. The key stays where it is: copies that were made meanwhile need it."""
    with _alone(home):
        if not state(home).encrypted:
            raise UsageError("The database is not encrypted.")
        key = keys.load(home.database)
        for path in _databases(home):
            if is_encrypted(path):
                _rewrite(path, key, None)
        keys.note(home.database, False)
    return state(home)


def _databases(home: Home) -> list[Path]:
    """The database last: until it has changed nothing is said to have."""
    return [*copies.every(home.database), home.database]


@contextmanager
def _alone(home: Home) -> Iterator[None]:
    from filelock import FileLock, Timeout

    try:
        with FileLock(home.train_lock, timeout=LOCK_SECONDS):
            if home.move.exists():
                raise UsageError(
                    "A move to another model is open, and has a copy of the database. Decide first: `clawback move --keep new` or `old`."
                )
            yield
    except Timeout:
        raise Busy("A run is training. Wait for it, or stop it first: `clawback runs stop`.") from None


def _rewrite(path: Path, old: bytes | None, new: bytes | None) -> None:
    """Copy all of the database into one with the other key, and put that in its place."""
    part = path.with_name(path.name + PART)
    try:
        with closing(_exclusive(path, old)) as source, path.open("r+b") as before:
            part.unlink(missing_ok=True)
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            connection.export(source, part, new)
            _compare(source, part, new)
            sync(part)
            part.replace(path)
            sync(path.parent)
            if old is None:
                _overwrite(before)
    except sqlite3.Error as error:
        part.unlink(missing_ok=True)
        if "locked" in str(error) or "busy" in str(error):
            raise Busy(
                "Something has the database open: stop the server (`clawback connect service uninstall`, or Ctrl-C where it runs) and try again."
            ) from None
        raise StoreError(
            f"The database {path} could not be rewritten: {error}. It was not changed."
        ) from error
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StoreError(
            f"The database {path} could not be rewritten: {error.strerror}. It was not changed."
        ) from error


def _exclusive(path: Path, key: bytes | None) -> sqlite3.Connection:
    """A connection that nobody shares, to a file that has no log beside it."""
    db = connection.open_encrypted(path, key, timeout=1.0, isolation_level=None)
    try:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        # In WAL mode whoever has it open holds a lock, so this fails while there is anybody.
        db.execute("BEGIN EXCLUSIVE")
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("BEGIN EXCLUSIVE")
        db.execute("COMMIT")
    except BaseException:
        db.close()
        raise
    return db


def _compare(source: sqlite3.Connection, part: Path, key: bytes | None) -> None:
    """The copy is whole, and holds as many rows of every table. Raises ``StoreError``."""
    with closing(connection.open_encrypted(part, key)) as made:
        if made.execute("PRAGMA integrity_check").fetchone()[0] != "ok" or _rows(made) != _rows(source):
            raise StoreError(f"The copy {part} differs from the database. The database was not changed.")


def _rows(db: sqlite3.Connection) -> dict[str, int]:
    names = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
    counted = {name: int(db.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]) for (name,) in names}
    return counted | {"user_version": int(db.execute("PRAGMA user_version").fetchone()[0])}


def _overwrite(file: object) -> None:
    """Zeros over the blocks of the file that is gone. Where the disk writes elsewhere (flash, copy on write) they are only freed."""
    from typing import BinaryIO, cast

    old = cast(BinaryIO, file)
    size = old.seek(0, os.SEEK_END)
    old.seek(0)
    for start in range(0, size, _BLOCK):
        old.write(bytes(min(_BLOCK, size - start)))
    old.flush()
    os.fsync(old.fileno())
