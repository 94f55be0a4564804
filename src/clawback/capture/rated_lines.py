"""What one line of a file says: a conversation with its answer, or a pair of answers, and what somebody thinks of them.

    {"prompt" or "messages", "response", "rating" (-1/1, true, "up", 👍) or "score" (with "scale"), "note", "edit", "critique", "person", …}
    {"prompt", "chosen", "rejected"}                       a pair; each side a text, or messages that end with the answer

``messages`` may end with the answer; then ``response`` is not needed. ``feedback`` is a list of all that was said, as `clawback export` writes it; where
it is there it alone counts. The scale of a number is read from the whole column (``scales.of_column``), never from a single line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, cast, get_args

from clawback import pictures, scales
from clawback.endings import ending_of
from clawback.errors import ClawbackError, UsageError
from clawback.records import Ending, Feedback, FeedbackKind, Message, text_of
from clawback.redact import redact, redact_all
from clawback.store.pictures import put_back, taken_out

READ = frozenset(
    [
        "prompt",
        "messages",
        "response",
        "rating",
        "score",
        "scale",
        "note",
        "edit",
        "critique",
        "person",
        "feedback",
        "session",
        "agent",
        "model",
        "event_id",
        "created_at",
        "consent",
        "licence",
        "chosen",
        "rejected",
        "split",
        "source",
        "id",
        "prompt_id",
        "ending",
        "finish_reason",
        "stop_reason",
    ]
)
"""Fields that are read, and those that say nothing of an answer."""
_RATES = re.compile(
    r"rat(e|ing)|scor|stars?\b|thumb|label|helpful|quality|(dis)?likes?\b|votes?|reward|weight|prefer|grade|good|bad\b|correct|annotat|chosen|rejected|feedback",
    re.IGNORECASE,
)
KINDS = get_args(FeedbackKind)


class BadLine(ClawbackError):
    """A line of a file that does not hold a turn; the message says why."""


@dataclass(slots=True)
class Columns:
    """What all lines of a file say together: the scale of each column of numbers, and which fields nobody reads."""

    scale_of: dict[str, str] = field(default_factory=dict)
    unclear: dict[str, str] = field(default_factory=dict)
    """Column → why its scale is not clear, with what to do."""
    notes: list[str] = field(default_factory=list)


def columns(rows: Iterable[Mapping[str, Any]], scale: str = "auto", rating_field: str = "") -> Columns:
    """Read the columns. ``scale``: of numbers whose column does not say it; ``auto`` for none.

    Raises ``UsageError`` for a scale that is none.
    """
    if scale != "auto":
        scales.ends(scale)
    numbers: dict[str, list[float]] = {}
    unread: Counter[str] = Counter()
    for row in rows:
        unread.update(
            str(name) for name in row if name not in READ and name != rating_field and row[name] is not None
        )
        name, value = opinion(row, rating_field)
        if name and isinstance(row.get("feedback"), list):
            continue
        try:
            number = _plain_number(value)
        except BadLine:
            continue  # named when the line is imported
        if name and number is not None and not row.get("scale"):
            numbers.setdefault(name, []).append(number)
    found = Columns()
    for name, values in numbers.items():
        _read_scale(found, name, values, scale)
    found.notes += _named(unread)
    return found


def _read_scale(found: Columns, name: str, values: list[float], scale: str) -> None:
    signed = name == "rating"
    try:
        clear = scales.of_column(values, signed=signed)
        if clear == "0-100" and median(values) <= 10:
            raise UsageError("most scores are small, and some are over 10: give `--scale LOW-HIGH`")
    except UsageError as error:
        if scale == "auto":
            found.unclear[name] = str(error)
            found.notes.append(f"`{name}` was not read: {error}. Those lines were not imported.")
            return
        clear = scale
    if scale != "auto" and not (signed and clear == "-1-1"):
        clear = scale
    found.scale_of[name] = clear
    if not (signed and clear == "-1-1"):
        low, high = scales.ends(clear)
        found.notes.append(
            f"`{name}` is read as a score from {low:g} to {high:g} (`--scale` says otherwise)."
        )


def _named(unread: Counter[str]) -> list[str]:
    rating = sorted(name for name in unread if _RATES.search(name))
    notes = [
        f"`{name}` looks like a rating and was not read ({unread[name]} lines): `--rating-field {name}` reads it."
        for name in rating[:10]
    ]
    others = sorted(unread.keys() - set(rating))
    return notes + ([f"Not read: {', '.join(f'`{name}`' for name in others[:20])}."] if others else [])


def opinion(row: Mapping[str, Any], rating_field: str = "") -> tuple[str, Any]:
    """The field that says how good the answer is, and what it holds; ("", None) where none does."""
    for name in (rating_field, "rating", "score"):
        if name and row.get(name) is not None:
            # An exported rating has both, and then the score is what was given.
            both = name == "rating" and row.get("score") is not None and row.get("scale")
            return ("score", row["score"]) if both else (name, row[name])
    return "", None


def _plain_number(value: Any) -> float | None:
    if isinstance(value, str):
        found = None if scales.sign_of(value) is not None else _typed(value)
        says_scale = any(c.isalpha() or c in "/%★⭐" for c in value)
        return found[0] if found and (not found[1] or not says_scale) else None
    if (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and value == value
        and abs(value) < 1e9
    ):
        return float(value)
    return None


def _typed(text: str) -> tuple[float, str] | None:
    try:
        return float(text), ""
    except ValueError:
        pass
    try:
        return scales.score_in(text)
    except UsageError as error:
        raise BadLine(f"{text!r}: {error}") from error


# -------------------------------------------------------------------------------------------------------- a line


def conversation(data: Mapping[str, Any]) -> tuple[tuple[Message, ...], str]:
    """The messages of a line and the answer to them. Raises ``BadLine``."""
    messages, response = data.get("messages"), data.get("response")
    if messages is None:
        prompt = data.get("prompt")
        if isinstance(prompt, list):
            messages = prompt
        elif not isinstance(prompt, str) or not prompt.strip():
            raise BadLine("`prompt` or `messages` is missing")
        else:
            messages = [{"role": "user", "content": prompt}]
    checked = messages_of(messages)
    if len(checked) > 1 and checked[-1].get("role") == "assistant":
        answer = text_of(checked[-1].get("content"))
        if response is None or response == answer:
            response, checked = answer, checked[:-1]
    if not isinstance(response, str) or not response.strip():
        raise BadLine("`response` is missing")
    return checked, redact(response)


def messages_of(messages: Any) -> tuple[Message, ...]:
    """Messages as they may be stored. Raises ``BadLine``."""
    if not isinstance(messages, list) or not messages:
        raise BadLine("`messages` is not a list of messages")
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadLine("a message has no `role`")
        if not isinstance(message.get("content"), (str, list, type(None))):
            raise BadLine("the `content` of a message is neither text nor a list of blocks")
    bare, seen = taken_out(messages)  # what is in a picture is no text to look for secrets in
    parts = {number: pictures.part_of(data) for number, data in enumerate(seen)}
    return tuple(put_back([redact_all(m) for m in bare], parts))


def ending(data: Mapping[str, Any]) -> Ending:
    """Why the answer ended, by our word or a provider's; "" where the line does not say. Raises ``BadLine``."""
    word = text(data, "ending") or text(data, "finish_reason") or text(data, "stop_reason")
    return cast("Ending", word) if word in get_args(Ending) else ending_of(word) or ""


def pair(data: Mapping[str, Any]) -> tuple[tuple[Message, ...], str, str] | None:
    """The conversation, the better answer and the worse one of a line that holds a pair. Raises ``BadLine``."""
    if "chosen" not in data and "rejected" not in data:
        return None
    sides = []
    for name in ("chosen", "rejected"):
        side = data.get(name)
        if isinstance(side, list):
            start = data.get("prompt") if isinstance(data.get("prompt"), list) else None
            whole = side if start is None or side[: len(start)] == start else [*start, *side]
            if start is None and isinstance(data.get("prompt"), str) and len(side) == 1:
                whole = [{"role": "user", "content": data["prompt"]}, *side]
            sides.append(conversation({"messages": whole}))
        else:
            sides.append(conversation({**data, "response": side}))
    (messages, better), (other, worse) = sides
    if messages != other:
        raise BadLine("`chosen` and `rejected` answer different conversations")
    if better == worse:
        raise BadLine("`chosen` and `rejected` are the same")
    return messages, better, worse


def feedback(
    data: Mapping[str, Any], read: Columns, person: str = "", rating_field: str = ""
) -> Iterator[Feedback]:
    """What a line says of its answer; ``turn_id`` is 0. Raises ``BadLine``.

    ``person``: whose opinion it is where the line names nobody.
    """
    who = text(data, "person") or person
    if isinstance(data.get("feedback"), list):
        yield from (_entry(one) for one in data["feedback"] if not _over(one))
        return
    name, value = opinion(data, rating_field)
    if name:
        yield _rating(data, name, value, read, text(data, "note"), who)
    elif note := text(data, "note"):
        yield Feedback(0, "critique", 0.0, note, person=who)
    if edit := text(data, "edit"):
        yield Feedback(0, "edit", 0.0, edit, person=who)
    if critique := text(data, "critique"):
        yield Feedback(0, "critique", 0.0, critique, person=who)


def _rating(data: Mapping[str, Any], name: str, value: Any, read: Columns, note: str, who: str) -> Feedback:
    if isinstance(value, bool):
        return Feedback(0, "rating", 1.0 if value else -1.0, note, person=who)
    if isinstance(value, str) and (sign := scales.sign_of(value)) is not None:
        return Feedback(0, "rating", sign, note, person=who)
    score = _plain_number(value)
    if score is None:
        found = _typed(value) if isinstance(value, str) else None
        if found is None:
            raise BadLine(f"`{name}` is not a number, nor a word such as good or bad")
        score, scale = found
    else:
        scale = text(data, "scale") or read.scale_of.get(name, "")
        if not scale:
            raise BadLine(
                f"`{name}` {score:g} is on a scale that is not clear: {read.unclear.get(name, 'give `--scale LOW-HIGH`')}"
            )
    low, high = _ends(scale)
    if not low <= score <= high:
        raise BadLine(f"`{name}` {score:g} is not between {low:g} and {high:g}")
    if name == "rating" and scale == "-1-1":
        return Feedback(0, "rating", score, note, person=who)
    return Feedback(0, "rating", scales.value_of(score, scale), note, person=who, score=score, scale=scale)


def _ends(scale: str) -> tuple[float, float]:
    try:
        return scales.ends(scale)
    except UsageError as error:
        raise BadLine(str(error)) from error


# ------------------------------------------------------------------------------------------ what an export holds


def entry(given: Feedback, over: str = "") -> dict[str, Any]:
    """One piece of feedback as an export has it. ``over``: the event id of the worse turn, in a preference."""
    made: dict[str, Any] = {
        "kind": given.kind,
        "value": given.value,
        "person": given.author,
        "created_at": given.created_at,
    }
    if given.text:
        made["text"] = given.text
    if given.score is not None:
        made |= {"score": given.score, "scale": given.scale}
    return made | ({"over": over} if over else {})


def _over(one: Any) -> str:
    return one["over"] if isinstance(one, dict) and isinstance(one.get("over"), str) else ""


def preferences(data: Mapping[str, Any]) -> Iterator[tuple[str, Feedback]]:
    """(event id of the worse turn, preference) of a line. Raises ``BadLine``."""
    for one in data["feedback"] if isinstance(data.get("feedback"), list) else ():
        if over := _over(one):
            yield over, _entry(one)


def _entry(one: Any) -> Feedback:
    if not isinstance(one, dict) or one.get("kind") not in KINDS:
        raise BadLine(f"an entry of `feedback` has no kind of {', '.join(KINDS)}")
    value = _number(one.get("value", 0.0), "value")
    if not -1 <= value <= 1:
        raise BadLine(f"a value of {value:g} is outside -1 to 1")
    score = None if one.get("score") is None else _number(one["score"], "score")
    at = _number(one.get("created_at", 0.0), "created_at")
    scale = text(one, "scale")
    if scale:
        _ends(scale)
    return Feedback(0, one["kind"], value, text(one, "text"), person=text(one, "person"), created_at=at, score=score, scale=scale)  # fmt: skip


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        raise BadLine(f"`{name}` is not a number")
    return float(value)


def moment(data: Mapping[str, Any]) -> float:
    """When the turn was, 0 where the line does not say it."""
    return _number(data["created_at"], "created_at") if "created_at" in data else 0.0


def text(data: Mapping[str, Any], name: str) -> str:
    """A field that holds text, "" where it is missing. Raises ``BadLine``."""
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadLine(f"`{name}` is not text")
    return value
