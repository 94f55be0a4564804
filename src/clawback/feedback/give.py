"""Functions to give feedback on a turn. Each stores one row before it returns.

An ``event_id`` identifies the outside event behind it: the same event twice (a hook that fires again) counts
once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from clawback.errors import NotFound, UsageError
from clawback.records import Feedback
from clawback.scales import TEN, value_of

if TYPE_CHECKING:
    from clawback.store import TurnStore


def rate(
    store: TurnStore, turn_id: int, value: float, *, note: str = "", source: str = "cli", event_id: str = ""
) -> Feedback:
    """Good (+1), bad (-1), or anything between. Raises ``NotFound``, ``UsageError``."""
    return store.add_feedback(
        Feedback(turn_id, "rating", float(value), note, source=source, event_id=event_id)
    )


def score(
    store: TurnStore, turn_id: int, number: float, *, note: str = "", source: str = "cli", event_id: str = ""
) -> Feedback:
    """A number from 1 (awful) to 10 (perfect); ``scored`` makes one of another scale. It is kept as given, and counts by what is usual for this person."""
    return store.add_feedback(
        replace(scored(number), turn_id=turn_id, text=note, source=source, event_id=event_id)
    )


def scored(number: float, scale: str = TEN) -> Feedback:
    """A score of a turn that is not named yet. Raises ``UsageError`` for one outside its scale."""
    return Feedback(0, "rating", value_of(number, scale), score=float(number), scale=scale)


def prefer(
    store: TurnStore, better: int, worse: int, *, note: str = "", source: str = "cli", event_id: str = ""
) -> Feedback:
    """One turn is better than another."""
    if better == worse:
        raise UsageError("A turn cannot be better than itself: name two turns.")
    return store.add_feedback(
        Feedback(better, "preference", 1.0, note, other_turn_id=worse, source=source, event_id=event_id)
    )


def tie(store: TurnStore, first: int, second: int, *, source: str = "cli", event_id: str = "") -> Feedback:
    """Somebody compared two turns, and neither is better. It adds nothing to the reward of either."""
    if first == second:
        raise UsageError("A turn cannot be compared with itself: name two turns.")
    return store.add_feedback(
        Feedback(first, "preference", 0.0, other_turn_id=second, source=source, event_id=event_id)
    )


def edit(store: TurnStore, turn_id: int, text: str, *, source: str = "cli", event_id: str = "") -> Feedback:
    """How the response should have read: the text is liked, what it replaces was not quite right."""
    if not text.strip():
        raise UsageError(
            "The corrected response is empty. To say that a response is bad, use `clawback bad`."
        )
    if text == store.turn(turn_id).response:
        raise UsageError(
            "That is what the response says already. To say that it is good, use `clawback good`."
        )
    return store.add_feedback(Feedback(turn_id, "edit", 0.0, text, source=source, event_id=event_id))


def critique(
    store: TurnStore, turn_id: int, text: str, *, source: str = "cli", event_id: str = ""
) -> Feedback:
    """What was wrong, in words. Kept for algorithms that read; it adds nothing to the reward by itself."""
    if not text.strip():
        raise UsageError("The remark is empty: say in words what is good or bad about the answer.")
    return store.add_feedback(Feedback(turn_id, "critique", 0.0, text, source=source, event_id=event_id))


def undo(store: TurnStore, turn_id: int | None = None, *, person: str | None = None) -> Feedback:
    """Take the newest feedback back (of one turn, and of one person, where named), wherever it was said; the word before it counts again.

    Raises ``NotFound`` when there is none.
    """
    last = store.last_feedback(turn_id, person)
    if last is None:
        where = "" if turn_id is None else f" on turn {turn_id}"
        raise NotFound(f"There is no feedback{where} to take back.")
    return store.undo_feedback(last.id)
