"""The home of a command: its folder, made on first use, and its store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback.paths import Home, home

if TYPE_CHECKING:
    from clawback.store import Store, TurnStore


def open_store() -> Store:
    """The store of this home (made on first use), with the events that waited for it."""
    from clawback import store

    return store.connect(_drained().database)


def open_turns() -> TurnStore:
    """The same of turns and feedback: a rating needs no more."""
    from clawback.store.turn_store import open_turns

    return open_turns(_drained().database)


def _drained() -> Home:
    """The home, after the events that waited for its database have been stored."""
    here = current_home()
    if here.spool.is_dir():
        from clawback.capture import spool

        spool.drain_if_waiting(here)
    return here


def current_home() -> Home:
    """The home folder, made on first use and readable by its owner alone."""
    here = home()
    here.create()
    return here
