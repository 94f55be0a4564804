"""Emoji reactions as ratings: a reaction rates the answer that the message shows; removing it takes the rating back."""

from __future__ import annotations

from clawback.capture.events import ReactionEvent
from clawback.capture.ingest import of_message, train_if_due
from clawback.paths import Home
from clawback.records import Feedback
from clawback.store import TurnStore


def take(here: Home, store: TurnStore, agent: str, event: ReactionEvent) -> None:
    """The rating that it stands for: stored, changed, taken back, or kept until its message is known."""
    name = f"{agent}:reaction:{event.id or f'{event.message}:{event.by}:{event.value}'}"
    with store.together():
        if not event.at:
            rated = _react(store, agent, event, name)
        else:
            rated = _react_in_order(store, agent, event, name)
    if rated:
        train_if_due(here, store)


def _react_in_order(store: TurnStore, agent: str, event: ReactionEvent, name: str) -> bool:
    at, given = store.get(name, (0.0, ""))
    if event.at <= at:
        return False
    rated = False
    if bool(given) != bool(event.value):
        # Given, taken away and given again is three events: each rating has a name of its own.
        event_id = given or f"{name}:{event.at:.6f}"
        rated = _react(store, agent, event, event_id)
        given = event_id if event.value else ""
    store.set(name, (event.at, given))
    return rated


def _react(store: TurnStore, agent: str, event: ReactionEvent, event_id: str) -> bool:
    """Whether there is something new to learn from."""
    if event.value == 0:
        store.undo_event(event_id)
        return False
    source = f"{agent}:{event.by}" if event.by else agent
    place = of_message(agent, event.message)
    turn = store.at_post(place)
    given = Feedback(turn or 0, "rating", float(event.value), source=source, event_id=event_id)
    if turn is None:
        store.put_early(place, given)
    else:
        store.add_feedback(given)
    return turn is not None
