"""The store: SQLite, and the only package that contains SQL. All of the loop's state is here, so a restart loses nothing."""

from __future__ import annotations

from pathlib import Path

from clawback.store.base import Base
from clawback.store.episodes import EpisodeTable
from clawback.store.forgetting import Forgetting
from clawback.store.posts import Posts
from clawback.store.prompts import PromptTable
from clawback.store.raters import RaterTable
from clawback.store.receipts import Receipts
from clawback.store.runs import Runs
from clawback.store.schema import open_database
from clawback.store.sessions import Sessions
from clawback.store.turns import Turns
from clawback.store.usage import UsageTable
from clawback.store.versions import Versions

__all__ = ["Store", "connect"]


class Store(
    Turns,
    PromptTable,
    Sessions,
    Posts,
    EpisodeTable,
    RaterTable,
    Receipts,
    Runs,
    Versions,
    UsageTable,
    Forgetting,
    Base,
):
    """One connection to the database. A context manager; not for use by two threads at once.

    Each call that writes is one transaction, and has reached the disk when it returns.
    """


def connect(path: Path, *, busy_seconds: float = 10.0) -> Store:
    """Open the database of that path, made or brought up to date where needed.

    Raises ``StoreError`` when it is damaged, newer than this program, or locked for longer than ``busy_seconds``.
    """
    return Store(path, open_database(path, busy_seconds=busy_seconds))
