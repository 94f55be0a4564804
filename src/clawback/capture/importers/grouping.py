"""Records of one file by the conversation that they are of, however many there are: they wait on the disk, and one conversation at a time is in memory."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

Record = Mapping[str, Any]


def by_conversation(records: Iterable[Record], name_of: Callable[[Record], str]) -> Iterator[list[Record]]:
    """The records of each conversation in their order, conversations in that of their first record."""
    with closing(
        sqlite3.connect("")
    ) as db:  # a database without a name is a file that is gone when it is closed
        db.execute("CREATE TABLE records (number INTEGER PRIMARY KEY, conversation TEXT, record BLOB)")
        rows = ((name_of(record), pickle.dumps(dict(record))) for record in records)
        db.executemany("INSERT INTO records (conversation, record) VALUES (CAST(? AS TEXT), ?)", rows)
        db.execute("CREATE INDEX by_conversation ON records (conversation, number)")
        names = db.execute("SELECT conversation FROM records GROUP BY conversation ORDER BY min(number)")
        for (name,) in names:
            listed = db.execute("SELECT record FROM records WHERE conversation = ? ORDER BY number", (name,))
            yield [pickle.loads(record) for (record,) in listed]  # noqa: S301 — written above
