"""An exchange that our own server heard, read and ready to be stored: now, or later where the database is locked.

What it says is known without the database. Which conversation it continues is looked up when it is stored.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from clawback import pictures
from clawback.capture import conversation_threads
from clawback.records import JsonObject, Message, Turn
from clawback.thinking import split_thinking

if TYPE_CHECKING:
    from clawback.config import PrivacySection
    from clawback.store import Store

_MEDIA = {"input_audio": "[audio]", "file": "[file]", "video_url": "[video]"}


@dataclass(frozen=True, slots=True)
class ServedTurn:
    """``turn.messages`` is the request as it came; what is stored of it is decided when it is stored."""

    turn: Turn
    named: str
    """The session that the client names; "" for none. ``turn.session`` is one that the server knows already."""
    places: tuple[tuple[int, bytes], ...]
    """The conversation's place after each response in the request: (index of the response, place)."""
    ends: tuple[bytes, ...]
    """The conversation's places after this response: a client sends an answer back with the thoughts in it, or without."""
    finished: bool = False
    """Whether the session ends with it."""


def served_turn(turn: Turn, headers: Mapping[str, str], body: Mapping[str, object]) -> ServedTurn:
    """A turn with the places of its conversation, which are found before anything is taken out of its words."""
    texts = dict.fromkeys((split_thinking(turn.response)[1], turn.response))
    known, ends = conversation_threads.places_and_ends(turn.messages, texts, turn.calls)
    return ServedTurn(
        turn,
        conversation_threads.session_of(headers, body),
        tuple(known),
        ends,
        headers.get("x-session-done", "").strip().lower() in ("1", "true", "yes"),
    )


def store_turn(
    store: Store, served: ServedTurn, privacy: PrivacySection, seen_at: float | None = None
) -> int:
    """Store it in its conversation, as what came back after the turn before. Returns its number."""
    from clawback import feedback

    turn, messages = served.turn, served.turn.messages
    session, before = _placed(store, messages, served.places, served.named)
    session = turn.session or session
    stored = replace(turn, session=session, messages=stored_messages(messages, privacy))
    number = store.insert_turn(stored, seen_at=seen_at, places=served.ends)
    if before and turn.kind == "main":
        store.put_next_state(before[0], stored_messages(before[1], privacy))
        if store.turn(before[0]).vouched:  # else anybody could make guesses by asking twice
            feedback.notice(store, before[0], conversation_threads.human(before[1]))
    if served.finished:
        store.finish_session(session)
    return number


def placed(
    store: Store, messages: Sequence[Message], headers: Mapping[str, str], body: Mapping[str, object]
) -> tuple[str, tuple[int, list[Message]] | None]:
    """The session that is named or continued (a new one otherwise), and the previous turn with what came back to it."""
    known = tuple(conversation_threads.places(messages))
    return _placed(store, messages, known, conversation_threads.session_of(headers, body))


def _placed(
    store: Store, messages: Sequence[Message], known: Sequence[tuple[int, bytes]], named: str
) -> tuple[str, tuple[int, list[Message]] | None]:
    found = store.at_place([place for _, place in known])
    if found is None:
        return named or uuid.uuid4().hex, None
    index, turn, session = found
    return named or session, (turn, conversation_threads.came_back(messages, known[index][0]))


def stored_messages(messages: Sequence[Message], privacy: PrivacySection) -> tuple[Message, ...]:
    """As they are stored: without sounds and what OpenClaw added, with the newest pictures, and no larger than is asked for (the newest are kept)."""
    spoken = [
        {**m, "content": _without_media(m.get("content"))} for m in conversation_threads.spoken(messages)
    ]
    seen = pictures.limited(spoken, privacy.max_picture_bytes, privacy.max_turn_picture_bytes)
    room = privacy.max_turn_bytes
    kept: list[Message] = []
    for message in reversed(seen):
        room -= len(str(pictures.marked([message])[0]))
        if room < 0 and kept:
            break
        kept.append(message)
    return tuple(reversed(kept))


def _without_media(content: object) -> object:
    if not isinstance(content, list):
        return content
    return [
        {"type": "text", "text": _MEDIA[str(b["type"])]}
        if isinstance(b, dict) and str(b.get("type")) in _MEDIA
        else b
        for b in content
    ]


# ------------------------------------------------------------------------------------------------- as a file's content


def to_json(served: ServedTurn, privacy: PrivacySection) -> JsonObject:
    """Its fields as they may lie on a disk: without secrets. Tokens sampled for words that were replaced are left out."""
    turn = asdict(served.turn)
    clean = {name: _clean(turn[name], privacy) for name in ("messages", "response", "thinking", "calls")}
    if any(clean[name] != _listed(turn[name]) for name in ("response", "thinking", "calls")):
        clean |= {"response_ids": None, "response_logprobs": None}
    return {
        "turn": turn | clean,
        "named": _clean(served.named, privacy),
        "places": [[index, place.hex()] for index, place in served.places],
        "ends": [place.hex() for place in served.ends],
        "finished": served.finished,
    }


def from_json(held: Mapping[str, Any]) -> ServedTurn:
    """The way back. Raises ``LookupError``, ``TypeError``, ``ValueError`` or ``AttributeError`` for anything else."""
    names = {field.name for field in fields(Turn)}
    values: JsonObject = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in held["turn"].items()
        if name in names
    }
    return ServedTurn(
        Turn(**values),
        str(held["named"]),
        tuple((int(index), bytes.fromhex(place)) for index, place in held["places"]),
        tuple(bytes.fromhex(place) for place in held["ends"]),
        bool(held["finished"]),
    )


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _clean(value: object, privacy: PrivacySection) -> object:
    """Without secrets and what the person's own rules find; pictures stay as they are."""
    from clawback.redact import by_rules, redact

    if isinstance(value, str):
        return by_rules(privacy.rules, redact(value) if privacy.redact else value)
    if isinstance(value, Mapping):
        if value.get("type") == "image_url":
            return dict(value)
        return {key: _clean(inner, privacy) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(inner, privacy) for inner in value]
    return value
