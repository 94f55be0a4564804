"""Records with two answers to one question, of which one is better: pairs, and two answers with a verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clawback.extensions.data_sets import lines
from clawback.extensions.data_sets.entries import (
    BadLine,
    Columns,
    Entry,
    FileReading,
    Record,
    answer_text,
    dicts,
    messages_of,
)
from clawback.extensions.data_sets.messages import LISTS, conversation_of, message_of, side, transcript
from clawback.extensions.data_sets.verdicts import SCORES, names_of_duel, verdict
from clawback.records import Feedback, JsonObject, Message, text_of
from clawback.redact import redact

PAIRS = (
    ("chosen", "rejected"), ("preferred_output", "non_preferred_output"), ("preferred", "dispreferred"),
    ("preferred_response", "rejected_response"), ("chosen_response", "rejected_response"), ("accepted", "rejected"),
    ("response_chosen", "response_rejected"), ("better", "worse"), ("better_response", "worse_response"), ("win", "lose"),
    ("winner_response", "loser_response"), ("good", "bad"), ("chosen_output", "rejected_output"), ("positive", "negative"),
    ("response_w", "response_l"), ("answer_chosen", "answer_rejected"), ("good_edited_response", "bad_edited_response"),
    ("chosen_messages", "rejected_messages"), ("chosen_conversations", "rejected_conversations"), ("chosen_text", "rejected_text"),
    ("response_j", "response_k"), ("output_w", "output_l"), ("answer_w", "answer_l"), ("y_w", "y_l"),
)  # fmt: skip
"""Fields of the better and the worse answer."""

# ----------------------------------------------------------------------------------------------- better and worse


def names_of_pair(data: Record) -> tuple[str, str] | None:
    """The fields of the better and the worse answer."""
    names = next(((a, b) for a, b in PAIRS if data.get(a) is not None and data.get(b) is not None), None)
    if names and all(isinstance(data[name], (str, list, dict)) for name in names):
        return names
    return None


def has_pair(data: Record) -> bool:
    return names_of_pair(_with_better(lines.lowered(data))) is not None


def _with_better(data: JsonObject) -> JsonObject:
    """Where only the worse answer has a field, the better one ends the conversation (ms-swift)."""
    worse = next((n for n in ("rejected_response", "rejected_messages", "rejected") if data.get(n)), "")
    if not worse or names_of_pair(data) is not None or not dicts(data.get("messages")):
        return data
    messages = conversation_of(data["messages"]) or []
    if len(messages) < 2 or messages[-1]["role"] != "assistant":
        return data
    if worse == "rejected_messages":
        return {**data, "chosen": messages, "rejected": data[worse], "messages": None}
    return {**data, "chosen": messages[-1:], "rejected": data[worse], "messages": messages[:-1]}


def read_pair(data: Record, reading: FileReading) -> Iterator[Entry]:
    """The better answers and the worse ones, mostly one of each, and a preference for each two. Raises ``BadLine``."""
    data = _with_better(lines.lowered(data))
    names = names_of_pair(data)
    if names is None:
        raise BadLine("`chosen` or `rejected` is missing")
    asked = question_of_duel(data)
    sides = [[_answer_to(asked, {**data, name: one}, name) for one in _texts(data[name])] for name in names]
    (messages, better), (other, worse) = sides[0][0], sides[1][0]
    if messages != other:
        messages, better, worse = _where_they_part([*messages, better], [*other, worse])
        sides = [[(messages, better)], [(messages, worse)]]
    if better == worse:
        raise BadLine(f"`{names[0]}` and `{names[1]}` are the same")
    shared = lines.with_tools(data, list(messages))
    turns = tuple(
        lines.turn_of(_answered(data, name, answer), shared, text_of(answer.get("content")))
        for name, listed in zip(names, sides, strict=True)
        for _, answer in listed
    )
    who = lines.author_of(data, reading)
    note = next((data[n] for n in lines.NOTES if isinstance(data.get(n), str)), "")
    first = len(sides[0])
    preferences = tuple(
        Feedback(place, "preference", 1.0, note, other_turn_id=below, person=who)
        for place in range(first)
        for below in range(first, len(turns))
    )
    scored = _scores_of_pair(data, names, reading.columns, who) if len(turns) == 2 else ()
    yield Entry(turns, (*preferences, *scored))


def _texts(value: object) -> list[Any]:
    """Several answers that are listed as texts; else the one."""
    return (
        value if isinstance(value, list) and value and all(isinstance(one, str) for one in value) else [value]
    )


def _reply(words: str) -> Message:
    return {"role": "assistant", "content": words}


def _answered(data: Record, name: str, answer: Message) -> JsonObject:
    """The record with the model that gave this answer, and the tools that the answer calls."""
    suffix = name.rpartition("_")[2] if "_" in name else name
    model = data.get(
        f"{name}_model", data.get(f"model_{suffix}", data.get(f"model_{name}", data.get("model")))
    )
    return {**data, "model": model, "event_id": None, "calls": lines.calls_in(answer)}


def _question(data: Record) -> list[Message] | None:
    """What both answers are to; None where the answers bring it along."""
    name, _ = lines.names_of(data)
    if name in LISTS:
        read = lines.messages_under(data, name)
        if read is None:
            return None
        return lines.with_system(data, list(messages_of(read)))
    if not name or name in ("output", "answer"):
        return None
    return lines.with_system(data, list(messages_of(lines.question_of(data, name))))


def _answer_to(conversation: list[Message] | None, data: Record, name: str) -> tuple[list[Message], Message]:
    """The conversation before an answer, and the answer. Raises ``BadLine``."""
    value = side(data[name])
    if isinstance(value, str):
        if conversation is None:
            raise BadLine(
                f"`{name}` does not end with an answer"
                if transcript(value)
                else "`prompt` or `messages` is missing"
            )
        if not value.strip():
            raise BadLine(f"`{name}` is empty")
        if conversation[-1].get("role") == "assistant":  # the set repeats its better answer there
            conversation = conversation[:-1]
        return conversation, _reply(redact(value))
    written = list(messages_of(value))
    if (
        conversation is not None
        and conversation[-1].get("role") == "assistant"
        and written[: len(conversation)] != conversation
    ):
        conversation = conversation[:-1]
    if conversation is None or written[: len(conversation)] == conversation:
        messages = written
    elif len(written) > 1 and written[0].get("role") == "user":
        messages = (
            written if len(conversation) == 1 or written[0] == conversation[0] else [*conversation, *written]
        )
    else:
        messages = [*conversation, *written]
    if len(messages) < 2 or not _answers(messages[-1]):
        raise BadLine(f"`{name}` does not end with an answer")
    return messages[:-1], messages[-1]


def _answers(message: Message) -> bool:
    """Whether it is an answer, in words or as calls of tools."""
    return message.get("role") == "assistant" and bool(answer_text(message) or message.get("tool_calls"))


def _where_they_part(
    first: Sequence[Message], second: Sequence[Message]
) -> tuple[list[Message], Message, Message]:
    """The conversation up to the first difference, and the two answers there. Raises ``BadLine``."""
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    parts = [side[shared] for side in (first, second) if len(side) > shared]
    if shared == 0 or len(parts) < 2 or not all(_answers(part) for part in parts):
        raise BadLine("`chosen` and `rejected` answer different conversations")
    return list(first[:shared]), parts[0], parts[1]


def score_fields(data: Record) -> list[tuple[str, str]]:
    """Pairs of fields that hold scores of the better and the worse answer."""
    names = names_of_pair(data)
    pairs = [(f"{stem}_{names[0]}", f"{stem}_{names[1]}") for stem in SCORES] if names else []
    pairs += [(f"{names[0]}_{stem}", f"{names[1]}_{stem}") for stem in SCORES] if names else []
    return [(a, b) for a, b in pairs if data.get(a) is not None and data.get(b) is not None]


def _scores_of_pair(data: Record, names: tuple[str, str], columns: Columns, who: str) -> Iterator[Feedback]:
    for pair in score_fields(data)[:1]:
        column = pair[0].replace(names[0], "*")
        for index, name in enumerate(pair):
            if columns.scale_of.get(column):
                yield replace(lines.rating(column, data[name], columns, who=who), turn_id=index)


def score_column(data: Record) -> Iterator[tuple[str, Any]]:
    """(column, score) of the scores that stand beside a pair: both sides are one column."""
    data = lines.lowered(data)
    names = names_of_pair(data)
    for pair in score_fields(data)[:1]:
        for name in pair:
            yield pair[0].replace(names[0] if names else "", "*"), data[name]


# ---------------------------------------------------------------------------------------------- two and a verdict


def read_duel(data: Record, reading: FileReading) -> Iterator[Entry]:
    """Two turns, and a preference unless both are as good. Raises ``BadLine``."""
    data = lines.lowered(data)
    names = names_of_duel(data)
    if names is None:
        raise BadLine("there are no two answers")
    data = _with_rounds(data, names)
    asked = question_of_duel(data)
    answers = [_answer_to(asked, {**data, name: _as_answer(data[name])}, name) for name in names]
    messages, replies = answers[0][0], [answer for _, answer in answers]
    if messages != answers[1][0]:
        messages, *replies = _where_they_part(*([*before, answer] for before, answer in answers))
    winner, _field = verdict(data, names, reading.columns)
    shared = lines.with_tools(data, list(messages))
    turns = tuple(
        lines.turn_of(_answered(data, name, answer), shared, text_of(answer.get("content")))
        for name, answer in zip(names, replies, strict=True)
    )
    who = lines.author_of(data, reading)
    note = next((data[n] for n in (*lines.NOTES, "preference_statement") if isinstance(data.get(n), str)), "")
    better, worse = (0, 1) if winner > 0 else (1, 0)
    same = replies[0] == replies[1]
    opinions = (
        ()
        if winner == 0 or same
        else (Feedback(better, "preference", 1.0, note, other_turn_id=worse, person=who),)
    )
    yield Entry(turns[:1] if same else turns, opinions)


def _with_rounds(data: JsonObject, names: tuple[str, str]) -> JsonObject:
    """Questions and answers that are lists of texts, one a round, as two conversations."""
    asked = _rounds(data.get("prompt"))
    answers = [_rounds(data[name]) for name in names]
    if asked is None or len(asked) < 2 or any(one is None or len(one) != len(asked) for one in answers):
        return data
    sides = {
        name: [
            m
            for pair in zip(asked, listed or (), strict=True)
            for m in ({"role": "user", "content": pair[0]}, _reply(pair[1]))
        ]
        for name, listed in zip(names, answers, strict=True)
    }
    return {**data, **sides, "prompt": None}


def _as_answer(value: object) -> object:
    """A round that is written as a list of one text (LMArena's first table), and {"answer": …} or {"text": …}."""
    rounds = _rounds(value)
    if rounds is not None:
        return rounds[-1]
    if isinstance(value, dict) and message_of(value) is None:
        names = ("text", "answer", "response", "content")
        return next((value[n] for n in names if isinstance(value.get(n), str)), value)
    return value


def _rounds(value: object) -> list[str] | None:
    """The texts of a list, which may be written as text itself; None for anything else."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, list) and value and all(isinstance(one, (str, type(None))) for one in value):
        return [str(one or "") for one in value]
    return None


def question_of_duel(data: Record) -> list[Message] | None:
    """What both are asked; where the answers are whole conversations, None."""
    prompt = data.get("prompt", data.get("question"))
    if isinstance(prompt, Mapping):  # WebGPT: {"full_text": …}
        prompt = next(
            (prompt[n] for n in ("full_text", "text", "content") if isinstance(prompt.get(n), str)), None
        )
        data = {**data, "prompt": prompt}
    rounds = _rounds(prompt)
    if rounds is not None and len(rounds) == 1:
        return [{"role": "user", "content": redact(rounds[0])}]
    if isinstance(data.get("context"), list) and (read := conversation_of(data["context"])):
        return list(messages_of(read))
    if isinstance(data.get("history"), str) and not prompt:
        return [{"role": "user", "content": redact(data["history"])}]
    for name in ("post", "article", "info"):
        value = data.get(name)
        value = value.get("post") if isinstance(value, Mapping) else value
        if isinstance(value, str) and not prompt:
            return [{"role": "user", "content": redact(value)}]
    return _question({k: v for k, v in data.items() if k not in (names_of_duel(data) or ())})
