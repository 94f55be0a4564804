"""Reads the Gemini CLI's record of a session, ``~/.gemini/tmp/…/chats/session-….json``: one document, or a message a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from clawback.capture.exchanges import ERROR_CHARACTERS, Exchange, moment
from clawback.endings import ending_of
from clawback.reminders import without_reminders

if TYPE_CHECKING:
    from clawback.records import JsonObject

_KINDS = ("user", "gemini", "error", "info")


def read(lines: Iterable[str]) -> list[Exchange]:
    """Prompts have no names that events bring, so that each exchange is named ""."""
    exchanges: list[Exchange] = []
    for message in _messages(list(lines)):
        kind, text = message.get("type"), _text(message.get("content"))
        if kind == "user":
            if _returns(message.get("content")):
                continue  # a tool's result, which stands with its call
            words = without_reminders(text)
            if words and (not exchanges or exchanges[-1].steps):
                exchanges.append(Exchange([""]))
            if words:
                exchanges[-1].requests.append(words)
        elif kind == "gemini" and exchanges:
            _add_response(exchanges[-1], message, text)
        elif kind == "error" and exchanges:
            exchanges[-1].end, exchanges[-1].error = "failed", text.strip()[:ERROR_CHARACTERS]
        elif kind == "info" and exchanges and "cancel" in text[:100].lower():
            exchanges[-1].end = "interrupted"
    return exchanges


def _returns(content: object) -> bool:
    """Whether a message brings what a function returned: the model's request for it was no person's."""
    parts = content if isinstance(content, list) else [content]
    return any(isinstance(part, dict) and "functionResponse" in part for part in parts)


def _add_response(exchange: Exchange, message: Mapping[str, object], text: str) -> None:
    name = str(message.get("id") or f"response {len(exchange.steps)}")
    exchange.response, exchange.model = name, str(message.get("model") or "") or exchange.model
    exchange.end, exchange.error = "", ""
    if text.strip():
        exchange.stop = ending_of(message.get("finishReason") or message.get("finish_reason")) or ""
        exchange.add_text(name, text.strip())
        exchange.blocks, exchange.at = [text.strip()], moment(message.get("timestamp"))
    calls = message.get("toolCalls")
    listed = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    for call in listed:
        exchange.add_call(name, call.get("id"), call.get("name"), call.get("args"))
    for call in listed:
        if call.get("result") is not None:
            exchange.add_result(call.get("id"), _text(call["result"]) or call["result"])


def _messages(lines: list[str]) -> list[JsonObject]:
    try:
        document = json.loads("\n".join(lines))
        value = document.get("messages") if isinstance(document, dict) else document
        return [m for m in value if isinstance(m, dict)] if isinstance(value, list) else []
    except (ValueError, RecursionError):
        pass
    messages: dict[str, JsonObject] = {}
    for number, line in enumerate(lines):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(record, dict):
            continue
        changed = record.get("$set")
        listed = changed.get("messages") if isinstance(changed, dict) else None
        if isinstance(listed, list):  # a session that is gone on with begins with all that was said
            messages = {}
        if isinstance(record.get("$rewindTo"), str):
            _rewind(messages, record["$rewindTo"])
        for place, message in enumerate(listed if isinstance(listed, list) else [record]):
            if isinstance(message, dict) and message.get("type") in _KINDS:
                # A line replaces an earlier one of that name.
                messages[str(message.get("id") or f"line {number}:{place}")] = message
    return list(messages.values())


def _rewind(messages: dict[str, JsonObject], name: str) -> None:
    """Take back that message and all after it; without that message all."""
    names = list(messages)
    for one in names[names.index(name) if name in messages else 0 :]:
        del messages[one]


def _text(content: object) -> str:
    """The text of parts: strings, ``{"text"}``, and what a function returned."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part, dict) and isinstance(part.get("functionResponse"), dict):
            response = part["functionResponse"].get("response")
            output = response.get("output", response.get("error")) if isinstance(response, dict) else None
            texts.append(output if isinstance(output, str) else json.dumps(response, ensure_ascii=False))
    return "\n".join(texts)
