"""Implicit feedback: asking the same question again counts as a sign that the answer did not help.

Silence is no sign: neither a conversation that ends nor a turn that nobody rated. Anything that has to be
understood (a correction, thanks) is left to the judge.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from clawback.records import Feedback, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clawback.records import Message
    from clawback.store import TurnStore

SAME = 0.85
"""Share of words in common, in order, from which on two questions are one."""
FEWEST = 3
"""Words under which a message is too short to tell ("go on", "yes please")."""
MOST = 400
"""Words that are compared: a pasted file is no question."""


def notice(store: TurnStore, turn_id: int, came: Sequence[Message]) -> Feedback | None:
    """Keep what the messages that came back after a turn say of it without words; None for nothing.

    Asking again counts −1, at an implicit signal's small weight, once a turn.
    """
    said = next((text_of(m.get("content")) for m in came if m.get("role") == "user"), "")
    turn = store.turn(turn_id)
    if turn.kind != "main" or not asked_again(turn.prompt, said):
        return None
    return store.add_feedback(
        Feedback(turn_id, "implicit", -1.0, source="asked-again", event_id=f"implicit:asked-again:{turn_id}")
    )


def asked_again(earlier: str, now: str) -> bool:
    """Is it the same question, with a word more or less? ("How do I boil rice" is not "how do I boil eggs".)"""
    first, second = re.findall(r"\w+", earlier.lower()), re.findall(r"\w+", now.lower())
    if min(len(first), len(second)) < FEWEST or max(len(first), len(second)) > MOST:
        return False
    import difflib

    return difflib.SequenceMatcher(None, first, second, autojunk=False).ratio() >= SAME


LONGEST_CORRECTION = 30
"""Words of a message from which on a leading "no" is the beginning of a story."""
_NO = frozenset(
    [
        "no",
        "nope",
        "nah",
        "wrong",
        "incorrect",
        "nein",
        "falsch",
        "non",
        "faux",
        "nee",
        "não",
        "nao",
        "nie",
        "nej",
        "нет",
        "неправильно",
        "いいえ",
        "不",
        "不对",
        "不是",
    ]
)


def corrected(message: str) -> bool:
    """Whether a short message begins with a no: "no, shorter".

    >>> corrected("No, shorter please."), corrected("No problem, thanks!"), corrected("Now in French.")
    (True, False, False)
    """
    words = re.findall(r"\w+", message.lower())
    if not 2 <= len(words) <= LONGEST_CORRECTION or words[0] not in _NO:
        return False
    # "No problem" and "no idea" go on; a correction pauses after the no.
    return words[0] not in ("no", "não", "nao") or bool(re.match(r"\s*\w+\s*[,.;:!…—–-]", message))
