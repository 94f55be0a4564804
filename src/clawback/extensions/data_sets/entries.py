"""What every reader gives: entries, each a few turns with what is thought of them, stored together or refused together."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, cast, get_args

from clawback import pictures
from clawback.endings import ending_of
from clawback.errors import ClawbackError
from clawback.records import Ending, Feedback, JsonObject, Message, Turn, text_of
from clawback.redact import redact_all
from clawback.store.picture_table import put_back, taken_out

Record = Mapping[str, Any]
Consent = Literal["", "yes", "no"]
KEPT, ASKED_AGAIN, CORRECTED = "kept-branch", "asked-again", "corrected"
"""Sources of guesses: the branch that a person went on with, the same question once more, a message that begins with a no."""

MOST_NAMES = 1_000
"""Different names (of people, of fields) that are counted one by one; all further ones are counted as ``OTHERS``."""
OTHERS = "others"


class BoundedCounter(Counter[str]):
    """Counts names in bounded memory, however many a file has."""

    def __setitem__(self, name: str, count: int) -> None:
        if name not in self and len(self) >= MOST_NAMES:
            name, count = OTHERS, count + self[OTHERS]
        super().__setitem__(name, count)


class BadLine(ClawbackError):
    """A record that cannot be stored; the message says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Turns without numbers yet: in ``feedback`` a ``turn_id`` is an index into ``turns``.

    ``links`` are about turns of other entries: (event id of that turn, feedback). Of a preference it is the worse turn, and ``turn_id``
    the index of the better one; of all other kinds it is the turn itself.
    """

    turns: tuple[Turn, ...] = ()
    feedback: tuple[Feedback, ...] = ()
    links: tuple[tuple[str, Feedback], ...] = ()
    prompts: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    """Of each turn of an agent's session the agent's names for its prompt, and the prompt's texts: hooks may have captured it already."""
    regenerations: tuple[tuple[int, int], ...] = ()
    """(characters of the answer that was kept, characters of the other) of each answer that was asked for once more."""


@dataclass(slots=True)
class Columns:
    """What all records of a file say together: the scale of each column of numbers, and which fields nobody reads."""

    scale_of: dict[str, str] = field(default_factory=dict)
    unclear: dict[str, str] = field(default_factory=dict)
    """Column → why its scale is not clear, with what to do."""
    notes: list[str] = field(default_factory=list)
    rating_field: str = ""
    """The column that holds ratings, where no field says so by its name."""
    values: dict[str, frozenset[Any]] = field(default_factory=dict)
    """Column → its different values, of columns that have few."""


@dataclass(slots=True)
class FileReading:
    """How a file is read, and what of it was not understood."""

    columns: Columns = field(default_factory=Columns)
    person: str = ""
    """Whose opinions these are where a record names nobody; "" for the owner."""
    rating_field: str = ""
    mine: bool = False
    """The opinions of a set that strangers made count as the owner's."""
    liked: bool = False
    """Answers of which the file says nothing are ones that the person likes."""
    unread: Counter[str] = field(default_factory=BoundedCounter)

    def author(self, stranger: str) -> str:
        """Whose opinion it is in a set that strangers made."""
        return self.person or ("" if self.mine else f"set:{stranger}")


# ------------------------------------------------------------------------------------------------- values of records


def text(data: Mapping[str, object], name: str) -> str:
    """A field that holds text, "" where it is missing. Raises ``BadLine``."""
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadLine(f"`{name}` is not text")
    return value


NOTHING = ("", "--", "n/a", "na", "null", "none", "nan")
"""Texts by which programs say that there is no value."""


def is_nothing(value: object) -> bool:
    """Whether a field is empty, in any of the ways in which programs write that."""
    plain = value.strip().lower() if isinstance(value, str) and len(value) < 8 else value
    return value is None or value != value or plain in NOTHING


def number(value: object, name: str) -> float:
    """Raises ``BadLine``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        raise BadLine(f"`{name}` is not a number")
    return float(value)


def moment(stamp: object) -> float:
    """Seconds since 1970 of a timestamp in seconds, milliseconds, microseconds or ISO 8601; 0 for none."""
    if isinstance(stamp, Mapping):  # as MongoDB exports a date
        stamp = stamp.get("$date", stamp.get("$numberLong"))
    if isinstance(stamp, str) and stamp.strip().replace(".", "", 1).isdecimal():
        stamp = float(stamp)
    if isinstance(stamp, (int, float)) and not isinstance(stamp, bool):
        seconds = float(stamp)
        while seconds > 1e11:
            seconds /= 1000
        return seconds if 0 < seconds < 1e11 else 0.0
    try:
        return max(datetime.fromisoformat(str(stamp)).timestamp(), 0.0)
    except (ValueError, OverflowError, OSError):
        return 0.0


def ending(data: Mapping[str, object]) -> Ending:
    """Why the answer ended, by our word or a provider's; "" where the record does not say. Raises ``BadLine``."""
    word = text(data, "ending") or text(data, "finish_reason") or text(data, "stop_reason")
    return cast("Ending", word) if word in get_args(Ending) else ending_of(word) or ""


def messages_of(messages: object) -> tuple[Message, ...]:
    """Messages as they may be stored. Raises ``BadLine``."""
    if not isinstance(messages, (list, tuple)) or not messages:
        raise BadLine("`messages` is not a list of messages")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise BadLine("a message has no `role`")
        if not isinstance(message.get("content"), (str, list, type(None))):
            raise BadLine("the `content` of a message is neither text nor a list of blocks")
    bare, seen = taken_out(messages)  # what is in a picture is no text to look for secrets in
    parts = {index: pictures.part_of(data) for index, data in enumerate(seen)}
    return tuple(put_back([redact_all(m) for m in bare], parts))


def digest(messages: Sequence[Message], response: str, extra: str) -> str:
    """A name for an answer that follows from its content alone."""
    content = json.dumps([messages, response, extra], sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def answer_text(message: Message) -> str:
    """The text of a message, "" where it has none."""
    return text_of(message.get("content")).strip()


def table(value: object) -> JsonObject:
    """An object; {} for anything else."""
    return value if isinstance(value, dict) else {}


def dicts(value: object) -> list[JsonObject]:
    """The objects of a list; [] for anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, (list, tuple)) else []
