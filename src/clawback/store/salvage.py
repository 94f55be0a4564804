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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clawback.errors import ClawbackError, StoreError
from clawback.store import connection, copies, keys
from clawback.store.driver import sqlite3
from clawback.store.schema import DAMAGED, newest, open_database

DERIVED = {"counts", "rating_counts", "rule_counts"}
"""Tables that triggers fill."""
BATCH = 200
FURTHEST = 1 << 40
PAGE_TYPES = {2, 5, 10, 13}
Gap = tuple[int, int]
"""The first and the last row number of a part that cannot be read."""


@dataclass
class Report:
    """``saved``: rows by table; ``damaged_parts``: of how many parts of a table the rows could not be read; ``from_copy``: rows of such parts
    that the newest copy has; ``aside``: readable rows that fit nowhere, in ``leftovers``; ``damaged``: where the old file is."""

    saved: dict[str, int] = field(default_factory=dict)
    damaged_parts: dict[str, int] = field(default_factory=dict)
    from_copy: dict[str, int] = field(default_factory=dict)
    copy: Path | None = None
    aside: int = 0
    leftovers: Path | None = None
    damaged: Path = Path()
    contents_from: Path | None = None
    """The copy that the table of contents was taken from."""


def salvage(database: Path) -> Report:
    """Put a sound database in the place of the damaged one. Nobody else may have it open.

    Raises ``StoreError`` where its table of contents is gone and no copy has it; the file is then as it was.
    """
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    report = Report(damaged=database.with_name(f"{database.name}.damaged-{stamp}"))
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
        kept = [
            counts.get(table)
            for counts in (report.saved, report.from_copy)
            for table in ("turns", "feedback")
        ]
        if report.damaged_parts and not any(kept):
            raise StoreError(
                f"No turn and no rating of {database} can be read. Put a backup in its place; keep the file, which is as it was."
            )
        report.aside = len(aside)
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


def _rebuild(source: Path, target: Path, database: Path, report: Report) -> list[dict[str, Any]]:
    """Fill a new database from the damaged one; the rows that fit nowhere."""
    from clawback.store import connect

    with closing(_open_source(source, database, report)) as old:
        open_database(target).close()
        new, _ = connection.connect(target, isolation_level=None)
        with closing(new), _newest_copy(database, report) as spare:
            new.execute("PRAGMA foreign_keys = OFF")
            new.execute("BEGIN IMMEDIATE")
            new.execute(
                "UPDATE versions SET status = 'retired' WHERE number = 0"
            )  # which one is live comes with the rows
            for table in _tables(new):
                _copy_table(old, new, table, spare, report)
            new.execute("COMMIT")
            new.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    aside: list[dict[str, Any]] = []
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


def _open_source(source: Path, database: Path, report: Report) -> sqlite3.Connection:
    """A connection to the working copy, whose table of contents can be read. Raises ``StoreError``."""
    db = _readable(source)
    if db is None:
        # A database that was made by this schema at once has its tables where a new one has them.
        blank = source.with_name("blank.db")
        sources = [] if keys.encrypted(source) else [*reversed(copies.daily(database)), blank]
        for copy in sources:
            if copy == blank:
                open_database(blank).close()
            if _transplant(source, copy) and (db := _readable(source)):
                report.contents_from = copy if copy != blank else None
                break
    if db is None:
        newest = copies.newest(database)
        way = f"Put the copy {newest} in its place" if newest else "Put a backup in its place"
        raise StoreError(
            f"The table of contents of {database} is damaged, so that no row can be found. {way}; keep the file."
        )
    db.text_factory = lambda data: data.decode("utf-8", "replace")
    return db


@contextmanager
def _newest_copy(database: Path, report: Report) -> Iterator[sqlite3.Connection | None]:
    """The newest copy that can be opened; None where there is none."""
    for path in reversed(copies.daily(database)):
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
        names = {
            row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        }
        if 0 < found <= newest() and {"turns", "feedback"} <= names:
            return db
    except DAMAGED:
        pass
    db.close()
    return None


def _transplant(source: Path, copy: Path) -> bool:
    """Put the pages of a copy's table of contents over the damaged ones: tables keep their first page as long as the schema is the same."""
    good = copy.read_bytes()
    size = int.from_bytes(good[16:18], "big")
    size = 65_536 if size == 1 else size
    pages = _contents_pages(good, size)
    if not pages:
        return False
    with source.open("r+b") as file:
        count = file.seek(0, os.SEEK_END) // size
        for page in pages:
            file.seek((page - 1) * size)
            file.write(good[(page - 1) * size : page * size])
        file.seek(28)
        file.write(count.to_bytes(4, "big"))
        file.seek(92)
        file.write(good[24:28])  # "the size is right", in the header's own words
        file.seek(32)
        file.write(bytes(8))  # no list of free pages: that of the copy is another
    return True


def _contents_pages(data: bytes, size: int) -> list[int]:
    """The pages of ``sqlite_schema``: page 1 and what hangs below it, overflows included. Empty for a file that is none."""
    if not data.startswith(b"SQLite format 3\0") or size < 512:
        return []
    found, waiting = [], [1]
    while waiting:
        page = waiting.pop()
        found.append(page)
        base = (page - 1) * size
        head = base + (100 if page == 1 else 0)
        kind = data[head] if head < len(data) else 0
        if kind not in PAGE_TYPES or len(found) > 1000:
            return []
        cells = int.from_bytes(data[head + 3 : head + 5], "big")
        array = head + (12 if kind == 5 else 8)
        offsets = [int.from_bytes(data[array + 2 * i : array + 2 * i + 2], "big") for i in range(cells)]
        if kind == 5:
            waiting += [int.from_bytes(data[base + at : base + at + 4], "big") for at in offsets]
            waiting.append(int.from_bytes(data[head + 8 : head + 12], "big"))
        else:
            found += [page for at in offsets for page in _overflow(data, size, base + at)]
    return found


def _overflow(data: bytes, size: int, at: int) -> list[int]:
    """The overflow pages of a cell of a table's leaf page."""
    usable = size - data[20]
    length, at = _varint(data, at)
    _, at = _varint(data, at)
    if length <= usable - 35:
        return []
    least = (usable - 12) * 32 // 255 - 23
    local = least + (length - least) % (usable - 4)
    at += local if local <= usable - 35 else least
    pages: list[int] = []
    page = int.from_bytes(data[at : at + 4], "big")
    while page and len(pages) < 1000:
        pages.append(page)
        page = int.from_bytes(data[(page - 1) * size : (page - 1) * size + 4], "big")
    return pages


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(8):
        value = value << 7 | data[at + index] & 0x7F
        if data[at + index] < 0x80:
            return value, at + index + 1
    return value << 8 | data[at + 8], at + 9


def _tables(db: sqlite3.Connection) -> list[str]:
    rows = db.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    return [row[0] for row in rows if row[0] not in DERIVED]


def _copy_table(
    old: sqlite3.Connection,
    new: sqlite3.Connection,
    table: str,
    spare: sqlite3.Connection | None,
    report: Report,
) -> None:
    """All rows of a table that can be read; those of unreadable parts from the copy ``spare``."""
    columns = _common_columns(old, new, table)
    named = ", ".join(f'"{name}"' for name in columns)
    keyed = "WITHOUT ROWID" not in _definition(new, table)
    gaps: list[Gap] = []
    saved = 0
    for rows, gap in _by_number(old, table, named) if keyed else _by_key(old, table, named, new):
        saved += _insert(new, table, columns, rows)
        gaps += [gap] if gap else []
    report.saved[table] = saved
    if not gaps:
        return
    report.damaged_parts[table] = len(gaps)
    if spare is None or not (columns := _common_columns(spare, new, table)):
        return
    named = ", ".join(f'"{name}"' for name in columns)
    restored = 0
    for low, high in gaps:
        where, values = ("WHERE rowid BETWEEN ? AND ?", (low, high)) if keyed else ("", ())
        rows = spare.execute(f'SELECT {named} FROM "{table}" {where}', values).fetchall()
        restored += _insert(new, table, columns, rows)
    report.from_copy[table] = restored


def _common_columns(old: sqlite3.Connection, new: sqlite3.Connection, table: str) -> list[str]:
    """Columns of a table that both have."""
    try:
        have = {row[1] for row in old.execute(f'PRAGMA table_info("{table}")').fetchall()}
    except DAMAGED:
        have = set()
    return [row[1] for row in new.execute(f'PRAGMA table_info("{table}")').fetchall() if row[1] in have]


def _insert(new: sqlite3.Connection, table: str, columns: Sequence[str], rows: Sequence[Any]) -> int:
    """Rows that are not there yet; how many. A row that no database of ours can have is left out."""
    # Not OR REPLACE where triggers count: it would hold for what they insert, too.
    verb = "INSERT OR REPLACE" if table == "versions" else "INSERT"
    named, marks = ", ".join(f'"{name}"' for name in columns), ", ".join("?" * len(columns))
    count = 0
    for row in rows:
        try:
            new.execute(f'{verb} INTO "{table}" ({named}) VALUES ({marks})', tuple(row))
            count += 1
        except sqlite3.IntegrityError:
            continue
    return count


def _definition(db: sqlite3.Connection, table: str) -> str:
    return str(db.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()[0])


def _by_number(db: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[list[Any], Gap | None]]:
    """Rows in the order of their number, around those that cannot be read; with each batch the numbers that were passed over before it."""
    if not columns:
        yield [], (0, FURTHEST)
        return
    sql = f'SELECT rowid, {columns} FROM "{table}" NOT INDEXED WHERE rowid >= ? ORDER BY rowid LIMIT ?'
    at, gap = 0, None

    def read(start: int, limit: int) -> list[Any] | None:
        try:
            return db.execute(sql, (start, limit)).fetchall()
        except DAMAGED:
            return None

    while True:
        rows = read(at, BATCH)
        if rows is None:
            rows = read(at, 1)
        if rows is None:
            start = _next_readable(read, at)
            if start is None:
                break
            gap, at = (at, start - 1), start
            continue
        if rows or gap:
            yield [tuple(row)[1:] for row in rows], gap
        if not rows:
            return
        at, gap = rows[-1][0] + 1, None
    # Nothing further on can be reached from here: from the end, down to there.
    backwards = f'SELECT rowid, {columns} FROM "{table}" NOT INDEXED WHERE rowid >= ? ORDER BY rowid DESC'
    found: list[Any] = []
    first = FURTHEST
    try:
        for row in db.execute(backwards, (at,)):
            first = row[0]
            found.append(tuple(row)[1:])
    except DAMAGED:
        pass
    yield found, (at, first - 1)


def _next_readable(read: Any, at: int) -> int | None:
    """The first number after ``at`` from which rows can be read; None where there is none."""
    step = 1
    while read(at + step, 1) is None:
        step *= 2
        if step > FURTHEST:
            return None
    low, high = at + step // 2, at + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if read(middle, 1) is None else (low, middle)
    return high


def _by_key(
    db: sqlite3.Connection, table: str, columns: str, new: sqlite3.Connection
) -> Iterator[tuple[list[Any], Gap | None]]:
    """Rows of a table without numbers: from its beginning and from its end, up to what cannot be read."""
    if not columns:
        yield [], (0, FURTHEST)
        return
    key = [
        row[1]
        for row in sorted(new.execute(f'PRAGMA table_info("{table}")').fetchall(), key=lambda r: r[5])
        if row[5]
    ]
    for order in ("ASC", "DESC"):
        found: list[Any] = []
        by = ", ".join(f'"{name}" {order}' for name in key)
        try:
            for row in db.execute(f'SELECT {columns} FROM "{table}" ORDER BY {by}'):
                found.append(tuple(row))
        except DAMAGED:
            yield found, (0, FURTHEST) if order == "ASC" else None
            continue
        yield found, None
        return


# ----------------------------------------------------------------------------------------------------------- mending


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
        if (
            db.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (top, table)).rowcount
            == 0
        ):
            db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, top))


def _drop_unreadable(store: Any) -> list[dict[str, Any]]:
    """Take out rows whose content is no longer what it was (text that is no JSON, say): one of them would stop every list."""
    checks = (
        ("turns", "id", store.turn),
        ("feedback", "id", lambda number: store.feedback(ids=[number], active=False)),
        ("runs", "id", store.run),
        ("versions", "number", store.version),
    )
    aside = []
    for table, key, read in checks:
        for (number,) in store._db.execute(f"SELECT {key} FROM {table}").fetchall():
            try:
                read(number)
            except (ClawbackError, *DAMAGED):
                if (table, number) != ("versions", 0):
                    aside += _take_out(store._db, table, f"{key} = ?", (number,), "its content is damaged")
    return aside


def _drop_orphans(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """Take out rows that point to one that is gone, or let them point nowhere where they may; until none is left."""
    aside: list[dict[str, Any]] = []
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
    db: sqlite3.Connection, table: str, where: str, values: Sequence[Any], why: str
) -> list[dict[str, Any]]:
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


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
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
