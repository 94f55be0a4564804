"""Reads Claude Code's record of a session, ``~/.claude/projects/…/SESSION.jsonl``.

An entry is a block of a response, a prompt, a tool's result, or an attachment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clawback.capture.exchanges import ERROR_CHARACTERS, Exchange, entries, moment
from clawback.endings import ending_of
from clawback.records import text_of
from clawback.reminders import without_reminders

INTERRUPTED = "[Request interrupted by user"
NOTICE = "<task-notification>"
SENT_BACK = "Stop hook feedback"
"""How the entry begins by which a hook sends an answer back: what follows is another answer."""


def read(lines: Iterable[str]) -> list[Exchange]:
    exchanges: list[Exchange] = []
    for entry in entries(lines, ('"user"', '"assistant"', '"queued_command"')):
        if entry.get("isSidechain"):
            continue
        kind, message = entry.get("type"), entry.get("message")
        if kind == "attachment":
            _add_steering(exchanges, entry.get("attachment"))
        elif kind == "user" and isinstance(message, dict):
            _add_user(exchanges, entry, message.get("content"))
        elif kind == "assistant" and isinstance(message, dict):
            _add_response(exchanges, entry, message)
    return exchanges


def _add_steering(exchanges: list[Exchange], attachment: object) -> None:
    """A queued message that the agent took into its running turn."""
    if not isinstance(attachment, dict) or attachment.get("type") != "queued_command" or not exchanges:
        return
    text = without_reminders(text_of(attachment.get("prompt")))
    if text and attachment.get("commandMode", "prompt") == "prompt" and _of_person(attachment):
        exchanges[-1].requests.append(text)


def _of_person(entry: Mapping[str, object]) -> bool:
    origin = entry.get("origin")
    return not isinstance(origin, dict) or origin.get("kind", "human") == "human"


def _add_user(exchanges: list[Exchange], entry: Mapping[str, object], content: object) -> None:
    blocks = content if isinstance(content, list) else []
    results = [b for b in blocks if isinstance(b, dict) and b.get("type") == "tool_result"]
    if results:
        if not exchanges:  # its prompt is before the part that was read
            exchanges.append(Exchange())
        for block in results:
            exchanges[-1].add_result(block.get("tool_use_id"), block.get("content"))
        return
    text = text_of(content).strip()
    prompt_id = str(entry.get("promptId") or "")
    if text.startswith(INTERRUPTED):
        if exchanges:
            exchanges[-1].end = "interrupted"
    elif entry.get("isMeta") or entry.get("isCompactSummary"):
        if exchanges and text.startswith(SENT_BACK):
            exchanges[-1].begin_again()
    elif text.startswith(NOTICE):
        exchanges.append(Exchange([prompt_id], notice=text, session=str(entry.get("sessionId") or "")))
    elif _of_person(entry) and (words := without_reminders(text)):
        last = exchanges[-1] if exchanges else None
        if last is None or last.response or last.end:
            exchanges.append(Exchange(session=str(entry.get("sessionId") or "")))
        # Messages that were queued one after the other are answered together.
        exchanges[-1].requests.append(words)
        exchanges[-1].ids.append(prompt_id)


def _add_response(
    exchanges: list[Exchange], entry: Mapping[str, object], message: Mapping[str, object]
) -> None:
    if not exchanges:
        exchanges.append(Exchange())
    last = exchanges[-1]
    if entry.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
        last.end, last.error = "failed", text_of(message.get("content")).strip()[:ERROR_CHARACTERS]
        return
    name = str(message.get("id") or entry.get("uuid") or "")
    same = name == last.response
    last.response, last.end = name, ""
    last.model = str(message.get("model") or "") or last.model
    content = message.get("content")
    blocks = [b for b in content if isinstance(b, dict)] if isinstance(content, list) else [{"text": content}]
    texts = []
    for block in blocks:
        if block.get("type") == "tool_use":
            last.add_call(name, block.get("id"), block.get("name"), block.get("input"))
        elif text := text_of([block]).strip():
            texts.append(text)
            last.add_text(name, text)
    shown = same and last.name.startswith(f"{name} ")
    if texts or shown:
        last.stop = ending_of(message.get("stop_reason")) or ""
    if texts:
        last.blocks = [*last.blocks, *texts] if shown else texts
        last.name = f"{name} {entry.get('uuid') or ''}"
        last.cwd = str(entry.get("cwd") or "")
        last.at = moment(entry.get("timestamp"))
        last.session = str(entry.get("sessionId") or last.session)
