"""Conversations as lists of messages: a learned prompt put into one, in the same way for all who answer or learn, and the newest part of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clawback.records import Message, text_of

SYSTEM = ("system", "developer")


def under(messages: Sequence[Message], prompt: str) -> tuple[Message, ...]:
    """A conversation with the prompt after what the agent's own system prompt says: once, however often it is put there.

    At the end of the leading system messages, because what comes before stays as the provider has it in its cache, and some providers look at how the
    agent's own prompt begins.
    """
    if not prompt.strip():
        return tuple(messages)
    head = 0
    while head < len(messages) and messages[head].get("role") in SYSTEM:
        head += 1
    if any(prompt.strip() in text_of(m.get("content")) for m in messages if m.get("role") in SYSTEM):
        return tuple(messages)
    if not head:
        return ({"role": "system", "content": prompt.strip()}, *messages)
    last = messages[head - 1]
    return (*messages[: head - 1], {**last, "content": joined(last.get("content"), prompt)}, *messages[head:])


def joined(content: Any, prompt: str) -> Any:
    """The content of a system message with the prompt at its end: text as text, blocks as one block more."""
    if isinstance(content, (list, tuple)):
        return [*content, {"type": "text", "text": prompt.strip()}]
    own = content.rstrip() if isinstance(content, str) else ""
    return f"{own}\n\n{prompt.strip()}" if own else prompt.strip()


def newest_messages(messages: Sequence[Message], characters: int) -> list[Message]:
    """The newest messages with at most so many characters, calls of tools included. They do not begin within a call."""
    start = len(messages)
    while start and (characters := characters - _characters(messages[start - 1])) >= 0:
        start -= 1
    while 0 < start < len(messages) and messages[start].get("role") == "tool":
        start += 1
    return list(messages[start:])


def _characters(message: Message) -> int:
    calls = message.get("tool_calls")
    return len(str(message.get("content", ""))) + (len(str(calls)) if calls else 0)
