"""Sets that people annotated in Argilla or Label Studio, with questions of their own.

A question is read by its answers: a number is a score (on the scale that all answers to the question are on), a word for good or bad a rating, a
choice between two answers a preference, a text a remark, or an edit where the question's name says so.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from clawback import scales
from clawback.extensions.data_sets import lines, pair_records, ranked, verdicts
from clawback.extensions.data_sets.columns import plain_number
from clawback.extensions.data_sets.entries import BadLine, Entry, FileReading, Record, dicts
from clawback.records import Feedback, JsonObject, Turn
from clawback.redact import redact

_EDITS = re.compile(r"edit|correct(?:ed|ion)|rewrit|revis|improved|better|ideal|rephras", re.IGNORECASE)


class AnnotatedAnswer(NamedTuple):
    """One answer to one question, by one person."""

    person: str
    question: str
    value: Any


def is_argilla(data: Record) -> bool:
    return isinstance(data.get("fields"), dict) and isinstance(data.get("responses"), (dict, list))


_HUB = re.compile(r"(.+)\.responses")


def is_argilla_table(data: Record) -> bool:
    """A row of a data set of Argilla's on the Hub: answers in columns."""
    return any(isinstance(v, list) and _HUB.fullmatch(str(k)) for k, v in data.items()) or any(
        bool(dicts(v)) and all({"user_id", "value"} <= one.keys() for one in dicts(v)) for v in data.values()
    )


def _as_record(data: Record) -> JsonObject:
    """Such a row as a record."""
    responses: JsonObject = {}
    for name, value in data.items():
        hub = _HUB.fullmatch(str(name))
        if hub and isinstance(value, list):
            people = data.get(f"{name}.users") or ["somebody"] * len(value)
            states = data.get(f"{name}.status") or ["submitted"] * len(value)
            rows = zip(value, people, states, strict=False)
            responses[hub[1]] = [{"value": v, "user_id": who, "status": state} for v, who, state in rows]
        elif dicts(value) and all({"user_id", "value"} <= one.keys() for one in dicts(value)):
            responses[str(name)] = value
    fields = {k: v for k, v in data.items() if not any(str(k).startswith(question) for question in responses)}
    return {"fields": fields, "responses": responses}


def read_argilla_table(data: Record, reading: FileReading) -> Iterator[Entry]:
    yield from read_argilla(_as_record(data), reading)


def argilla_answers(data: Record) -> Iterator[AnnotatedAnswer]:
    responses = data["responses"]
    if isinstance(responses, list):  # as its server sends them: one object a person
        for one in dicts(responses):
            for question, inner in (one.get("values") or {}).items():
                value = inner.get("value") if isinstance(inner, dict) else inner
                if one.get("status", "submitted") == "submitted":
                    yield AnnotatedAnswer(f"argilla:{one.get('user_id') or 'somebody'}", str(question), value)
        return
    for question, listed in responses.items():
        for one in dicts(listed):
            if one.get("status", "submitted") in ("submitted", None):
                yield AnnotatedAnswer(
                    f"argilla:{one.get('user_id') or 'somebody'}", str(question), one.get("value")
                )


def is_label_studio(data: Record) -> bool:
    return isinstance(data.get("data"), dict) and any(
        isinstance(data.get(k), list) for k in ("annotations", "completions", "predictions")
    )


def label_studio_answers(data: Record) -> Iterator[AnnotatedAnswer]:
    for annotation in dicts(data.get("annotations")) or dicts(data.get("completions")):
        if annotation.get("was_cancelled"):
            continue
        by = annotation.get("completed_by")
        who = (by.get("email") or by.get("id")) if isinstance(by, dict) else by
        for result in dicts(annotation.get("result")):
            value = result.get("value")
            inner: JsonObject = value if isinstance(value, dict) else {}
            answer = next(
                (
                    inner[k]
                    for k in ("rating", "number", "choices", "text", "selected", "ranker")
                    if k in inner
                ),
                None,
            )
            if answer is not None:
                question = str(result.get("from_name") or result.get("type"))
                yield AnnotatedAnswer(
                    f"label-studio:{who if who is not None else 'somebody'}", question, answer
                )


def scores(data: Record) -> Iterator[tuple[str, Any]]:
    """(question, value) of all numbers and words that may be ratings."""
    if is_argilla_table(data):
        data = _as_record(data)
    for answer in argilla_answers(data) if is_argilla(data) else label_studio_answers(data):
        value = _single(answer.value)
        if _number(value) is not None:
            yield answer.question, value


def _number(value: object) -> float | None:
    try:
        return plain_number(value)
    except BadLine:
        return None


def _single(value: object) -> object:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def read_argilla(data: Record, reading: FileReading) -> Iterator[Entry]:
    yield from _read(data["fields"], list(argilla_answers(data)), reading)


def read_label_studio(data: Record, reading: FileReading) -> Iterator[Entry]:
    yield from _read(data["data"], list(label_studio_answers(data)), reading)


def _read(fields: Record, answers: list[AnnotatedAnswer], reading: FileReading) -> Iterator[Entry]:
    """The entry of a record or task. Raises ``BadLine``."""
    data = lines.lowered(fields)
    compared = _answers_in(data)
    if not compared:
        messages, response = lines.conversation(data)
        turns: tuple[Turn, ...] = (lines.turn_of(data, messages, response),)
    else:
        asked = pair_records.question_of_duel(
            {k: v for k, v in data.items() if not isinstance(v, list) or k == "prompt"}
        )
        if asked is None:
            raise BadLine("`prompt` or `messages` is missing")
        turns = tuple(
            lines.turn_of({**data, "event_id": None}, tuple(asked), redact(words))
            for words in compared.values()
        )
    names = tuple(compared)
    opinions: list[Feedback] = []
    rated: set[str] = set()
    for answer in sorted(
        answers, key=lambda a: _number(_single(a.value)) is None
    ):  # of one person a score says most
        for one in _opinions(answer, names, data, reading):
            if one.kind == "rating" and answer.person in rated:
                reading.unread[f"`{answer.question}`, beside another rating"] += 1
                continue
            rated |= {answer.person} if one.kind == "rating" else set()
            opinions.append(one)
    yield Entry(turns, tuple(opinions))


def _answers_in(data: Record) -> dict[str, str]:
    """Name → words of answers that are to be compared: ``response_1`` and all that follow, or a list of objects with an ``id``; {} for one answer."""
    names = list(verdicts.names_of_duel(data) or pair_records.names_of_pair(data) or ())
    if names:
        stem, last = names[1][:-1], names[1][-1]
        following = itertools.takewhile(data.get, (f"{stem}{chr(ord(last) + step)}" for step in range(1, 9)))
        names += following if last in "b12" else ()
        return {name: str(data[name]) for name in names}
    for value in data.values():
        listed = dicts(value) if isinstance(value, list) and len(value) > 1 else []
        answers = {str(one.get("id")): ranked.words_of(one) for one in listed}
        if len(answers) == len(listed) > 1 and all(answers.values()):
            return answers
    return {}


def _opinions(
    answer: AnnotatedAnswer, names: tuple[str, ...], data: Record, reading: FileReading
) -> Iterator[Feedback]:
    person = reading.person or ("owner" if reading.mine else answer.person)
    value = _single(answer.value)
    order = _order(answer.value, names, data, reading) if names else None
    if order is not None:
        for better, worse in order:
            yield Feedback(better, "preference", 1.0, other_turn_id=worse, person=person)
        return
    if _number(value) is not None:
        scale = reading.columns.scale_of.get(answer.question)
        if scale and not names:
            yield replace(lines.rating(answer.question, value, reading.columns, who=person), turn_id=0)
        else:
            reading.unread[f"`{answer.question}`"] += 1
    elif isinstance(value, bool) or (isinstance(value, str) and scales.sign_of(value) is not None):
        if not names:
            yield lines.rating(answer.question, value, reading.columns, who=person)
    elif isinstance(value, str) and value.strip():
        kind = "edit" if _EDITS.search(answer.question) and not names else "critique"
        if len(value.split()) > 2 or kind == "edit":
            yield Feedback(0, kind, 0.0, redact(value), person=person)  # type: ignore[arg-type]
        else:
            reading.unread[f"`{answer.question}`"] += 1
    elif value is not None:
        reading.unread[f"`{answer.question}`"] += 1


def _order(
    value: object, names: tuple[str, ...], data: Record, reading: FileReading
) -> list[tuple[int, int]] | None:
    """(better, worse) of the answers that a value compares; [] where none is better, None where it does not compare them."""
    if isinstance(value, dict) and len(value) == 1 and "_" not in value:  # `_`: what nobody sorted
        (value,) = value.values()  # Label Studio: {"rank": ["b", "a"]}
    if isinstance(value, list):  # a ranking: names in their order, or [{"value": "response-1", "rank": 1}, …]
        ranks = {
            _plain_name(one.get("value") if isinstance(one, dict) else one): one.get("rank")
            if isinstance(one, dict)
            else place
            for place, one in enumerate(value)
        }
        ranked_places = [(ranks.get(_plain_name(name)), place) for place, name in enumerate(names)]
        placed = sorted(
            (float(rank), place) for rank, place in ranked_places if isinstance(rank, (int, float))
        )
        if len(placed) > 1:
            return [(a, b) for (rank, a), (next_rank, b) in itertools.pairwise(placed) if rank < next_rank]
        value = _single(value)
    if isinstance(value, str) and (best := _plain_name(value)) in (listed := [_plain_name(n) for n in names]):
        return [(listed.index(best), other) for other in range(len(names)) if other != listed.index(best)]
    plain = isinstance(value, (str, int, float)) and not isinstance(value, bool) and len(str(value)) <= 60
    if not plain or len(names) != 2 or verdicts.names_of_duel(data) is None:
        return None
    try:
        better = verdicts.winner_in("comparison", value, (names[0], names[1]), data, reading.columns)
    except BadLine:
        return None
    return None if better is None else [(0, 1)] if better > 0 else [(1, 0)] if better < 0 else []


def _plain_name(name: object) -> str:
    return str(name).strip().lower().replace("-", "_").replace(" ", "_")
