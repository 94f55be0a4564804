"""Copies of the database that are made by themselves: one a day at most, when it has changed, and the newest few stay.

A copy is checked before an older one goes, so damage does not push the good copies out.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.errors import StoreError
from clawback.store.connection import daily_copies, newest_copy, open_copy, sqlite3

if TYPE_CHECKING:
    from clawback.store import Store

EVERY = 20 * 3600.0
"""Seconds between two copies: a day, and a little less, so that the hour does not wander."""
LARGEST = 4_000_000_000
"""Bytes of a database above which no copy is made by itself."""
ROOM = 3
"""So many times its size has to be free on the disk."""


def every(database: Path) -> list[Path]:
    """All copies beside the database, those before migrations too: whoever deletes or encrypts it does the same to them."""
    return sorted(database.parent.glob(f"{database.name}.*.backup"))


def remains(database: Path) -> list[Path]:
    """What ``clawback data salvage`` left: damaged files, and rows that fitted nowhere."""
    return sorted(
        path
        for kind in ("damaged", "leftovers")
        for path in database.parent.glob(f"{database.name}.{kind}-*")
    )


def copy_if_due(store: Store, count: int, now: float | None = None) -> Path | None:
    """Make one if the last is a day old and something has changed since, and keep the newest ``count``; None where nothing was due.

    Raises ``StoreError`` where the database is damaged: then the copies stay as they are.
    """
    if not count:
        return None
    database, moment = store.path, time.time() if now is None else now
    last = newest_copy(database)
    if last is not None and (
        abs(moment - last.stat().st_mtime) < EVERY or _changed_at(database) <= last.stat().st_mtime
    ):
        return None
    size = _size(database)
    if not store.count_turns() or size > LARGEST or _free(database.parent) < ROOM * size:
        return None
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(moment))
    path = database.with_name(f"{database.name}.daily-{stamp}.backup")
    store.backup(path)
    if trouble := _trouble(path, database):
        path.unlink()
        raise StoreError(
            f"No copy of {database} was kept, for it is damaged ({trouble}): `clawback data salvage` saves what can be read."
        )
    for old in daily_copies(database)[:-count]:
        with suppress(OSError):
            old.unlink()
    return path


def _trouble(copy: Path, database: Path) -> str:
    """What SQLite finds wrong with a copy; "" when all is well."""
    try:
        with closing(open_copy(copy, database)) as db:
            found = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        return str(error)
    finally:
        for suffix in ("-wal", "-shm"):
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)
    return "" if found == "ok" else found


def _changed_at(database: Path) -> float:
    log = database.with_name(f"{database.name}-wal")
    return max(path.stat().st_mtime for path in (database, log) if path.exists())


def _size(database: Path) -> int:
    log = database.with_name(f"{database.name}-wal")
    return sum(path.stat().st_size for path in (database, log) if path.exists())


def _free(folder: Path) -> int:
    import shutil

    return shutil.disk_usage(folder).free
