"""Tool calls in the text of a local model: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, as Hermes, Qwen and others write
them. What is no valid call stays text."""

from __future__ import annotations

import json
import re
import uuid

from clawback.records import Message

OPENS = "<tool_call>"
_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


def find(text: str) -> tuple[str, tuple[Message, ...]]:
    """The text without its calls, and the calls."""
    calls: list[Message] = []

    def take(match: re.Match[str]) -> str:
        try:
            made = json.loads(match[1])
            name, arguments = made["name"], made.get("arguments", {})
        except (ValueError, KeyError, TypeError, RecursionError):
            return match[0]
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return match[0]
        given = json.dumps(arguments, ensure_ascii=False)
        calls.append({"id": f"call_{uuid.uuid4().hex[:24]}", "name": name, "arguments": given})
        return ""

    rest = _CALL.sub(take, text)
    return (rest.strip() if calls else text), tuple(calls)
