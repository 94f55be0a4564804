"""Reads an agent's own record of a session: what was asked, in which words, what was answered, and how it ended.

Hooks report less: there is no event for an interrupted answer, only the last of several text blocks, and no
event for a message that was queued while the agent was at work. Claude Code's last message is often not in
its record yet when ``Stop`` fires.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from clawback.records import text_of, without_reminders

TAILS = (400_000, 8_000_000)
"""Bytes read from the end of a record: first the former, and the latter where the exchange begins before it."""
INTERRUPTED = "[Request interrupted by user"
_AS_SENT = '"api-request'
"""Requests as they were sent, which are large, are entries of their own."""
NOTICE = "<task-notification>"


@dataclass(slots=True)
class Exchange:
    """A request and the answers and tool calls that followed it."""

    ids: list[str] = field(default_factory=list)
    """The agent's names for the prompts that it answers."""
    asked: list[str] = field(default_factory=list)
    """What the person wrote: the request, then what they added while the agent was at work."""
    notice: str = ""
    """Or what the agent wrote to itself, about work that was asked for before."""
    blocks: list[str] = field(default_factory=list)
    """The text of the last response that has any, block by block."""
    response: str = ""
    """The name of the newest response."""
    end: str = ""
    """``interrupted``, ``failed``, ``done``; "" where it is under way, or not known."""
    error: str = ""
    model: str = ""
    cwd: str = ""
    session: str = ""
    name: str = ""
    """The entry's own name of the answer."""
    at: float = 0.0
    """When the answer was written."""

    @property
    def text(self) -> str:
        return "\n".join(block for block in self.blocks if block.strip()).strip()


def recent(agent: str, path: str, prompt_id: str = "") -> list[Exchange]:
    """The newest exchanges of a session, oldest first, including that of the given prompt if the record has it.

    Empty for an agent whose records are not supported, and for a missing record. Raises nothing.
    """
    read = READERS.get(agent)
    if read is None or not path:
        return []
    found: list[Exchange] = []
    for most in TAILS:
        lines, all_of_it = _tail(path, most)
        found = read(lines)
        if all_of_it or any(
            one.asked or one.notice for one in found if not prompt_id or prompt_id in one.ids
        ):
            break
    return found


def of_prompt(exchanges: Iterable[Exchange], prompt_id: str) -> Exchange | None:
    return next((one for one in exchanges if prompt_id and prompt_id in one.ids), None)


def _tail(path: str, most: int) -> tuple[list[str], bool]:
    """The last lines of a file, and whether these are all. A line that is cut at the front is left out."""
    try:
        # Whoever tells of a path may tell of a pipe, which must not hold us up.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return [], True
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return [], True
        start = max(0, status.st_size - most)
        file.seek(start)
        lines = file.read(most).decode("utf-8", "replace").split("\n")
    return lines[1:] if start else lines, start == 0


def _entries(lines: Iterable[str], marks: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Lines that hold one of the marks; others (requests as they were sent, snapshots of files) are large and say nothing here."""
    for line in lines:
        if any(mark in line for mark in marks) and _AS_SENT not in line[:40]:
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict):
                yield entry


# -------------------------------------------------------------------------------------------------- Claude Code


def claude_code(lines: Iterable[str]) -> list[Exchange]:
    """``~/.claude/projects/…/SESSION.jsonl``: an entry a block of a response, a prompt, a tool's result, an attachment."""
    found: list[Exchange] = []
    for entry in _entries(lines, ('"user"', '"assistant"', '"queued_command"')):
        if entry.get("isSidechain"):
            continue
        kind, message = entry.get("type"), entry.get("message")
        if kind == "attachment":
            _steered(found, entry.get("attachment"))
        elif kind == "user" and isinstance(message, dict):
            _claude_user(found, entry, message.get("content"))
        elif kind == "assistant" and isinstance(message, dict):
            _claude_response(found, entry, message)
    return found


def _steered(found: list[Exchange], attachment: Any) -> None:
    """A queued message that the agent took into its running turn."""
    if not isinstance(attachment, dict) or attachment.get("type") != "queued_command" or not found:
        return
    said = without_reminders(text_of(attachment.get("prompt")))
    if said and attachment.get("commandMode", "prompt") == "prompt" and _of_person(attachment):
        found[-1].asked.append(said)


def _of_person(entry: Mapping[str, Any]) -> bool:
    origin = entry.get("origin")
    return not isinstance(origin, dict) or origin.get("kind", "human") == "human"


def _claude_user(found: list[Exchange], entry: Mapping[str, Any], content: Any) -> None:
    blocks = content if isinstance(content, list) else []
    if any(isinstance(b, dict) and b.get("type") == "tool_result" for b in blocks):
        return
    text = text_of(content).strip()
    prompt_id = str(entry.get("promptId") or "")
    if text.startswith(INTERRUPTED):
        if found:
            found[-1].end = "interrupted"
    elif entry.get("isMeta") or entry.get("isCompactSummary"):
        return
    elif text.startswith(NOTICE):
        found.append(Exchange([prompt_id], notice=text, session=str(entry.get("sessionId") or "")))
    elif _of_person(entry) and (said := without_reminders(text)):
        last = found[-1] if found else None
        if last is None or last.response or last.end:
            found.append(Exchange(session=str(entry.get("sessionId") or "")))
        # Messages that were queued one after the other are answered together.
        found[-1].asked.append(said)
        found[-1].ids.append(prompt_id)


def _claude_response(found: list[Exchange], entry: Mapping[str, Any], message: Mapping[str, Any]) -> None:
    if not found:  # its prompt is before the part that was read
        found.append(Exchange())
    last = found[-1]
    if entry.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
        last.end, last.error = "failed", text_of(message.get("content")).strip()[:200]
        return
    name = str(message.get("id") or entry.get("uuid") or "")
    same = name == last.response
    last.response, last.end = name, ""
    content = message.get("content")
    texts = (
        [text_of([b]) for b in content if isinstance(b, dict)]
        if isinstance(content, list)
        else [text_of(content)]
    )
    texts = [text.strip() for text in texts if text.strip()]
    if texts:
        last.blocks = [*last.blocks, *texts] if same and last.name.startswith(name) else texts
        last.name = f"{name} {entry.get('uuid') or ''}"
        last.model, last.cwd = str(message.get("model") or ""), str(entry.get("cwd") or "")
        last.at = _moment(entry.get("timestamp"))
        last.session = str(entry.get("sessionId") or last.session)


# -------------------------------------------------------------------------------------------------------- Codex


def codex(lines: Iterable[str]) -> list[Exchange]:
    """``~/.codex/sessions/…/rollout-….jsonl``. Of an answer that is interrupted Codex keeps nothing but that it was."""
    found: list[Exchange] = []
    marks = (
        '"task_started"',
        '"turn_aborted"',
        '"task_complete"',
        '"item_completed"',
        '"user_message"',
        '"agent_message"',
    )
    for entry in _entries(lines, marks):
        told = entry.get("payload")
        if entry.get("type") == "event_msg" and isinstance(told, dict):
            _codex_event(found, told, _moment(entry.get("timestamp")))
    return [one for one in found if one.asked or one.blocks or one.end in ("interrupted", "failed")]


def _codex_event(found: list[Exchange], told: Mapping[str, Any], at: float) -> None:
    kind, turn = told.get("type"), str(told.get("turn_id") or "")
    if kind == "task_started" or not found or (turn and turn not in found[-1].ids):
        found.append(Exchange([turn]))
    last = found[-1]
    item = told.get("item") if kind == "item_completed" else None
    if isinstance(item, dict):
        pieces = item.get("content")
        texts = [p for p in pieces if isinstance(p, dict)] if isinstance(pieces, list) else []
        said = "".join(str(p.get("text") or "") for p in texts)
        kind = {"UserMessage": "user_message", "AgentMessage": "agent_message"}.get(str(item.get("type")), "")
    else:
        said = str(told.get("message") or "")
    if kind == "user_message" and (plain := without_reminders(said)) and plain not in last.asked:
        last.asked.append(plain)
    elif kind == "agent_message" and said.strip():
        last.blocks, last.at = [said.strip()], at
    elif kind == "turn_aborted":
        last.end = "interrupted"
    elif kind == "task_complete":
        error = told.get("error")
        last.end = "failed" if error else "done"
        last.error = (
            str(error.get("message") or "")[:200] if isinstance(error, dict) else str(error or "")[:200]
        )


def _moment(stamp: Any) -> float:
    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except ValueError:
        return 0.0


READERS = {"claude-code": claude_code, "codex": codex}
