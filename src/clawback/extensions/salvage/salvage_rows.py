"""Reads the rows of a damaged table around the parts that cannot be read, and writes them into a new file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clawback.store.connection import DAMAGED, sqlite3

BATCH = 200
FURTHEST = 1 << 40
Gap = tuple[int, int]
"""The first and the last row number of a part that cannot be read."""


@dataclass
class SalvageReport:
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


def copy_table(
    old: sqlite3.Connection,
    new: sqlite3.Connection,
    table: str,
    spare: sqlite3.Connection | None,
    report: SalvageReport,
) -> None:
    """All rows of a table that can be read; those of unreadable parts from the copy ``spare``."""
    columns = _common_columns(old, new, table)
    named = ", ".join(f'"{name}"' for name in columns)
    keyed = "WITHOUT ROWID" not in definition(new, table)
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


def definition(db: sqlite3.Connection, table: str) -> str:
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
