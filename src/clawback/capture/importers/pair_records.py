"""Records with two answers to one question, of which one is better: pairs, and two answers with a verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clawback.capture.importers import lines
from clawback.capture.importers.columns import plain_number
from clawback.capture.importers.entries import (
    BadLine,
    Columns,
    Entry,
    FileReading,
    answer_text,
    messages_of,
    table,
    text,
)
from clawback.capture.importers.messages import LISTS, conversation_of, message_of, side
from clawback.records import Feedback, Message, text_of
from clawback.redact import redact

PAIRS = (
    ("chosen", "rejected"), ("preferred_output", "non_preferred_output"), ("preferred", "dispreferred"),
    ("preferred_response", "rejected_response"), ("chosen_response", "rejected_response"), ("accepted", "rejected"),
    ("response_chosen", "response_rejected"), ("better", "worse"), ("better_response", "worse_response"), ("win", "lose"),
    ("winner_response", "loser_response"), ("good", "bad"), ("chosen_output", "rejected_output"), ("positive", "negative"),
    ("response_w", "response_l"), ("answer_chosen", "answer_rejected"), ("good_edited_response", "bad_edited_response"),
)  # fmt: skip
"""Fields of the better and the worse answer."""
_SUFFIXES = (("a", "b"), ("0", "1"), ("1", "2"), ("left", "right"), ("one", "two"), ("first", "second"))
_STEMS = re.compile(
    r"(?:human_ref|response|responses|answer|output|completion|conversation|model_output|candidate|text|reply|option|summary|generation|model|assistant|chat)_?"
)
_SCORES = ("score", "rating", "reward", "quality", "stars")
VERDICTS = (
    "winner", "preference", "preferred", "overall_preference", "preference_strength", "human_preference", "choice", "better",
    "better_response_id", "verdict", "comparison", "label", "labels", "selected", "judgment", "judgement", "vote", "pick",
    "preferred_response", "preferred_answer", "best", "chosen", "ranking", "result", "human_label", "annotation",
)  # fmt: skip
_SIGNED = ("overall_preference", "preference_strength")
"""HelpSteer's: from -3, the first is much better, to 3."""
_FILLING = re.compile(
    r"\b(?:is|much|slightly|significantly|strongly|clearly|better|wins|won|prefer|preferred|the)\b|[.!]"
)
_TIES = (
    "tie",
    "equal",
    "same",
    "both",
    "neither",
    "draw",
    "none",
    "bothbad",
    "tie (bothbad)",
    "both_bad",
    "tie_bothbad",
)


# ----------------------------------------------------------------------------------------------- better and worse


def names_of_pair(data: Mapping[str, Any]) -> tuple[str, str] | None:
    """The fields of the better and the worse answer."""
    found = next(((a, b) for a, b in PAIRS if data.get(a) is not None and data.get(b) is not None), None)
    if found and all(isinstance(data[name], (str, list, dict)) for name in found):
        return found
    return None


def has_pair(data: Mapping[str, Any]) -> bool:
    return names_of_pair(lines.lowered(data)) is not None


def read_pair(data: Mapping[str, Any], reading: FileReading) -> Iterator[Entry]:
    """Two turns, of which the first is preferred. Raises ``BadLine``."""
    data = lines.lowered(data)
    names = names_of_pair(data)
    if names is None:
        raise BadLine("`chosen` or `rejected` is missing")
    asked = _question(data)
    (messages, better), (other, worse) = (_answer_to(asked, data, name) for name in names)
    if messages != other:
        messages, better, worse = _where_they_part([*messages, _reply(better)], [*other, _reply(worse)])
    if better == worse:
        raise BadLine(f"`{names[0]}` and `{names[1]}` are the same")
    inner = table(data.get("input"))
    shared = lines.with_tools({**inner, **data}, list(messages))
    turns = tuple(
        lines.turn_of(_model_of(data, name), shared, answer)
        for name, answer in zip(names, (better, worse), strict=True)
    )
    who = text(data, "person") or reading.person
    note = next((data[n] for n in lines.NOTES if isinstance(data.get(n), str)), "")
    scored = list(_scores_of_pair(data, names, reading.columns, who))
    yield Entry(turns, (Feedback(0, "preference", 1.0, note, other_turn_id=1, person=who), *scored))


def _reply(words: str) -> Message:
    return {"role": "assistant", "content": words}


def _model_of(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The record with the model that gave this answer."""
    suffix = name.rpartition("_")[2] if "_" in name else name
    model = data.get(
        f"{name}_model", data.get(f"model_{suffix}", data.get(f"model_{name}", data.get("model")))
    )
    return {**data, "model": model, "event_id": None}


def _question(data: Mapping[str, Any]) -> list[Message] | None:
    """What both answers are to; None where the answers bring it along."""
    inner = data.get("input")
    if isinstance(inner, Mapping):  # OpenAI: {"input": {"messages": […], "tools": […]}}
        data = {**inner, "prompt": None}
    name, _ = lines.names_of(data)
    if name in LISTS:
        read = lines.messages_under(data, name)
        if read is None:
            return None
        return lines.with_system(data, list(messages_of(read)))
    if not name or name in ("output", "answer"):
        return None
    return lines.with_system(data, list(messages_of(lines.question_of(data, name))))


def _answer_to(
    conversation: list[Message] | None, data: Mapping[str, Any], name: str
) -> tuple[list[Message], str]:
    """The conversation before an answer, and the answer's text. Raises ``BadLine``."""
    value = side(data[name])
    if isinstance(value, str):
        if conversation is None:
            raise BadLine("`prompt` or `messages` is missing")
        if not value.strip():
            raise BadLine(f"`{name}` is empty")
        if conversation[-1].get("role") == "assistant":  # the set repeats its better answer there
            conversation = conversation[:-1]
        return conversation, redact(value)
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
    if len(messages) < 2 or messages[-1].get("role") != "assistant" or not answer_text(messages[-1]):
        raise BadLine(f"`{name}` does not end with an answer")
    return messages[:-1], redact(str(text_of(messages[-1].get("content"))))


def _where_they_part(first: Sequence[Message], second: Sequence[Message]) -> tuple[list[Message], str, str]:
    """The conversation up to the first difference, and the two answers there. Raises ``BadLine``."""
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    parts = [side[shared] for side in (first, second) if len(side) > shared]
    if (
        shared == 0
        or len(parts) < 2
        or any(p.get("role") != "assistant" or not answer_text(p) for p in parts)
    ):
        raise BadLine("`chosen` and `rejected` answer different conversations")
    return list(first[:shared]), answer_text(parts[0]), answer_text(parts[1])


def score_fields(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Pairs of fields that hold scores of the better and the worse answer."""
    names = names_of_pair(data)
    pairs = [(f"{stem}_{names[0]}", f"{stem}_{names[1]}") for stem in _SCORES] if names else []
    pairs += [(f"{names[0]}_{stem}", f"{names[1]}_{stem}") for stem in _SCORES] if names else []
    return [(a, b) for a, b in pairs if data.get(a) is not None and data.get(b) is not None]


def _scores_of_pair(
    data: Mapping[str, Any], names: tuple[str, str], columns: Columns, who: str
) -> Iterator[Feedback]:
    for pair in score_fields(data)[:1]:
        column = pair[0].replace(names[0], "*")
        for index, name in enumerate(pair):
            if columns.scale_of.get(column):
                yield replace(lines.rating(column, data[name], columns, who=who), turn_id=index)


def score_column(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(column, score) of the scores that stand beside a pair: both sides are one column."""
    names = names_of_pair(data)
    for pair in score_fields(data)[:1]:
        for name in pair:
            yield pair[0].replace(names[0] if names else "", "*"), data[name]


# ---------------------------------------------------------------------------------------------- two and a verdict


def names_of_duel(data: Mapping[str, Any]) -> tuple[str, str] | None:
    """Two fields that hold answers and whose names differ in ``_a`` and ``_b``, ``_1`` and ``_2`` …"""
    for name in data:
        for first, second in _SUFFIXES:
            if not name.endswith(first):
                continue
            stem = name[: -len(first)]
            other = f"{stem}{second}"
            if other in data and _STEMS.fullmatch(stem) and all(_is_answer(data[n]) for n in (name, other)):
                if stem.rstrip("_") == "model" and names_of_duel(
                    {k: v for k, v in data.items() if k not in (name, other)}
                ):
                    continue  # these are the models' names
                return name, other
    return None


def _is_answer(value: Any) -> bool:
    return (isinstance(value, str) and bool(value.strip())) or (
        isinstance(value, (list, dict)) and bool(value)
    )


def has_duel(data: Mapping[str, Any]) -> bool:
    data = lines.lowered(data)
    names = names_of_duel(data)
    return names is not None and bool(_verdict_fields(data, names))


def _verdict_fields(data: Mapping[str, Any], names: tuple[str, str]) -> list[str]:
    first = _suffixes_of(names)[0]
    fields = [f"winner_model_{first}", f"winner_{first}"] + [name for name in VERDICTS if name not in names]
    fields += [f"{stem}_{first}" for stem in _SCORES]
    return [name for name in fields if data.get(name) is not None]


def _suffixes_of(names: tuple[str, str]) -> tuple[str, str]:
    return next((a, b) for a, b in _SUFFIXES if names[0].endswith(a) and names[1].endswith(b))


def verdict(data: Mapping[str, Any], names: tuple[str, str], columns: Columns) -> tuple[int, str]:
    """(1: the first answer is better, -1: the second, 0: neither; the field that says so). Raises ``BadLine``."""
    first, second = _suffixes_of(names)
    for stem in ("winner_model", "winner"):
        wins = [_plain(data.get(f"{stem}_{side}")) for side in (first, second)]
        if None not in wins:
            return _sign((wins[0] or 0.0) - (wins[1] or 0.0)), f"{stem}_{first}"
    unclear = ""
    for field in VERDICTS:
        if field in names or (value := data.get(field)) is None:
            continue
        try:
            winner = winner_in(field, value, names, data, columns)
        except BadLine as error:
            unclear = str(error)
            continue
        if winner is not None:
            return winner, field
    for stem in _SCORES:
        scores = [_plain(data.get(f"{stem}_{side}")) for side in (first, second)]
        if None not in scores:
            return _sign((scores[0] or 0.0) - (scores[1] or 0.0)), f"{stem}_{first}"
    if unclear:
        raise BadLine(unclear)
    raise BadLine(f"nothing says which of `{names[0]}` and `{names[1]}` is better")


def _plain(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    try:
        return plain_number(value)
    except BadLine:
        return None


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def winner_in(
    field: str, value: Any, names: tuple[str, str], data: Mapping[str, Any], columns: Columns
) -> int | None:
    """What one value of a verdict says; None where it says nothing."""
    first, second = _suffixes_of(names)
    if isinstance(value, (list, dict)):
        return None
    word = " ".join(_FILLING.sub(" ", str(value).lower()).split())
    if word in _TIES or word.startswith("tie"):
        return 0
    for index, (suffix, ordinal, place) in enumerate(((first, "first", "left"), (second, "second", "right"))):
        model = str(data.get(f"model_{suffix}") or "").lower()
        spellings = {
            names[index],
            f"model_{suffix}",
            f"response_{suffix}",
            f"answer_{suffix}",
            ordinal,
            place,
            f"{ordinal}_answer",
        }
        spellings |= {f"{stem} {suffix}" for stem in ("model", "response", "answer", "option")} | (
            {suffix} if suffix.isalpha() else set()
        )
        spellings |= {names[index].replace("_", ""), f"assistant_{suffix}", f"assistant {suffix}"}
        if word in spellings or (model and word == model):
            return 1 - 2 * index
    plain = _plain(value)
    if plain is None:
        return None
    values = {v for v in (_plain(one) for one in columns.values.get(field, ())) if v is not None} | {plain}
    if min(values) < 0 or field in _SIGNED:
        return -_sign(plain)
    if values <= {0.0, 1.0} and (first == "0" or len(values) == 2):
        if field in ("label", "labels") and first == "a":  # SHP: 1 says that A is better
            return 1 if plain == 1 else -1
        return 1 if plain == 0 else -1
    if values <= {1.0, 2.0} and (first == "1" or len(values) == 2):
        return 1 if plain == 1 else -1
    raise BadLine(f"`{field}` {plain:g} does not say which answer is better")


def read_duel(data: Mapping[str, Any], reading: FileReading) -> Iterator[Entry]:
    """Two turns, and a preference unless both are as good. Raises ``BadLine``."""
    data = lines.lowered(data)
    names = names_of_duel(data)
    if names is None:
        raise BadLine("there are no two answers")
    asked = question_of_duel(data)
    answers = [_answer_to(asked, {**data, name: _as_answer(data[name])}, name) for name in names]
    if answers[0][0] != answers[1][0]:
        conversations = [[*messages, _reply(words)] for messages, words in answers]
        messages, *words = _where_they_part(*conversations)
    else:
        messages, words = answers[0][0], [answer for _, answer in answers]
    winner, _field = verdict(data, names, reading.columns)
    turns = tuple(
        lines.turn_of(_model_of(data, name), tuple(messages), answer)
        for name, answer in zip(names, words, strict=True)
    )
    who = text(data, "person") or reading.person
    note = next((data[n] for n in (*lines.NOTES, "preference_statement") if isinstance(data.get(n), str)), "")
    better, worse = (0, 1) if winner > 0 else (1, 0)
    same = words[0] == words[1]
    opinions = (
        ()
        if winner == 0 or same
        else (Feedback(better, "preference", 1.0, note, other_turn_id=worse, person=who),)
    )
    yield Entry(turns[:1] if same else turns, opinions)


def _as_answer(value: Any) -> Any:
    """Rounds that are written as a list of texts (LMArena's first table), and {"answer": …} or {"text": …}."""
    rounds = _rounds(value)
    if rounds is not None:
        return rounds[-1]
    if isinstance(value, dict) and message_of(value) is None:
        names = ("text", "answer", "response", "content")
        return next((value[n] for n in names if isinstance(value.get(n), str)), value)
    return value


def _rounds(value: Any) -> list[str] | None:
    """The texts of a list, which may be written as text itself; None for anything else."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, list) and value and all(isinstance(one, (str, type(None))) for one in value):
        return [str(one or "") for one in value]
    return None


def question_of_duel(data: Mapping[str, Any]) -> list[Message] | None:
    """What both are asked; where the answers are whole conversations, None."""
    prompt = data.get("prompt", data.get("question"))
    if isinstance(prompt, Mapping):  # WebGPT: {"full_text": …}
        prompt = next(
            (prompt[n] for n in ("full_text", "text", "content") if isinstance(prompt.get(n), str)), None
        )
        data = {**data, "prompt": prompt}
    rounds = _rounds(prompt)
    if rounds is not None:
        if len(rounds) > 1:
            raise BadLine(
                "its conversation has several rounds, of which the answers of the earlier ones differ"
            )
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
