"""``/rl ab``, ``/rl a``, ``/rl b``, ``/rl same``: the gate's questions, one at a time, where the owner already is.

The questions, their order and their number are those of the inbox (``gate.report.open_questions``). A question shows two answers to one prompt and not
whose they are. An answer to it is a preference like any other, or a tie. Only the owner is asked, and only on a surface of their own: what is shown
are the owner's prompts, and what is said decides which version goes live.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback import config, feedback
from clawback.capture import ingest
from clawback.errors import ClawbackError
from clawback.feedback.provenance import is_owner
from clawback.gate.report import open_questions

if TYPE_CHECKING:
    from clawback.paths import Home
    from clawback.records import Turn
    from clawback.store import Store

SHOWN = "comparisons"
"""Where the store keeps which question is open in which conversation."""
REMEMBERED = 20
"""Conversations in which a question can be open at a time; the oldest is forgotten."""
LONGEST = 4000
"""Characters of a prompt or an answer that are shown in a conversation."""

NOTHING = "Nothing is waiting for a comparison: no new version needs your word."
NOT_THE_OWNER = (
    "This shows the owner's own prompts and decides which version goes live, so only the owner is asked, where they are known to write. "
    "`clawback inbox --rate` in a terminal asks the same; `clawback raters merge SOURCE` says that a sender is you."
)


@dataclass(frozen=True, slots=True)
class Surface:
    """Where a command was given. ``session``: the conversation; ``event_id``: the name of the event, the same if it is brought twice."""

    source: str
    session: str = ""
    event_id: str = ""

    @property
    def conversation(self) -> str:
        return f"{self.source}:{self.session}"


def reply(home: Home, surface: Surface, word: str) -> str:
    """Execute one of the words ``command.COMPARES``; returns what to tell the person. Raises nothing, whatever a person types."""
    try:
        with ingest.connect(home) as store:
            return _replied(home, store, surface, word)
    except (ClawbackError, ingest.Unusable) as error:
        return str(error)


def _replied(home: Home, store: Store, surface: Surface, word: str) -> str:
    event = f"{surface.event_id}:{word}" if surface.event_id else ""
    if event and (previous := store.obeyed(event)) is not None:
        return previous
    if not is_owner(store, surface.source):
        return NOT_THE_OWNER
    settings = config.load(home.config).gate
    text = (
        _next(store, settings, surface) if word == "ab" else _answered(home, store, settings, surface, word)
    )
    if event:
        store.put_obeyed(event, text)
    return text


def _next(store: Store, settings: config.GateSection, surface: Surface, notice: str = "") -> str:
    """The next question, open in this conversation from now on."""
    questions = open_questions(store, settings)
    if not questions:
        _open(store, surface, None)
        return " ".join(filter(None, [notice, NOTHING]))
    first, second = questions[0]
    _open(store, surface, (first.id, second.id))
    parts = [
        f"Which answer do you like better? (at most {len(questions)} such questions; which version wrote which is not said)",
        f"You asked: {_cut(first.prompt)}",
        f"A:\n{_cut(first.response)}",
        f"B:\n{_cut(second.response)}",
        "Say `/rl a`, `/rl b` or `/rl same`.",
    ]
    return "\n\n".join([*([notice] if notice else []), *parts])


def _answered(home: Home, store: Store, settings: config.GateSection, surface: Surface, word: str) -> str:
    """Store the answer to the open question; what was not asked is not answered."""
    numbers = _open_questions(store).get(surface.conversation)
    if numbers is None:
        return _next(store, settings, surface, "No question was open here.")
    pairs = {(first.id, second.id): (first, second) for first, second in open_questions(store, settings)}
    pair = pairs.get((numbers[0], numbers[1]))
    if pair is None:
        return _next(store, settings, surface, "That question is settled meanwhile, or needed no more.")
    _store(store, pair, surface, word)
    _open(store, surface, None)
    noted = "Noted: neither is better." if word == "same" else f"Noted: {word.upper()} is better."
    began = ingest.train_if_due(home, store)
    count = len(open_questions(store, settings))
    more = f"At most {count} more; `/rl ab` shows the next." if count else "That was the last question."
    return " ".join(filter(None, [noted, began, more]))


def _store(store: Store, pair: tuple[Turn, Turn], surface: Surface, word: str) -> None:
    event_id = f"{surface.event_id}:{word}" if surface.event_id else ""
    first, second = pair
    if word == "same":
        feedback.tie(store, first.id, second.id, source=surface.source, event_id=event_id)
        return
    better, worse = (first, second) if word == "a" else (second, first)
    feedback.prefer(store, better.id, worse.id, source=surface.source, event_id=event_id)


def _open_questions(store: Store) -> dict[str, list[int]]:
    questions: dict[str, list[int]] = store.get(SHOWN, {})
    return questions


def _open(store: Store, surface: Surface, numbers: tuple[int, int] | None) -> None:
    """Remember which question is open in a conversation; None: none is."""
    with store.together():
        questions = _open_questions(store)
        questions.pop(surface.conversation, None)
        if numbers is not None:
            questions[surface.conversation] = list(numbers)
        store.set(SHOWN, dict(list(questions.items())[-REMEMBERED:]))


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    more = len(text) - LONGEST
    return f"{text[:LONGEST]} … ({more:,} more characters: `clawback inbox --rate` shows them)"
