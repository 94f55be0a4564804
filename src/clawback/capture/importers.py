"""Import and export of turns: JSONL with feedback, and the transcripts that Claude Code keeps.

A JSONL line is ``{"prompt" or "messages", "response", "rating" (-1/1) or "score", "note", "edit", "critique",
…}``. Every line is identified by a hash of its content, so that importing the same file twice adds nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clawback import pictures
from clawback.capture import claude_transcript
from clawback.capture.exchanges import Exchange
from clawback.errors import ClawbackError, NotFound, UsageError
from clawback.records import Feedback, Message, Turn
from clawback.redact import redact, redact_all
from clawback.store.pictures import put_back, taken_out

if TYPE_CHECKING:
    from clawback.store import Store

TRANSCRIPT = "claude-transcript:"
"""How the event ids of turns begin that come from a transcript."""
Consent = Literal["", "yes", "no"]
MAX_LINE = 64_000_000
"""Characters of one line; a longer one is no turn."""


@dataclass(slots=True)
class Report:
    """The result of an import: new turns, new feedback, what was known already, and what could not be read."""

    turns: int = 0
    feedback: int = 0
    known: int = 0
    problems: list[str] = field(default_factory=list)


class BadLine(ClawbackError):
    """A line of a file that does not hold a turn; the message says why."""


# ---------------------------------------------------------------------------------------------------- JSONL in


def import_file(
    store: Store,
    path: Path,
    *,
    scale: str = "auto",
    consent: Consent = "",
    licence: str = "",
    required: bool = False,
) -> Report:
    """Bring in every line that can be read; the others are named in the report with their number.

    ``consent`` and ``licence`` are those of lines that name none; ``required``: without consent a line is never trained on. ``scale`` says what a ``score`` means: ``1-10``, ``0-1``, or ``auto`` (a whole number of 1 or more is of ten).
    Raises ``NotFound`` when there is no such file.
    """
    report = Report()
    for number, line in _lines(path):
        try:
            data = _parse(line)
            agreed = _consent(data, consent, required)
            _add_line(store, data, scale, report, agreed, _text(data, "licence") or licence)
        except BadLine as error:
            report.problems.append(f"line {number}: {error}")
        except (UnicodeError, OverflowError, RecursionError) as error:
            report.problems.append(f"line {number}: holds what cannot be stored ({type(error).__name__})")
    return report


def scored_lines(
    path: Path, scale: str = "auto"
) -> Iterator[tuple[int, tuple[Message, ...], str, float | None]]:
    """(line number, messages, response, rating in [-1, 1] or None) of every line, without a store.

    Raises ``NotFound`` without a file, ``UsageError`` with its number at the first line that cannot be read.
    """
    for number, line in _lines(path):
        try:
            data = _parse(line)
            messages, response = _conversation(data), data.get("response")
            if not isinstance(response, str) or not response.strip():
                raise BadLine("`response` is missing")
            ratings = [value for kind, value, _ in _feedback(data, scale) if kind == "rating"]
        except BadLine as error:
            raise UsageError(f"Line {number} of {path}: {error}.") from error
        yield number, messages, redact(response), ratings[0] if ratings else None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            number = 0
            while line := file.readline(MAX_LINE + 1):
                number += 1
                if line.strip():
                    yield number, line
                rest = line
                while len(rest) > MAX_LINE and not rest.endswith("\n"):  # the rest of a line that is too long
                    rest = file.readline(MAX_LINE + 1)
                    if "\n" not in rest and rest.strip("\0") == "":
                        return  # a device that never ends, or nothing more
    except (FileNotFoundError, IsADirectoryError) as error:
        raise NotFound(f"There is no file {path}.") from error


def _parse(line: str) -> dict[str, Any]:
    if len(line) > MAX_LINE:
        raise BadLine(f"longer than {MAX_LINE:,} characters")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"not JSON ({error})") from error
    if not isinstance(data, dict):
        raise BadLine("not a JSON object")
    return data


def _consent(data: Mapping[str, Any], default: Consent, required: bool) -> Consent:
    """What a line says of it: true, false, or nothing."""
    said = data.get("consent")
    if said is not None and not isinstance(said, bool):
        raise BadLine("`consent` is neither true nor false")
    found: Consent = default if said is None else "yes" if said else "no"
    return "no" if required and not found else found


def _add_line(
    store: Store, data: dict[str, Any], scale: str, report: Report, consent: Consent = "", licence: str = ""
) -> None:
    messages, response = _conversation(data), data.get("response")
    if not isinstance(response, str) or not response.strip():
        raise BadLine("`response` is missing")
    given = list(_feedback(data, scale))  # all of it is checked before anything is stored
    name = _hash(messages, response, str(data.get("session", "")))
    turn = Turn(
        session=str(data.get("session") or "import"),
        messages=messages,
        response=redact(response),
        agent=str(data.get("agent") or "import"),
        model=str(data.get("model") or ""),
        event_id=str(data.get("event_id") or f"import:{name}"),
        created_at=_number(data.get("created_at"), "created_at") if "created_at" in data else 0.0,
        consent=consent,
        licence=licence,
    )
    stored, new = _add(store, turn)
    report.turns += new
    report.known += not new
    for kind, value, text in given:
        before = len(store.feedback(turn_id=stored.id, active=False))
        mark = _hash((), f"{kind}{value}{text}", name)
        store.add_feedback(
            Feedback(stored.id, kind, value, redact(text), source="import", event_id=f"import:{mark}")
        )
        report.feedback += len(store.feedback(turn_id=stored.id, active=False)) - before


def _add(store: Store, turn: Turn, seen_at: float | None = None) -> tuple[Turn, bool]:
    before = store.count_turns()
    stored = store.add_turn(turn, seen_at=seen_at)
    return stored, store.count_turns() > before


def _conversation(data: Mapping[str, Any]) -> tuple[Message, ...]:
    messages = data.get("messages")
    if messages is None:
        prompt = data.get("prompt")
        if not isinstance(prompt, str) or not prompt.strip():
            raise BadLine("`prompt` or `messages` is missing")
        messages = [{"role": "user", "content": prompt}]
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


def _feedback(data: Mapping[str, Any], scale: str) -> Iterator[tuple[Any, float, str]]:
    note = _text(data, "note")
    if data.get("rating") is not None:
        rating = _number(data["rating"], "rating")
        if not -1 <= rating <= 1:
            raise BadLine(f"`rating` {rating:g} is not between -1 and 1")
        yield "rating", rating, note
    elif data.get("score") is not None:
        yield "rating", _from_score(_number(data["score"], "score"), data["score"], scale), note
    if edit := _text(data, "edit"):
        yield "edit", 0.0, edit
    if critique := _text(data, "critique"):
        yield "critique", 0.0, critique


def _from_score(score: float, written: Any, scale: str) -> float:
    """A score on its scale → [-1, 1]."""
    of_ten = scale == "1-10" or (scale == "auto" and (score > 1 or (isinstance(written, int) and score == 1)))
    low, high = (1.0, 10.0) if of_ten else (0.0, 1.0)
    if not low <= score <= high:
        raise BadLine(f"`score` {score:g} is not between {low:g} and {high:g}")
    return 2 * (score - low) / (high - low) - 1


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        raise BadLine(f"`{name}` is not a number")
    return float(value)


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadLine(f"`{name}` is not text")
    return value


def _hash(messages: tuple[Message, ...], response: str, extra: str) -> str:
    whole = json.dumps([messages, response, extra], sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


# --------------------------------------------------------------------------------------------------- JSONL out


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
    source said something about, with what it said; ``turns``: these in any case.

    The file appears whole or not at all, and is readable by its owner alone.
    """
    beside = path.with_name(path.name + ".part")
    count = 0
    with os.fdopen(
        os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
    ) as file:
        for turn in _oldest_first(store, session=session or None):
            said = store.feedback(turn_id=turn.id)
            if person and turn.id not in turns:
                said = [given for given in said if given.source == person]
            if turns and not person and turn.id not in turns:
                continue
            if said or turn.id in turns or ((everything or session) and not person):
                file.write(json.dumps(_as_line(turn, said), ensure_ascii=False) + "\n")
                count += 1
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    return count


def _oldest_first(store: Store, page: int = 500, session: str | None = None) -> Iterator[Turn]:
    newest_first: list[int] = []
    before: int | None = None
    while found := store.turns(limit=page, before=before, session=session):
        newest_first += [t.id for t in found]
        before = found[-1].id
    for number in reversed(newest_first):
        yield store.turn(number)


def _as_line(turn: Turn, said: list[Feedback]) -> dict[str, Any]:
    line: dict[str, Any] = {
        "messages": [dict(m) for m in turn.messages],
        "response": turn.response,
        "session": turn.session,
        "agent": turn.agent,
        "model": turn.model,
        "event_id": turn.event_id or f"turn:{turn.id}",
        "created_at": turn.created_at,
    }
    if turn.consent:
        line["consent"] = turn.consent == "yes"
    if turn.licence:
        line["licence"] = turn.licence
    for given in said:  # oldest first: the last word stands
        if given.kind == "rating":
            line |= {"rating": given.value} | ({"note": given.text} if given.text else {})
        elif given.kind in ("edit", "critique"):
            line[given.kind] = given.text
    return line


# ------------------------------------------------------------------------------------- Claude Code transcripts


def import_transcripts(store: Store, path: Path) -> Report:
    """Turns of Claude Code transcripts: one file, or every ``*.jsonl`` of a folder (sub-agents' are left out).

    What hooks or our own server captured is known. Lines that cannot be read (the last one is often half written) and types that are
    not known are passed over, and so are answers that failed; one that was interrupted is a side turn.
    """
    if not path.exists():
        raise NotFound(f"There is no file or folder {path}.")
    files = (
        [path] if path.is_file() else sorted(p for p in path.rglob("*.jsonl") if "subagents" not in p.parts)
    )
    report = Report()
    heard: dict[str, list[tuple[str, str]]] = {}
    for file in files:
        lines = (line for _, line in _lines(file))
        conversation: list[Message] = []
        for one in claude_transcript.read(lines):
            asked = "\n\n".join(one.asked) or one.notice
            if not asked or not one.text or (one.notice and not conversation):
                continue
            turn = _transcript_turn(file, conversation, asked, one)
            new = not _captured(store, turn, one, heard) and _add(store, turn, seen_at=one.at or None)[1]
            report.turns += new
            report.known += not new
            conversation += [turn.messages[-1], _message("assistant", one.text)]
    return report


def _captured(store: Store, turn: Turn, one: Exchange, heard: dict[str, list[tuple[str, str]]]) -> bool:
    """Whether hooks or our server have stored this answer: the prompt's name is known, or the session has these words.

    ``heard``: session → what it has of prompts and answers, filled here.
    """
    agent = turn.agent
    if any(store.at_post(f"{agent}:prompt:{turn.session}:{name}") for name in one.ids if name):
        return True
    if turn.session not in heard:
        live = [
            t for name in (turn.session, f"{agent}:{turn.session}") for t in store.turns(1000, session=name)
        ]
        heard[turn.session] = [
            (_words(t.prompt), _words(t.response)) for t in live if not t.event_id.startswith(TRANSCRIPT)
        ]
    asked, said = {_words(text) for text in (turn.prompt, *one.asked)}, _words(turn.response)
    # Of several blocks of text a hook heard the last.
    return any(answer and prompt in asked and said.endswith(answer) for prompt, answer in heard[turn.session])


def _words(text: str) -> str:
    return " ".join(text.split())


def _message(role: str, text: str) -> Message:
    return {"role": role, "content": redact(text)}


def _transcript_turn(path: Path, earlier: list[Message], asked: str, one: Exchange) -> Turn:
    return Turn(
        session=one.session or path.stem,
        messages=(*earlier, _message("user", asked)),
        response=redact(one.text),
        agent="claude-code",
        kind="side" if one.end == "interrupted" else "main",
        model=one.model,
        cwd=one.cwd,
        event_id=f"{TRANSCRIPT}{one.name.split()[-1] if one.name.strip() else _hash((), asked, path.name)}",
        created_at=one.at,
    )
