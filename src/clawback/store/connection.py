"""Opens the database file: encrypted or not, with safe settings, numbered migrations, and a sentence for what SQLite refuses.

SQLite and SQLCipher are two libraries in one process, and POSIX drops *all* locks that a process has on a
file when it closes the file once. So the encryption of a database is never determined by opening its file,
and the two never hold the same file at a time: the record beside it says which one to use, and the other is
tried only if that fails.

Each file of ``migrations/`` is one step; ``PRAGMA user_version`` says how many have been applied.
"""

from __future__ import annotations

import errno
import os
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.encryption import keys
from clawback.errors import MissingExtra, StoreBusy, StoreError

if TYPE_CHECKING:
    import sqlite3 as sqlite3  # others have it from here
else:
    # Python's SQLite without the part of it that converts dates, which nothing here stores: that part loads `datetime`, a millisecond of every hook.
    try:
        import _sqlite3 as sqlite3  # the module that `sqlite3` passes on: the same classes
    except ImportError:  # a Python that keeps it elsewhere
        import sqlite3


PROBE_BYTES = 65_536
"""What a disk has to take to count as not full: SQLite wants 32 kB to begin with."""
_FULL = {errno.ENOSPC, errno.EDQUOT}


def store_error(path: Path, error: Exception) -> StoreError:
    """What SQLite reports as an error of ours, with a sentence; ``StoreBusy`` where another process holds the lock."""
    kind = StoreBusy if "locked" in str(error) else StoreError
    return kind(describe(path, error))


def describe(path: Path, error: Exception) -> str:
    """The sentence for an error of the database at that path."""
    text = "malformed text" if isinstance(error, UnicodeDecodeError) else str(error)
    if "locked" in text:
        return f"The database {path} is in use by something that does not let go of it; try again."
    if "not a database" in text:
        return _unreadable(path, text)
    if "malformed" in text:
        return damaged(path, text)
    if "full" in text or (
        any(word in text for word in ("I/O", "unable to open", "readonly")) and is_full(path.parent)
    ):
        return f"The disk of {path} is full: make room and try again; nothing that was stored is lost, and it can be read meanwhile."
    if "readonly" in text:
        return f"The database {path} cannot be written: it, its folder or its disk is read-only."
    return f"The database {path} cannot be used: {text}."


def daily_copies(database: Path) -> list[Path]:
    """The copies that are made by themselves (``copies``), oldest first."""
    return sorted(database.parent.glob(f"{database.name}.daily-*.backup"))


def newest_copy(database: Path) -> Path | None:
    """The last copy that was good when it was made."""
    return next(reversed(daily_copies(database)), None)


def damaged(path: Path, text: str) -> str:
    """The file is damaged: what can be done, and where the newest copy is."""
    copy = newest_copy(path)
    backup = f"; the newest copy that was made by itself is {copy}" if copy else ""
    return (
        f"The database {path} is damaged ({text}): keep the file, and run `clawback data salvage`, which saves what can be read"
        f"{backup} (`clawback doctor` says more)."
    )


def _unreadable(path: Path, text: str) -> str:
    """SQLCipher says "not a database" of a right file and a wrong key, too."""
    try:
        place = keys.recorded(path)
    except StoreError as error:
        return str(error)
    if place is not None and keys.encrypted(path):
        where = {
            "file": path.with_name(keys.KEY_FILE),
            "keyring": "the keyring",
            "credential": "the service's credential",
        }
        return (
            f"The database {path} is encrypted, and the key from {where[place]} does not open it: most likely it is"
            " another database's key. Give the right one, from its recovery copy, to `clawback data encryption recover`. Change or"
            " delete neither the database nor the key meanwhile; a backup is needed only if the right key does not open it either."
        )
    if place is None and path.with_name(keys.KEY_FILE).exists():
        return (
            f"The database {path} cannot be read: it is probably encrypted, for there is a key beside it, but {keys.RECORD}, which"
            " says so, is not there. Put that file back, or run `clawback data encryption recover` with the key. Delete nothing."
        )
    return damaged(path, text)


def is_full(folder: Path) -> bool:
    """Whether the disk of that folder takes nothing more, by trying: quotas are no different then."""
    probe = folder / f".full.{os.getpid()}"
    try:
        with os.fdopen(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(b"\1" * PROBE_BYTES)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno in _FULL
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return False


def connect(
    path: Path, *, name: str | None = None, first_statement: str = "", **options: object
) -> tuple[sqlite3.Connection, int]:
    """A connection, and the version of the schema. ``name``: an URI that stands for the path; ``first_statement``: a statement that comes first.

    Raises ``sqlite3.Error``, ``StoreError`` where the key is not there, ``MissingExtra``.
    """
    noted = keys.encrypted(path)
    try:
        return _opened(path, bool(noted), name, first_statement, options)
    except sqlite3.DatabaseError as error:
        if noted is None or "not a database" not in str(error):
            raise
        try:
            connection = _opened(path, not noted, name, first_statement, options)
        except sqlite3.DatabaseError:
            raise error from None
    keys.note(path, not noted)  # it was killed between the two
    return connection


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
    path: Path, key: bytes | None, *, name: str | None = None, **options: object
) -> sqlite3.Connection:
    """A connection through SQLCipher; without a key to a plain database. Raises ``MissingExtra``."""
    try:
        from clawback.encryption import cipher
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
        if not any(word in str(error) for word in _NO_ROOM) or not is_full(path.parent):
            raise store_error(path, error) from error
    return _open_on_full_disk(path)


def _open_to_write(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Raises what is in ``DAMAGED``, and ``StoreError`` for a newer schema."""
    db, schema = _open(path, busy_seconds)
    try:
        if schema > newest():
            raise StoreError(
                f"The database {path} was written by a newer Clawback (schema {schema}, this one knows {newest()}); "
                "it was left untouched: upgrade Clawback to use it."
            )
        if db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            db.execute("PRAGMA journal_mode = WAL")
        # FULL: what was acknowledged survives a power cut, for one fsync a write.
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        if schema < newest():
            _migrate(db, path)
    except (*DAMAGED, StoreError):
        db.close()
        raise
    return db


def _open(path: Path, busy_seconds: float) -> tuple[sqlite3.Connection, int]:
    """A connection, and the schema it found. Where the file was replaced meanwhile (it was encrypted, or decrypted) the new one is opened:
    what would be written to the old one would be lost."""
    while True:
        before = identity(path)
        try:
            # isolation_level=None: transactions are begun and ended by us, visibly.
            db, schema = connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
        except DAMAGED:
            if identity(path) == before:
                raise
            continue
        if identity(path) == before:
            return db, schema
        db.close()


def _open_to_read(path: Path) -> sqlite3.Connection:
    """A home that cannot be written, such as a backup that is mounted read-only: it can be looked at. Raises ``StoreError``."""
    from urllib.parse import quote

    try:
        # immutable: nobody can write it, and SQLite need not make the files that it shares with writers.
        db, schema = connect(
            path,
            name=f"file:{quote(str(path))}?mode=ro&immutable=1",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
    except DAMAGED as error:
        raise store_error(path, error) from error
    if schema != newest():
        db.close()
        raise StoreError(
            f"The database {path} has schema {schema}, this program reads {newest()}, and it cannot be brought up to date: {path.parent} cannot be written."
        )
    return db


def _open_on_full_disk(path: Path) -> sqlite3.Connection:
    """To look only: the files that SQLite shares with other processes have no room, so it keeps their content in memory. Raises ``StoreError``."""
    try:
        db, schema = connect(
            path,
            first_statement="PRAGMA locking_mode = EXCLUSIVE",
            timeout=1.0,
            isolation_level=None,
            check_same_thread=False,
        )
        db.execute("PRAGMA query_only = ON")
    except DAMAGED as error:
        raise store_error(path, error) from error
    if schema != newest():
        db.close()
        raise StoreError(
            f"The disk of {path} is full, so the database cannot be brought up to date: make room and try again."
        )
    return db


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    """Take the missing steps in one transaction: all of them or none. A file with content is copied first."""
    db.execute("BEGIN IMMEDIATE")
    try:
        schema = db.execute("PRAGMA user_version").fetchone()[0]  # another process may have been faster
        if 0 < schema < newest():
            _keep_copy(path, schema)
        for file in sorted(MIGRATIONS.glob("[0-9]*.sql")):
            if (number := int(file.name[:4])) > schema:
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
    backup = path.with_name(f"{path.name}.schema-{version}.backup")
    source, _ = connect(path)
    with closing(source):
        copy(source, path, backup)
    backup.chmod(0o600)
