"""Turns and what was said of them, out: our own lines, which lose nothing, and the layouts of TRL and OpenAI, which have room for some of it."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clawback.extensions.importers.storing import content_name
from clawback.records import UNLEARNED, Feedback, Message, Turn

if TYPE_CHECKING:
    from clawback.records import JsonObject
    from clawback.store import Store

Layout = Literal["dpo", "kto", "sft"]
LAYOUTS: dict[str, tuple[Layout, ...]] = {"trl": ("dpo", "kto", "sft"), "openai": ("dpo", "sft")}
"""Format → the layouts that it has: pairs, answers with a thumb, answers to learn as they are."""


def export_file(
    store: Store,
    path: Path,
    *,
    everything: bool = False,
    session: str = "",
    person: str = "",
    turns: Collection[int] = (),
) -> int:
    """Write rated turns (or all of them), oldest first, and return how many. ``session``: all of that one's; ``person``: the turns that this
    person said something about, with what they said; ``turns``: these in any case. A turn to which one of them is preferred goes along.

    The file appears whole or not at all, and is readable by its owner alone.
    """
    chosen: dict[int, list[int]] = {}
    for turn in oldest_first(store, session=session or None):
        opinions = store.feedback(turn_id=turn.id)
        if person and turn.id not in turns:
            opinions = [one for one in opinions if person in (one.author, one.source)]
        if turns and not person and turn.id not in turns:
            continue
        if opinions or turn.id in turns or ((everything or session) and not person):
            chosen[turn.id] = [one.id for one in opinions]
            for other in {
                i for one in opinions for i in (one.turn_id, one.other_turn_id) if i
            } - chosen.keys():
                chosen[other] = []
    rows = (_as_line(store, number, store.feedback(ids=chosen[number])) for number in sorted(chosen))
    return write_lines(path, rows)


def write_lines(path: Path, rows: Iterator[Mapping[str, Any]]) -> int:
    """Write JSON lines, and return how many. The file appears whole or not at all, and is readable by its owner alone."""
    partial = path.with_name(path.name + ".part")
    number = 0
    with os.fdopen(
        os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
    ) as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            number += 1
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return number


def oldest_first(store: Store, page: int = 500, session: str | None = None) -> Iterator[Turn]:
    newest_first: list[int] = []
    older: range | None = None
    while page_turns := store.turns(limit=page, ids=older, session=session):
        newest_first += [t.id for t in page_turns]
        older = range(page_turns[-1].id)
    for number in reversed(newest_first):
        yield store.turn(number)


def _event_id(turn: Turn) -> str:
    """A name for the turn that no turn of another home has."""
    return turn.event_id or f"turn:{turn.id}:{content_name(turn)}"


def _as_line(store: Store, number: int, feedback: list[Feedback]) -> JsonObject:
    turn = store.turn(number)
    line: JsonObject = {
        "messages": [dict(m) for m in turn.messages],
        "response": turn.response,
        "session": turn.session,
        "agent": turn.agent,
        "model": turn.model,
        "event_id": _event_id(turn),
        "created_at": turn.created_at,
    }
    line |= {
        name: value for name in ("ending", "licence", "thinking", "cwd") if (value := getattr(turn, name))
    }
    line |= {
        name: [dict(m) for m in value] for name in ("calls", "next_state") if (value := getattr(turn, name))
    }
    if turn.kind != "main":
        line["kind"] = turn.kind
    if turn.consent:
        line["consent"] = turn.consent == "yes"
    about = sorted((f for f in feedback if f.turn_id == turn.id), key=lambda f: f.moment)
    for one in about:  # for other readers: the last word stands
        if one.kind == "rating":
            line |= {"rating": one.value} | ({"note": one.text} if one.text else {})
        elif one.kind in ("edit", "critique"):
            line[one.kind] = one.text
    if about:
        line["feedback"] = [
            _entry(f, _event_id(store.turn(f.other_turn_id)) if f.other_turn_id else "") for f in about
        ]
    return line


def _entry(opinion: Feedback, over: str = "") -> JsonObject:
    """One piece of feedback as an export has it. ``over``: the event id of the worse turn, in a preference."""
    entry: JsonObject = {
        "kind": opinion.kind,
        "value": opinion.value,
        "person": opinion.author,
        "created_at": opinion.created_at,
    }
    if opinion.text:
        entry["text"] = opinion.text
    if opinion.score is not None:
        entry |= {"score": opinion.score, "scale": opinion.scale}
    return entry | ({"over": over} if over else {})


# ------------------------------------------------------------------------------------------------- TRL's and OpenAI's


def export_layout(store: Store, path: Path, format: str, layout: Layout) -> int:
    """Write one layout of TRL's (conversational) or OpenAI's, and return how many rows. An answer that was cut, or that nobody may learn from, is left out."""
    from clawback.feedback.calibrate import standing

    def rows() -> Iterator[JsonObject]:
        for turn in oldest_first(store):
            opinions = store.feedback(turn_id=turn.id)
            if turn.trainable and turn.ending not in UNLEARNED and opinions:
                yield from _rows_of(store, turn, standing(opinions), format, layout)

    return write_lines(path, rows())


def _rows_of(
    store: Store, turn: Turn, opinions: list[Feedback], format: str, layout: Layout
) -> Iterator[JsonObject]:
    ratings = [f.value for f in opinions if f.kind == "rating" and f.turn_id == turn.id]
    liked = sum(ratings) / len(ratings) if ratings else 0.0
    edits = [f.text for f in opinions if f.kind == "edit" and f.turn_id == turn.id][-1:]
    if layout == "dpo":
        for one in opinions:
            if one.kind == "preference" and one.value > 0 and one.turn_id == turn.id and one.other_turn_id is not None:  # fmt: skip
                other = store.turn(one.other_turn_id)
                if other.trainable and other.messages == turn.messages:
                    yield _pair(turn.messages, _answer(turn), _answer(other), format)
        for text in edits:
            yield _pair(turn.messages, _reply(text), _answer(turn), format)
    elif layout == "kto":
        if liked:
            row = {"prompt": _plain(turn.messages), "completion": [_answer(turn)], "label": liked > 0}
            yield _with_tools(turn.messages, row)
    else:
        for reply in [_reply(text) for text in edits] or ([_answer(turn)] if liked > 0 else []):
            if format == "openai":
                yield _with_tools(turn.messages, {"messages": [*_plain(turn.messages), reply]})
            else:
                yield _with_tools(turn.messages, {"prompt": _plain(turn.messages), "completion": [reply]})


def _pair(messages: tuple[Message, ...], better: Message, worse: Message, format: str) -> JsonObject:
    if format == "openai":
        asked = _with_tools(messages, {"messages": _plain(messages)})
        return {"input": asked, "preferred_output": [better], "non_preferred_output": [worse]}
    return _with_tools(messages, {"prompt": _plain(messages), "chosen": [better], "rejected": [worse]})


def _reply(text: str) -> JsonObject:
    return {"role": "assistant", "content": text}


def _answer(turn: Turn) -> JsonObject:
    """The answer of a turn, with the tools that it calls."""
    calls = [
        {
            "id": c.get("id", ""),
            "type": "function",
            "function": {n: c.get(n, "") for n in ("name", "arguments")},
        }
        for c in turn.calls
    ]
    return _reply(turn.response) | ({"tool_calls": calls} if calls else {})


def _plain(messages: tuple[Message, ...]) -> list[JsonObject]:
    """The messages without the list of tools, which has a field of its own."""
    return [{name: value for name, value in m.items() if name != "tools"} for m in messages]


def _with_tools(messages: tuple[Message, ...], row: JsonObject) -> JsonObject:
    tools = messages[0].get("tools") if messages else None
    return row | ({"tools": tools} if tools else {})
