"""Parses tool calls in a local model's text: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, as Hermes, Qwen and others write them.

Anything that is no valid call stays text.
"""

from __future__ import annotations

import json
import uuid

from clawback.records import Message

OPENS, CLOSES = "<tool_call>", "</tool_call>"


def find(text: str) -> tuple[str, tuple[Message, ...]]:
    """The text without its calls, and the calls. Each sign is read once: a model may write a thousand openings and no end."""
    calls: list[Message] = []
    kept: list[str] = []
    at = 0
    while (end := text.find(CLOSES, at)) >= 0:
        begin = text.rfind(OPENS, at, end)
        call = _call(text[begin + len(OPENS) : end]) if begin >= 0 else None
        after = end + len(CLOSES)
        kept.append(text[at : after if call is None else begin])
        calls += [] if call is None else [call]
        at = after
    rest = "".join([*kept, text[at:]])
    return (rest.strip() if calls else text), tuple(calls)


def _call(written: str) -> Message | None:
    try:
        made = json.loads(written)
        name, arguments = made["name"], made.get("arguments", {})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    given = json.dumps(arguments, ensure_ascii=False)
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "name": name, "arguments": given}
