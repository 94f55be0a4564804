"""Saves what can be read of a damaged database: row by row into a new file, around the pages that are gone.

The damaged file is kept aside. Rows that are readable and fit nowhere any more (a rating whose turn is gone) are
written to a file of JSON lines, so that nothing readable is lost.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.capture import script, server_proof
from clawback.encryption import keys
from clawback.errors import Busy, ClawbackError, StoreBusy, StoreError
from clawback.extensions.salvage.salvage_pages import transplant
from clawback.extensions.salvage.salvage_rows import SalvageReport, copy_table
from clawback.paths import Home
from clawback.release.version_registry import LOCK_SECONDS
from clawback.store import connect, connection
from clawback.store.connection import DAMAGED, newest, open_database, sqlite3

if TYPE_CHECKING:
    from clawback.records import JsonObject
    from clawback.store import Store

DERIVED = {"counts", "rating_counts", "rule_counts"}
"""Tables that triggers fill."""


def save_what_can_be_read(home: Home) -> SalvageReport | None:
    """Salvage the database; None for one that is intact, which stays as it is. Raises ``Busy`` while a run or a server has it open."""
    from filelock import FileLock, Timeout

    if (announced := script.announced(home)) and server_proof.proven(home, announced[0]):
        raise Busy(f"The server on port {announced[0]} has the database open: stop it first, then salvage.")
    try:
        with FileLock(home.train_lock, timeout=LOCK_SECONDS):
            return None if _is_intact(home) else salvage(home.database)
    except Timeout:
        raise Busy("A run is training. Wait for it, or stop it first: `clawback runs stop`.") from None


def _is_intact(home: Home) -> bool:
    """Whether SQLite finds nothing wrong with the database, and the content of every row can be read. Raises ``StoreBusy``."""
    try:
        with connect(home.database) as db:
            return not db.integrity() and next(unreadable(db), None) is None
    except StoreBusy:
        raise
    except (StoreError, *DAMAGED):
        return False


def salvage(database: Path) -> SalvageReport:
    """Put a sound database in the place of the damaged one. Nobody else may have it open.

    Raises ``StoreError`` where its table of contents is gone and no copy has it; the file is then as it was.
    """
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    report = SalvageReport(damaged=database.with_name(f"{database.name}.damaged-{stamp}"))
    work = database.with_name(f"{database.name}.salvage-{os.getpid()}")
    work.mkdir(mode=0o700)
    try:
        source, target = work / database.name, work / "new" / database.name
        target.parent.mkdir(mode=0o700)
        for suffix in ("", "-wal"):
            if (path := database.with_name(database.name + suffix)).exists():
                shutil.copy2(path, source.with_name(source.name + suffix))
        if keys.encrypted(database):
            for path in (source, target):
                keys.put_back(path, keys.load(database))
        aside = _rebuild(source, target, database, report)
        counts = report.saved, report.from_copy
        kept = [count.get(table) for count in counts for table in ("turns", "feedback")]
        if report.damaged_parts and not any(kept):
            raise StoreError(
                f"No turn and no rating of {database} can be read. Put a backup in its place; keep the file, which is as it was."
            )
        report.aside = len(aside)
        for row in aside:
            report.saved[row["table"]] = max(0, report.saved.get(row["table"], 0) - 1)
        if aside:
            report.leftovers = database.with_name(f"{database.name}.leftovers-{stamp}.jsonl")
            _write_lines(report.leftovers, aside)
        _swap(database, target, report.damaged)
    except DAMAGED as error:
        raise StoreError(
            f"Nothing could be saved from {database}: {error}. The file is as it was."
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return report


def _rebuild(source: Path, target: Path, database: Path, report: SalvageReport) -> list[JsonObject]:
    """Fill a new database from the damaged one; the rows that fit nowhere."""
    with closing(_open_source(source, database, report)) as old:
        open_database(target).close()
        new, _ = connection.connect(target, isolation_level=None)
        with closing(new), _newest_copy(database, report) as spare:
            new.execute("PRAGMA foreign_keys = OFF")
            new.execute("BEGIN IMMEDIATE")
            # Which version is live comes with the rows.
            new.execute("UPDATE versions SET status = 'retired' WHERE number = 0")
            for table in _tables(new):
                copy_table(old, new, table, spare, report)
            new.execute("COMMIT")
            new.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    aside: list[JsonObject] = []
    with connect(target) as made:
        made._db.execute("PRAGMA foreign_keys = OFF")
        made._db.execute("BEGIN IMMEDIATE")
        _add_missing(made._db)
        aside += _drop_unreadable(made)
        aside += _drop_orphans(made._db)
        made._db.execute("COMMIT")
        made._db.execute("PRAGMA foreign_keys = ON")
        if wrong := made.integrity():
            raise StoreError(
                f"What could be read of {database} makes no sound database ({wrong[0]}). The file is as it was."
            )
        made._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return aside


# ----------------------------------------------------------------------------------------------------------- reading


def _open_source(source: Path, database: Path, report: SalvageReport) -> sqlite3.Connection:
    """A connection to the working copy, whose table of contents can be read. Raises ``StoreError``."""
    db = _readable(source)
    if db is None:
        # A database that was made by this schema at once has its tables where a new one has them.
        blank = source.with_name("blank.db")
        sources = [] if keys.encrypted(source) else [*reversed(connection.daily_copies(database)), blank]
        for copy in sources:
            if copy == blank:
                open_database(blank).close()
            if transplant(source, copy) and (db := _readable(source)):
                report.contents_from = copy if copy != blank else None
                break
    if db is None:
        newest = connection.newest_copy(database)
        way = f"Put the copy {newest} in its place" if newest else "Put a backup in its place"
        raise StoreError(
            f"The table of contents of {database} is damaged, so that no row can be found. {way}; keep the file."
        )
    db.text_factory = lambda data: data.decode("utf-8", "replace")
    return db


@contextmanager
def _newest_copy(database: Path, report: SalvageReport) -> Iterator[sqlite3.Connection | None]:
    """The newest copy that can be opened; None where there is none."""
    for path in reversed(connection.daily_copies(database)):
        try:
            db = connection.open_copy(path, database)
        except DAMAGED:
            continue
        report.copy = path
        with closing(db):
            yield db
        return
    yield None


def _readable(source: Path) -> sqlite3.Connection | None:
    try:
        db, found = connection.connect(source, isolation_level=None)
    except DAMAGED:
        return None
    try:
        rows = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        if 0 < found <= newest() and {"turns", "feedback"} <= {row[0] for row in rows}:
            return db
    except DAMAGED:
        pass
    db.close()
    return None


def _tables(db: sqlite3.Connection) -> list[str]:
    rows = db.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    return [row[0] for row in rows if row[0] not in DERIVED]


def _add_missing(db: sqlite3.Connection) -> None:
    """What the rest depends on: a session for each turn, version 0, and one live version."""
    db.execute(
        "INSERT INTO sessions (id, name, agent, created_at)"
        " SELECT session_id, 'salvaged-' || session_id, max(agent), min(created_at) FROM turns"
        " WHERE session_id NOT IN (SELECT id FROM sessions) GROUP BY session_id"
    )
    if not db.execute("SELECT 1 FROM versions WHERE status = 'live'").fetchone():
        db.execute("UPDATE versions SET status = 'live' WHERE number = 0")
    for table in ("turns", "feedback", "runs"):
        top = db.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]
        changed = db.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (top, table))
        if changed.rowcount == 0:
            db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, top))


def _drop_unreadable(store: Store) -> list[JsonObject]:
    """Take out rows whose content cannot be read: one of them would stop every list."""
    aside = []
    for table, key, number in unreadable(store):
        aside += _take_out(store._db, table, f"{key} = ?", (number,), "its content is damaged")
    return aside


def unreadable(store: Store) -> Iterator[tuple[str, str, int]]:
    """Table, key and number of rows whose content is no longer what it was (text that is no JSON, say)."""
    checks = (
        ("turns", "id", store.turn),
        ("feedback", "id", lambda number: store.feedback(ids=[number], active=False)),
        ("runs", "id", store.run),
        ("versions", "number", store.version),
    )
    for table, key, read in checks:
        for (number,) in store._db.execute(f"SELECT {key} FROM {table}").fetchall():
            try:
                read(number)
            except (ClawbackError, *DAMAGED):
                if (table, number) != ("versions", 0):
                    yield table, key, number


def _drop_orphans(db: sqlite3.Connection) -> list[JsonObject]:
    """Take out rows that point to one that is gone, or let them point nowhere where they may; until none is left."""
    aside: list[JsonObject] = []
    while True:
        changed = False
        for table in _tables(db):
            for link in db.execute(f'PRAGMA foreign_key_list("{table}")').fetchall():
                parent, column, other = link[2], link[3], link[4] or _key_of(db, link[2])
                where = f'"{column}" IS NOT NULL AND "{column}" NOT IN (SELECT "{other}" FROM "{parent}")'
                if not db.execute(f'SELECT 1 FROM "{table}" WHERE {where} LIMIT 1').fetchone():
                    continue
                changed = True
                if not _is_required(db, table, column):
                    db.execute(f'UPDATE "{table}" SET "{column}" = NULL WHERE {where}')
                else:
                    aside += _take_out(
                        db, table, where, (), f"the row of {parent} that it belongs to is gone"
                    )
        if not changed:
            return aside


def _key_of(db: sqlite3.Connection, table: str) -> str:
    return str(next(row[1] for row in db.execute(f'PRAGMA table_info("{table}")').fetchall() if row[5]))


def _take_out(
    db: sqlite3.Connection, table: str, where: str, values: Sequence[object], why: str
) -> list[JsonObject]:
    """Delete rows, and before them what belongs to them (triggers count by looking at both); they come back for the file of leftovers."""
    aside = []
    for child in _tables(db):
        for link in db.execute(f'PRAGMA foreign_key_list("{child}")').fetchall():
            if link[2] == table and child != table and _is_required(db, child, link[3]):
                key = link[4] or _key_of(db, table)
                inner = f'"{link[3]}" IN (SELECT "{key}" FROM "{table}" WHERE {where})'
                aside += _take_out(
                    db, child, inner, values, f"the row of {table} that it belongs to cannot be kept: {why}"
                )
    cursor = db.execute(f'SELECT * FROM "{table}" WHERE {where}', tuple(values))
    names = [column[0] for column in cursor.description]
    rows = [dict(zip(names, map(_plain, row), strict=True)) for row in cursor.fetchall()]
    db.execute(f'DELETE FROM "{table}" WHERE {where}', tuple(values))
    return [*aside, *({"table": table, "why": why, "row": row} for row in rows)]


def _is_required(db: sqlite3.Connection, table: str, column: str) -> bool:
    """Whether a row cannot do without that column."""
    row = next(row for row in db.execute(f'PRAGMA table_info("{table}")').fetchall() if row[1] == column)
    return bool(row[3] or row[5])


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value


def _write_lines(path: Path, rows: Sequence[JsonObject]) -> None:
    from clawback.files import replace

    replace(path, "".join(json.dumps(row) + "\n" for row in rows).encode(), mode=0o600)


def _swap(database: Path, target: Path, damaged: Path) -> None:
    """The new file in the place of the old one, which stays. Its log was read already and goes with it."""
    from clawback.files import sync

    target.chmod(0o600)
    try:
        os.link(database, damaged)
    except OSError:  # a file system without links
        shutil.copy2(database, damaged)
    for suffix in ("-wal", "-shm"):
        if (log := database.with_name(database.name + suffix)).exists():
            log.replace(damaged.with_name(damaged.name + suffix))
    target.replace(database)
    sync(database.parent)
