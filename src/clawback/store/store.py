"""The whole store: what capture writes (``turn_store``), and the tables of runs, episodes, rules, raters and deletion."""

from __future__ import annotations

from pathlib import Path

from clawback.store.deletion import Forgetting
from clawback.store.episodes import EpisodeTable
from clawback.store.invitations import RaterTable
from clawback.store.rule_tables import RuleTable
from clawback.store.run_tables import Runs
from clawback.store.schema import BUSY_SECONDS, open_database
from clawback.store.turn_store import TurnStore


class Store(TurnStore, EpisodeTable, RaterTable, RuleTable, Runs, Forgetting):
    """One connection to the database. A context manager; not for use by two threads at once.

    Each call that writes is one transaction, and has reached the disk when it returns.
    """


def connect(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> Store:
    """Open the database of that path, made or brought up to date where needed.

    Raises ``StoreError`` when it is damaged, newer than this program, or locked for longer than ``busy_seconds``.
    """
    return Store(path, open_database(path, busy_seconds=busy_seconds))
