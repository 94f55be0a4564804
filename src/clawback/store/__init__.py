"""The store: SQLite, and the only package that contains SQL. All of the loop's state is here, so a restart loses nothing.

Each name is imported when it is first used: an agent's hook needs the ``Journal`` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clawback.store.journal import Journal, open_journal
    from clawback.store.store import Store, connect

__all__ = ["Journal", "Store", "connect", "open_journal"]

_WHERE = {"Journal": "journal", "open_journal": "journal", "Store": "store", "connect": "store"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _WHERE:
        raise AttributeError(f"module 'clawback.store' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"clawback.store.{_WHERE[name]}"), name)
    return value
