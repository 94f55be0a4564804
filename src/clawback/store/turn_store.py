"""The part of the store that capture and a rating need: turns, prompts, sessions, feedback, and which version is live.

An agent's hook opens this much and no more: half of the store's tables are about runs, episodes, rules, raters and deletion.
"""

from __future__ import annotations

from pathlib import Path

from clawback.store.pending import PromptTable
from clawback.store.schema import BUSY_SECONDS, open_database
from clawback.store.sessions import Sessions
from clawback.store.turns import Turns
from clawback.store.version_tables import Versions


class TurnStore(Turns, PromptTable, Sessions, Versions):
    """One connection to the database. A context manager; not for use by two threads at once.

    Each call that writes is one transaction, and has reached the disk when it returns.
    """


def open_turns(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> TurnStore:
    """As ``store.connect``."""
    return TurnStore(path, open_database(path, busy_seconds=busy_seconds))
