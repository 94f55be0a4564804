"""The one key to the news (``feedback.news``): keep what a run brought, or undo it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import release
from clawback.feedback.news import mark_seen, news

if TYPE_CHECKING:
    from clawback.paths import Home
    from clawback.store import Store


def decide(store: Store, home: Home, keep: bool) -> str:
    """Keep the version of the news, or go back to the one before it (drop it, where it waits). What was done, in a sentence."""
    current = news(store)
    if current is None:
        return "There is nothing new to keep or undo."
    if not keep and current.live:
        previous = release.rollback(store, home)
        sentence = (
            f"Version {previous.number} is live again; version {current.version} and all ratings are kept."
        )
    elif not keep:
        store.reject(current.version)
        sentence = f"Version {current.version} was dropped; version {store.live().number} stays live."
    else:
        sentence = (
            f"Version {current.version} stays." if current.live else f"Version {current.version} waits."
        )
    mark_seen(store, current.version)
    return sentence
