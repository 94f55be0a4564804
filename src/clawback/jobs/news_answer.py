"""The one key to the news (``feedback.news``): keep what a run brought, or undo it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import release
from clawback.capture import ingest
from clawback.errors import ClawbackError
from clawback.feedback.news import mark_seen, news
from clawback.feedback.provenance import is_owner

if TYPE_CHECKING:
    from clawback.paths import Home
    from clawback.store import Store

SHOWN = "news_shown"
"""The newest version that each source was told of."""
NOT_THE_OWNER = "This decides which version answers, so only the owner is asked. `clawback raters merge SOURCE` says that a sender is you."


def decide(store: Store, home: Home, keep: bool) -> str:
    """Keep the version of the news, or go back to the one before it (drop it, where it waits). What was done, in a sentence."""
    with store.together():  # of two keys that are pressed at once the first counts
        current = news(store)
        if current is None:
            return "There is nothing new to keep or undo."
        mark_seen(store, current.version)
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
    return sentence


def reply(home: Home, source: str, keep: bool, event: str = "") -> str:
    """Execute ``/rl y`` or ``/rl n``; returns what to tell the person. ``event``: its name, which is acted on once."""
    try:
        with ingest.connect(home) as store:
            if event and (previous := store.obeyed(event)) is not None:
                return previous
            if not is_owner(store, source):
                return NOT_THE_OWNER
            sentence = decide(store, home, keep)
            if event:
                store.put_obeyed(event, sentence)
            return sentence
    except (ClawbackError, ingest.Unusable) as error:
        return str(error)


def first_mention(store: Store, source: str) -> str:
    """The news in a sentence, for an owner who was not told of them at this source; "" for nothing new."""
    current = news(store)
    versions: dict[str, int] = store.get(SHOWN, {})
    if current is None or versions.get(source, 0) >= current.version or not is_owner(store, source):
        return ""
    store.set(SHOWN, versions | {source: current.version})
    return current.command_sentence
