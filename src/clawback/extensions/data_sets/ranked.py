"""Records with several answers to one question and scores or ranks of each, and solutions of which each step has a label."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from clawback.extensions.data_sets import lines, pair_records
from clawback.extensions.data_sets.columns import plain_number
from clawback.extensions.data_sets.entries import BadLine, Entry, FileReading, Record, answer_text
from clawback.extensions.data_sets.messages import message_of
from clawback.records import Feedback, JsonObject
from clawback.redact import redact

_LISTS = ("completions", "answers", "responses", "candidates", "outputs", "generations", "summaries")
_RATINGS = ("fine_grained_score", "overall_score", "score", "rating", "reward", "quality")


def answers_in(data: Record) -> list[JsonObject]:
    """Answers of a list, each with what is said of it: {"text", "model", "score", "rank", "note"}; [] where there are none."""
    for name in _LISTS:
        value = data.get(name)
        if not isinstance(value, list) or len(value) < 2:
            continue
        if all(isinstance(one, str) for one in value):
            return _parallel(data, value)
        if all(isinstance(one, dict) for one in value):
            answers = [_ranked_answer(one) for one in value]
            if all(one["text"] for one in answers):
                return answers
    return []


def _parallel(data: Record, answers: Sequence[str]) -> list[JsonObject]:
    """Answers whose scores or ranks are in a list beside them."""
    entries: list[JsonObject] = [{"text": one} for one in answers]
    for field, names in (
        ("score", ("scores", "ratings", "rewards")),
        ("rank", ("ranks", "rank", "ranking")),
        ("model", ("models",)),
    ):
        column: list[Any] = next((data[n] for n in names if isinstance(data.get(n), list)), [])
        if len(column) == len(answers):
            entries = [{**one, field: value} for one, value in zip(entries, column, strict=True)]
    return entries if any("score" in one or "rank" in one for one in entries) else []


def _ranked_answer(answer: Record) -> JsonObject:
    answer = lines.lowered(answer)
    words = words_of(answer)
    score_field = next((n for n in _RATINGS if plain_number(answer.get(n)) is not None), "") if words else ""
    entry = {
        "text": words,
        "model": answer.get("model"),
        "field": score_field,
        "note": answer.get("critique"),
    }
    if score_field:
        entry["score"] = plain_number(answer[score_field])
    if isinstance(answer.get("rank"), (int, float)):
        entry["rank"] = answer["rank"]
    return entry


def words_of(answer: Record) -> str:
    """The words of an answer that is an object: a text, or a message, under one of the usual names; "" without."""
    for name in ("response", "answer", "text", "output", "content", "completion", "body", "html"):
        value = answer.get(name)
        words = value if isinstance(value, str) else answer_text(message_of(value) or {})
        if words:
            return words
    return ""


def has_answers(data: Record) -> bool:
    data = lines.lowered(data)
    answers = answers_in(data)
    return bool(answers) and (
        any("score" in one or "rank" in one for one in answers) or isinstance(data.get("choice"), int)
    )


def read_answers(data: Record, reading: FileReading) -> Iterator[Entry]:
    """A turn for each answer; a rating for each score; of ranks a preference for each over the next one. Raises ``BadLine``."""
    data = lines.lowered(data)
    answers = answers_in(data)
    asked = pair_records.question_of_duel({k: v for k, v in data.items() if k not in _LISTS})
    if not answers or asked is None:
        raise BadLine("the question or the answers are missing")
    who = lines.author_of(data, reading)
    texts = [redact(one["text"]) for one in answers]
    turns = tuple(
        lines.turn_of({**data, "model": one.get("model"), "event_id": None}, tuple(asked), words)
        for one, words in zip(answers, texts, strict=True)
    )
    opinions: list[Feedback] = []
    for index, one in enumerate(answers):
        note = one.get("note") if isinstance(one.get("note"), str) else ""
        if "score" in one:
            column = str(one.get("field") or "score")
            opinions.append(
                replace(
                    lines.rating(column, one["score"], reading.columns, str(note or ""), who), turn_id=index
                )
            )
        elif note:
            opinions.append(Feedback(index, "critique", 0.0, str(note), person=who))
    ranked = sorted(
        (one["rank"], index) for index, one in enumerate(answers) if isinstance(one.get("rank"), (int, float))
    )
    for (rank, better), (next_rank, worse) in itertools.pairwise(ranked):
        if rank < next_rank and texts[better] != texts[worse]:
            opinions.append(Feedback(better, "preference", 1.0, other_turn_id=worse, person=who))
    if isinstance(data.get("choice"), int) and not ranked and 0 <= data["choice"] < len(answers):
        best = data["choice"]
        opinions += [
            Feedback(best, "preference", 1.0, other_turn_id=other, person=who)
            for other in range(len(answers))
            if texts[other] != texts[best]
        ]
    yield Entry(turns, tuple(opinions))


def answer_scores(data: Record) -> Iterator[tuple[str, Any]]:
    """(column, score) of each answer."""
    for one in answers_in(lines.lowered(data)):
        if "score" in one:
            yield str(one.get("field") or "score"), one["score"]


def steps_of(data: Record) -> list[str]:
    """The steps of a solution, each with a label; [] where there are none."""
    steps, labels = data.get("completions"), data.get("labels")
    if not (isinstance(steps, list) and isinstance(labels, list) and len(steps) == len(labels) > 0):
        return []
    plain = all(isinstance(s, str) for s in steps) and all(isinstance(one, (bool, int)) for one in labels)
    return list(steps) if plain else []


def read_steps(data: Record, reading: FileReading) -> Iterator[Entry]:
    """The whole solution as one turn: good where every step is."""
    steps = steps_of(data)
    messages, response = lines.conversation({**data, "completions": None, "response": "\n".join(steps)})
    good = all(bool(one) and one != -1 for one in data["labels"])
    wrong = [step for step, label in zip(steps, data["labels"], strict=True) if not label or label == -1]
    note = f"Wrong: {wrong[0]}" if wrong else ""
    opinion = Feedback(0, "rating", 1.0 if good else -1.0, note, person=lines.author_of(data, reading))
    yield Entry((lines.turn_of(data, messages, response),), (opinion,))
