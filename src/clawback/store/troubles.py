"""What SQLite's errors mean to a person: each becomes a sentence with the way out."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from clawback.errors import StoreBusy, StoreError
from clawback.store import copies, keys

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


def damaged(path: Path, text: str) -> str:
    """The file is damaged: what can be done, and where the newest copy is."""
    copy = copies.newest(path)
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
