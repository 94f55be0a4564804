"""Python's SQLite without the part of it that converts dates, which nothing here stores: that part loads ``datetime``, a millisecond of every hook."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        import _sqlite3 as sqlite3  # the module that `sqlite3` passes on: the same classes
    except ImportError:  # a Python that keeps it elsewhere
        import sqlite3

__all__ = ["sqlite3"]
