"""The store: SQLite, the only package of the core that contains SQL. All of the loop's state is here, so a restart loses nothing.

Each name is imported when it is first used: an agent's hook needs the ``TurnStore`` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clawback.store.store import Store, connect
    from clawback.store.turn_store import TurnStore, open_turns

__all__ = ["Store", "TurnStore", "connect", "open_turns"]

_WHERE = {"TurnStore": "turn_store", "open_turns": "turn_store", "Store": "store", "connect": "store"}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _WHERE:
        raise AttributeError(f"module 'clawback.store' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"clawback.store.{_WHERE[name]}"), name)
    return value
