"""Import from other programs: ReinforceClaw's database, and the record files of OpenClaw-RL's server.

**ReinforceClaw** (``~/.reinforceclaw/reinforceclaw.db``, 0.1.0): one row per rating, with prompt, response,
the conversation before it as JSON (``rollout_context``), +1 or -1, and where it was given. Opened read-only;
its adapters stay where they are.

**OpenClaw-RL** (``OPENCLAW_RECORD_FILE``, one JSON object per line: session, turn, messages, the answer as
its chat template writes it, tool calls and what came next) and, beside it, the votes of its judge
(``NAME_prm.jsonl``). A vote becomes a judge's feedback, weighted by how far that judge agrees with you.
Nothing else is inferred: the only words of a person in the file are what they wrote next.
"""

from __future__ import annotations

import calendar
import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from clawback.capture import text_rows
from clawback.errors import NotFound, UsageError
from clawback.extensions.data_sets.entries import BadLine, Consent, digest
from clawback.extensions.importers.importing import parsed
from clawback.extensions.importers.storing import ImportReport, add
from clawback.records import Feedback, JsonObject, Message, Turn
from clawback.redact import redact, redact_all
from clawback.thinking import split_thinking

if TYPE_CHECKING:
    from clawback.store import Store

_END = re.compile(r"(?:<\|[A-Za-z_]{2,20}\|>|</s>)\Z")
"""What chat templates write after an answer, once or several times."""
_END_LENGTH = 24
_CALLS, _CALL_CLOSES = re.compile(r"<tool_call>.*?</tool_call>", re.DOTALL), "</tool_call>"
_OPTIONAL = ("model", "rollout_context", "event_id", "source", "created_at")
JUDGE = "judge:openclaw-rl"
ROW_SECONDS, MOST_BYTES = 30.0, 64 << 20
"""What a row of somebody's database may take, and the length of a value in it."""
MOST_TEXT = 4000
"""Characters that are kept of what a judge wrote."""


def _record(row: text_rows.Row) -> JsonObject:
    """The object of a line. Raises ``BadLine``."""
    record = parsed(row)
    if not isinstance(record, dict):
        raise BadLine("not a JSON object")
    return record


# ------------------------------------------------------------------------------------------------- ReinforceClaw


def import_reinforceclaw(
    store: Store, path: Path, *, consent: Consent = "", licence: str = ""
) -> ImportReport:
    """Every rating of its database. Raises ``NotFound`` without a file, ``UsageError`` for one that is no such database."""
    if not path.is_file():
        raise NotFound(f"There is no file {path}. ReinforceClaw keeps it as ~/.reinforceclaw/reinforceclaw.db.")  # fmt: skip
    report = ImportReport()
    for number, row in _rows(path):
        try:
            turn = _reinforceclaw_turn(row, consent, licence)
        except BadLine as error:
            report.problems.append(f"row {number}: {error}")
            continue
        stored, new = add(store, turn)
        report.turns += new
        report.known += not new
        value = float(row["rating"])
        _store_opinion(store, report, Feedback(stored.id, "rating", value, source=str(row["source"] or "cli")[:40], event_id=f"{turn.event_id}:{value:g}", created_at=turn.created_at))  # fmt: skip
    return report


def _rows(path: Path) -> Iterator[tuple[int, JsonObject]]:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            clock = _bounded(db)
            kind = db.execute("SELECT type, sql FROM sqlite_master WHERE name = 'feedback'").fetchone()
            if kind and (kind["type"] != "table" or "virtual" in str(kind["sql"]).lower().split()[:3]):
                raise UsageError(
                    f"{path} is no database of ReinforceClaw's: its feedback is a program (a {kind['type']}), and no table."
                )
            db.execute(
                "SELECT id, prompt, response, rating FROM feedback LIMIT 0"
            )  # older ones have fewer columns than these
            for row in db.execute("SELECT * FROM feedback ORDER BY id"):
                yield int(row["id"]), dict.fromkeys(_OPTIONAL) | dict(row)
                clock()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no database of ReinforceClaw's that can be read: {error}.") from error


def _bounded(db: sqlite3.Connection) -> Callable[[], None]:
    """Limits for a database that somebody else made, whose columns may be programs: the time for the next row and the
    length of a value. The function that is returned starts the time again."""
    until = [time.monotonic() + ROW_SECONDS]

    def restart() -> None:
        until[0] = time.monotonic() + ROW_SECONDS

    db.set_progress_handler(lambda: int(time.monotonic() > until[0]), 10_000)
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
    db.execute("PRAGMA trusted_schema = OFF")
    return restart


def _reinforceclaw_turn(row: Mapping[str, object], consent: Consent, licence: str) -> Turn:
    prompt, response = str(row["prompt"] or ""), str(row["response"] or "")
    if not prompt.strip() or not response.strip():
        raise BadLine("the prompt or the response is empty")
    if row["rating"] not in (-1, 0, 1):
        raise BadLine(f"the rating is {row['rating']!r}, not -1, 0 or 1")
    context = _json(row["rollout_context"])
    messages = [m for m in context.get("messages", []) if _is_message(m)]
    if not messages or messages[-1].get("content") != prompt:
        messages.append({"role": "user", "content": prompt})
    named = str(row["event_id"] or digest(tuple(messages), response, str(row["id"])))
    return Turn(
        session=str(context.get("session_id") or context.get("sessionId") or context.get("conversation_id") or "reinforceclaw"),
        messages=tuple(redact_all(m) for m in messages),
        response=redact(response),
        agent=str(row["source"] or "reinforceclaw").replace("_", "-"),
        model=str(row["model"] or ""),
        cwd=str(context.get("cwd") or ""),
        event_id=f"reinforceclaw:{named}",
        created_at=_time(row["created_at"]),
        consent=consent,
        licence=licence,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------- OpenClaw-RL


class _Vote(NamedTuple):
    score: float
    why: str


def import_openclaw_rl(store: Store, path: Path, *, consent: Consent = "", licence: str = "") -> ImportReport:
    """Every turn of a record file, with the votes of the file beside it where there is one."""
    report = ImportReport()
    votes = _votes(path.with_name(f"{path.stem}_prm{path.suffix}"), report)
    for row in text_rows.read(path):
        try:
            data = _record(row)
            turn = _openclaw_turn(data, consent, licence)
        except BadLine as error:
            report.problems.append(f"line {row.number}: {error}")
            continue
        stored, new = add(store, turn)
        report.turns += new
        report.known += not new
        if turn.next_state:
            store.put_next_state(stored.id, turn.next_state)
        key = (str(data.get("session_id")), data.get("turn"))
        if (queued := votes.get(key)) and (vote := queued.pop(0)).score:
            _store_opinion(store, report, Feedback(stored.id, "judge", vote.score, redact(vote.why), source=JUDGE, event_id=f"{turn.event_id}:prm"))  # fmt: skip
    return report


def _votes(path: Path, report: ImportReport) -> dict[tuple[str, Any], list[_Vote]]:
    """(session, turn) → votes in the order in which they were written: a session that begins anew counts its turns anew."""
    votes: dict[tuple[str, Any], list[_Vote]] = {}
    if not path.is_file():
        return votes
    for row in text_rows.read(path):
        try:
            data = _record(row)
        except BadLine as error:
            report.problems.append(f"{path.name}, line {row.number}: {error}")
            continue
        score = data.get("score")
        if isinstance(score, (int, float)) and score in (-1, 0, 1) and isinstance(data.get("turn"), int):
            key = (str(data.get("session_id")), data["turn"])
            vote = _Vote(float(score), str(data.get("representative_eval") or "")[:MOST_TEXT])
            votes.setdefault(key, []).append(vote)
        else:
            report.problems.append(f"{path.name}, line {row.number}: no score of -1, 0 or 1")
    return votes


def _without_end(text: str) -> str:
    end = len(text)
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        match = _END.search(text, max(0, end - _END_LENGTH), end)
        if match is None:
            return text[:end]
        end = match.start()


def _without_calls(text: str) -> str:
    closed = text.rfind(_CALL_CLOSES) + len(_CALL_CLOSES)
    return text if closed < len(_CALL_CLOSES) else _CALLS.sub("", text[:closed]) + text[closed:]


def _openclaw_turn(data: Mapping[str, Any], consent: Consent, licence: str) -> Turn:
    messages = data.get("messages")
    written = data.get("response_text")
    if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
        raise BadLine("`messages` is not a list of messages")
    if not isinstance(written, str):
        raise BadLine("`response_text` is missing")
    calls = tuple(_call(c) for c in data.get("tool_calls") or () if isinstance(c, dict))
    thinking, response = split_thinking(_without_end(written))
    response = (_without_calls(response) if calls else response).strip()
    if not response and not calls:
        raise BadLine("`response_text` is empty")
    came = data.get("next_state")
    session, at = str(data.get("session_id") or "openclaw-rl"), str(data.get("timestamp") or "")
    name = digest(tuple(messages), written, f"{session}/{data.get('turn')}")
    return Turn(
        session=session,
        messages=tuple(redact_all(m) for m in messages),
        response=redact(response),
        agent="openclaw",
        event_id=f"openclaw-rl:{name}",
        created_at=_time(at),
        calls=tuple(redact_all(c) for c in calls),
        next_state=(redact_all(came),) if _is_message(came) else (),
        thinking=redact(thinking),
        consent=consent,
        licence=licence,
    )


def _call(call: Mapping[str, object]) -> Message:
    of = call.get("function") if isinstance(call.get("function"), dict) else call
    assert isinstance(of, Mapping)
    return {"id": str(call.get("id") or ""), "name": str(of.get("name") or ""), "arguments": of.get("arguments") or ""}  # fmt: skip


# -------------------------------------------------------------------------------------------------------- shared


def _store_opinion(store: Store, report: ImportReport, opinion: Feedback) -> None:
    if not opinion.value:
        return
    before = len(store.feedback(turn_id=opinion.turn_id, active=False))
    store.add_feedback(opinion)
    report.feedback += len(store.feedback(turn_id=opinion.turn_id, active=False)) - before


def _is_message(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("role"), str)
        and isinstance(value.get("content"), (str, list, type(None)))
    )


def _json(text: object) -> JsonObject:
    try:
        value = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}
    document: JsonObject = value if isinstance(value, dict) else {}
    return document if isinstance(document.get("messages", []), list) else {}


def _time(text: object) -> float:
    """Seconds since 1970 of ``2026-11-22 21:00:00``; 0 (now) for anything else. ReinforceClaw writes UTC, OpenClaw-RL its server's own time,
    which nobody knows: hours may be off."""
    try:
        return float(calendar.timegm(time.strptime(str(text)[:19], "%Y-%m-%d %H:%M:%S")))
    except ValueError:
        return 0.0
