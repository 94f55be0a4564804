"""Tool calls in a local model's text, as API clients take them. The parser is ``environments/tools/calls.py``.

Anything that is no valid call stays text. Where the request names tools, a text that is nothing but calls of
these is read, too: Llama's JSON and Python's calls have no marker.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from clawback.environments.tools import calls as reading
from clawback.records import Message

Tools = Sequence[Mapping[str, Any]]


def find(text: str, tools: Tools = ()) -> tuple[str, tuple[Message, ...]]:
    """The text without its calls, and the calls. A call that cannot be read stays in the text."""
    reply = reading.read_text(text, tools=tools)
    known = {_name(tool) for tool in tools}
    if not reply.calls or (reply.bare and not {call.name for call in reply.calls} <= known):
        return text, ()
    return reply.text, tuple(call_message(call.name, call.arguments) for call in reply.calls)


def certain(text: str, tools: Tools = ()) -> int:
    """Characters at the beginning of a text that grows which are no part of a call, whatever follows."""
    found = [text.index(marker) for marker in reading.MARKERS if marker in text]
    if found:
        return min(found)
    begins = text.lstrip()
    names = [_name(tool) for tool in tools]
    starts = (
        *reading.BARE_STARTS,
        *(f"{name}{{" for name in names),
        *(f"functions.{name}" for name in names),
    )
    if tools and any(begins.startswith(start) or start.startswith(begins) for start in starts):
        return 0
    longest = max(map(len, reading.MARKERS))
    for count in range(min(longest, len(text)), 0, -1):
        if any(marker.startswith(text[-count:]) for marker in reading.MARKERS):
            return len(text) - count
    return len(text)


def _name(tool: Mapping[str, object]) -> str:
    function = tool.get("function")
    return str((function if isinstance(function, Mapping) else tool).get("name"))


def call_message(name: str, arguments: Mapping[str, object]) -> Message:
    """A call as API clients take it, with an id of its own."""
    written = json.dumps(dict(arguments), ensure_ascii=False)
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "name": name, "arguments": written}
