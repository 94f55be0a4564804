"""Sets of preferences that were published: OASST, HH-RLHF, UltraFeedback, HelpSteer, Nectar, LMArena. Their opinions are other people's.

Most are one of the shapes in ``pairs`` and ``lines``; here is what is their own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from clawback.extensions.data_sets import lines, ranked, verdicts
from clawback.extensions.data_sets.columns import plain_number
from clawback.extensions.data_sets.entries import (
    BadLine,
    Columns,
    Entry,
    FileReading,
    Record,
    dicts,
    messages_of,
    moment,
)
from clawback.extensions.data_sets.messages import conversation_of, role_of
from clawback.records import Feedback, JsonObject, Message, Turn
from clawback.redact import redact

_HH = re.compile(r"\A\s*Human:")
_HELPSTEER = frozenset(("helpfulness", "correctness", "coherence", "complexity", "verbosity"))
_FIVE = Columns(scale_of={"helpfulness": "0-4", "score": "1-5"})


def is_hh(data: Record) -> bool:
    return all(isinstance(data.get(n), str) and _HH.match(data[n]) for n in ("chosen", "rejected"))


def is_ultrafeedback(data: Record) -> bool:
    listed = dicts(data.get("completions"))
    return "instruction" in data and bool(listed) and all("response" in one for one in listed)


def is_ultrafeedback_binarized(data: Record) -> bool:
    return {"chosen", "rejected", "score_chosen", "score_rejected"} <= data.keys() or {
        "chosen",
        "rejected",
        "chosen-rating",
        "rejected-rating",
    } <= data.keys()


def read_ultrafeedback(data: Record, reading: FileReading) -> Iterator[Entry]:
    """Four answers with a judge's scores: the mean of its aspects from 1 to 5, or its overall score from 1 to 10."""
    columns = Columns(
        scale_of={"fine_grained_score": "1-5", "overall_score": "1-10", **reading.columns.scale_of}
    )
    known = [
        one
        for one in dicts(data["completions"])
        if isinstance(one.get("response"), str) and one["response"].strip()
    ]
    yield from ranked.read_answers({**data, "completions": known}, replace(reading, columns=columns))


def is_helpsteer(data: Record) -> bool:
    return data.keys() >= _HELPSTEER and "response" in data


def read_helpsteer(data: Record, reading: FileReading) -> Iterator[Entry]:
    """HelpSteer 1 and 2: ``helpfulness`` from 0 to 4 is the rating; the other four are no opinions of the answer as a whole."""
    messages, response = lines.conversation(data)
    opinion = lines.rating("helpfulness", data["helpfulness"], _FIVE, who=reading.person)
    yield Entry((lines.turn_of(data, messages, response),), (opinion,))


def is_helpsteer_words(data: Record) -> bool:
    """HelpSteer 3 has sets with remarks and with edits."""
    listed = isinstance(data.get("feedback"), list) and all(isinstance(one, str) for one in data["feedback"])
    return (
        isinstance(data.get("context"), list)
        and listed
        and ("response" in data or "original_response" in data)
    )


def read_helpsteer_words(data: Record, reading: FileReading) -> Iterator[Entry]:
    messages = conversation_of(data["context"])
    response = data.get("response", data.get("original_response"))
    if messages is None or not isinstance(response, str) or not response.strip():
        raise BadLine("the context or the response is missing")
    turn = lines.turn_of({}, messages_of(messages), redact(response))
    opinions = [
        Feedback(0, "critique", 0.0, words, person=reading.person)
        for words in data["feedback"]
        if words.strip()
    ]
    edited = data.get("edited_response", data.get("good_edited_response"))
    if isinstance(edited, str) and edited.strip() and edited != response:
        opinions.append(Feedback(0, "edit", 0.0, edited, person=reading.person))
    yield Entry((turn,), tuple(opinions))


def is_arena(data: Record) -> bool:
    models = all(isinstance(data.get(f"model_{side}"), str) for side in "ab")
    return (
        models
        and (("winner" in data and "conversation_a" in data) or "winner_model_a" in data)
        and verdicts.has_duel(data)
    )


def is_nectar(data: Record) -> bool:
    listed = dicts(data.get("answers"))
    return bool(listed) and all({"answer", "rank"} <= one.keys() for one in listed)


# ----------------------------------------------------------------------------------------------------------- OASST


def is_oasst_tree(data: Record) -> bool:
    return isinstance(data.get("prompt"), dict) and "replies" in data["prompt"]


def is_oasst_message(data: Record) -> bool:
    return {"message_id", "role", "text"} <= data.keys() and bool({"message_tree_id", "rank"} & data.keys())


def read_oasst_tree(data: Record, reading: FileReading) -> Iterator[Entry]:
    """A turn for each answer; of answers that people ranked each is preferred to the next one."""
    turns: list[Turn] = []
    opinions: list[Feedback] = []
    tree = str(data.get("message_tree_id") or data["prompt"].get("message_id") or "")
    waiting: list[tuple[Record, list[Message]]] = [(data["prompt"], [])]
    while waiting:
        message, earlier = waiting.pop()
        path: list[Message] = [
            *earlier,
            {"role": role_of(message.get("role")), "content": redact(str(message.get("text") or ""))},
        ]
        replies = [
            r
            for r in dicts(message.get("replies"))
            if str(r.get("text") or "").strip() and str(r.get("deleted")).lower() != "true"
        ]
        answers = [r for r in replies if role_of(r.get("role")) == "assistant"]
        ranked: list[tuple[float, int]] = []
        for answer in answers:
            if (rank := plain_number(answer.get("rank"))) is not None:
                ranked.append((rank, len(turns)))
            turns.append(_oasst_turn(tree, answer, tuple(path)))
        ranked.sort()
        opinions += [
            Feedback(better, "preference", 1.0, other_turn_id=worse, person=reading.person)
            for (rank, better), (following, worse) in itertools.pairwise(ranked)
            if rank < following
        ]
        waiting += [(reply, path) for reply in reversed(replies)]
    if not turns:
        raise BadLine("there is no answer in the tree")
    yield Entry(tuple(turns), tuple(opinions))


def _oasst_turn(tree: str, answer: Record, messages: tuple[Message, ...]) -> Turn:
    model = answer.get("model_name")
    return Turn(
        session=f"oasst:{tree}",
        messages=messages,
        response=redact(str(answer["text"])),
        agent="import",
        model=model if isinstance(model, str) else "",
        event_id=f"oasst:{answer.get('message_id')}",
        created_at=moment(answer.get("created_date")),
    )


def tree_of(record: Record) -> str:
    """The tree that a message of OASST is in; "" where it names none."""
    return str(record.get("message_tree_id") or "")


def read_oasst_messages(records: Sequence[Record], reading: FileReading, _name: str) -> Iterator[Entry]:
    """Messages, one a record, each with its parent."""
    known = {str(r["message_id"]): {**r, "replies": []} for r in records}
    roots: list[JsonObject] = []
    for message in known.values():
        parent = known.get(str(message.get("parent_id")))
        (parent["replies"] if parent is not None else roots).append(message)
    for root in roots:
        if role_of(root.get("role")) == "user" and root["replies"]:
            yield from read_oasst_tree(
                {"message_tree_id": root.get("message_tree_id"), "prompt": root}, reading
            )
