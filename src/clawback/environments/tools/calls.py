"""Tool calls: parsed from a reply in any common format, and rendered as text for models whose template has none.

A message with ``tool_calls`` has been parsed already (by a server). Otherwise its text may hold calls between the
markers of any format in ``formats``, or be nothing but calls: JSON as Llama writes it (``{"name", "parameters"}``) or
Python (``[f(a=1), g()]``). An environment may add code fences of its own (``bash`` with a command). Nothing of it is
evaluated.

This is the only parser: every environment reads replies with ``read``, and the server reads a local model's text
with ``read_text``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from clawback.environments.core import Tool
from clawback.environments.tools import call_formats
from clawback.environments.tools.call_formats import MARKERS, MOST_CALLS, Call, python_calls
from clawback.environments.world_helpers import text as text_of_reply
from clawback.records import Message

__all__ = ["MARKERS", "MOST_CALLS", "Call", "ParsedReply", "python_calls", "read", "read_text"]
BARE_STARTS = (
    "{",
    "[",
    "<|python_tag|>",
    "<|python_start|>",
    "functools[",
    "```json",
    "```python",
    "```tool_code",
    "```tool_call",
)
"""What a reply that is nothing but calls may begin with."""
_FENCED = re.compile(r"\A```(?:json|python|tool_code|tool_call)?\s*\n(.*?)\n?```\Z", re.DOTALL)
_FENCE = re.compile(r"^```[ \t]*(\w+)[ \t]*([^\n`]*)\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
_FENCE_START = re.compile(r"^```[ \t]*(\w+)\b", re.MULTILINE)
_FENCE_END = re.compile(r"^```[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """What a message says and calls. ``problems``: what looked like a call and could not be read."""

    text: str
    calls: tuple[Call, ...] = ()
    problems: tuple[str, ...] = ()
    problem_ids: tuple[str, ...] = ()
    """The id of each call that could not be read, "" where it has none."""
    bare: bool = field(default=False, compare=False)
    """Whether the calls are the whole text, without a marker: JSON or Python that may be meant as such."""


Fence = Callable[[str, str], Call | str]
"""Makes a call of a code fence's first line (without the fence's word) and its content; or a sentence: what is wrong."""
NO_FENCES: Mapping[str, Fence] = MappingProxyType({})


def read(
    message: Message, fences: Mapping[str, Fence] = NO_FENCES, tools: Sequence[Mapping[str, Any]] = ()
) -> ParsedReply:
    """The calls of a message. A text that only mentions a tool is no call.

    ``fences``: the words after three backticks that make a call, and how. The format that comes first in the text is the
    one that is read: a marker within a fence is part of a command, a fence within a call's JSON is part of an argument.
    ``tools``: what may be called; formats without quotes take the types of values from it.
    """
    text = text_of_reply(message)
    if structured := message.get("tool_calls"):
        return _collected(text, (_structured(call) for call in structured))
    return read_text(text, fences, tools)


def read_text(
    text: str, fences: Mapping[str, Fence] = NO_FENCES, tools: Sequence[Mapping[str, Any]] = ()
) -> ParsedReply:
    """The calls of a text, without what a model thought."""
    found = {marker: start for marker in MARKERS if (start := text.find(marker)) >= 0}
    first = min(found, key=lambda marker: found[marker], default="")
    fence = next((m.start() for m in _FENCE_START.finditer(text) if m[1] in fences), -1)
    if fence >= 0 and (not first or fence < found[first]):
        return _from_fences(text, fences)
    if first == call_formats.MISTRAL:
        return _collected(text.partition(first)[0].strip(), call_formats.mistral(text))
    return _from_markers(text, first, tools) if first else _bare(text, tools)


def message(calls: Sequence[Call], text: str = "") -> Message:
    """An assistant message with these calls, as OpenAI-style APIs write it."""
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [
            {
                "id": call.id or f"call_{n}",
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(dict(call.arguments), ensure_ascii=False),
                },
            }
            for n, call in enumerate(calls)
        ],
    }


@dataclass(frozen=True, slots=True)
class _Unread:
    """A call that cannot be read: why, and its id."""

    problem: str
    id: str = ""


def _collected(text: str, parts: Iterable[Call | str | _Unread], numbered: bool = True) -> ParsedReply:
    """``numbered``: calls without an id get one."""
    calls: list[Call] = []
    unread: list[_Unread] = []
    for n, part in enumerate(parts):
        if n >= MOST_CALLS:
            unread.append(_Unread(f"more than {MOST_CALLS} calls in one reply"))
            break
        if isinstance(part, Call):
            calls.append(part if part.id or not numbered else Call(part.name, part.arguments, f"call_{n}"))
        else:
            unread.append(_Unread(part) if isinstance(part, str) else part)
    return ParsedReply(
        text, tuple(calls), tuple(part.problem for part in unread), tuple(part.id for part in unread)
    )


def _structured(call: object) -> Call | _Unread:
    """``{"id", "function": {"name", "arguments"}}``, or flat as our own records have it."""
    if not isinstance(call, Mapping):
        return _Unread("a tool call that is no object")
    function = call.get("function") if isinstance(call.get("function"), Mapping) else call
    parsed, id = call_formats.call(function), str(call.get("id") or "")
    return _Unread(parsed, id) if isinstance(parsed, str) else Call(parsed.name, parsed.arguments, id)


def _from_markers(text: str, marker: str, tools: Sequence[Mapping[str, Any]]) -> ParsedReply:
    """Calls between a marker and its end. What stands there and cannot be read stays in the text."""
    parts: list[Call | str] = []
    rest: list[str] = []
    at = 0
    for body in call_formats.bodies(text, marker):
        calls = call_formats.read(body, tools)
        _, mentioned, written = body.text.rpartition(marker)
        if mentioned and body.text.find(marker, 1) > 0 and not any(isinstance(part, Call) for part in calls):
            calls = call_formats.read(
                replace(body, text=written.strip()), tools
            )  # it was only mentioned before
        parts += calls
        if all(isinstance(part, Call) for part in calls):
            rest.append(text[at : body.start])
            at = body.end
        if len(parts) > MOST_CALLS:
            break
    return _collected("".join([*rest, text[at:]]).strip(), parts)


def _from_fences(text: str, fences: Mapping[str, Fence]) -> ParsedReply:
    """Fences with known words, as calls without ids. Other fences only show something."""
    # The search ends behind the last closing line: each of many openings would be followed to the end.
    end = max((closing.end() for closing in _FENCE_END.finditer(text)), default=0)
    parts: list[Call | str] = []
    rest: list[str] = []
    at = 0
    for fence in _FENCE.finditer(text, 0, end):
        if fence[1] in fences:
            parts.append(fences[fence[1]](fence[2].strip(), fence[3]))
            rest.append(text[at : fence.start()])
            at = fence.end()
    if any(start[1] in fences for start in _FENCE_START.finditer(text, end)):
        parts.append("The fence is not closed. End it with a line of three backticks.")
    return _collected("".join([*rest, text[at:]]).strip(), parts, numbered=False)


def _bare(written: str, tools: Sequence[Mapping[str, Any]]) -> ParsedReply:
    """A reply that is nothing but calls: JSON, Python, or a tool's name and JSON where a tokenizer drops the markers."""
    whole = written.strip().removeprefix("<|python_tag|>").strip()
    whole = whole.removeprefix("<|python_start|>").removesuffix("<|python_end|>").strip()
    whole = whole.removeprefix("functools") if whole.startswith("functools[") else whole
    fenced = _FENCED.match(whole)
    inner = fenced[1].strip() if fenced else whole
    if inner.startswith(("{", "[{")):
        try:
            found = call_formats.values(inner)
        except (ValueError, RecursionError):
            return ParsedReply(written)
        parts = [part for value in found for part in (value if isinstance(value, list) else [value])]
        if parts and all(
            isinstance(p, Mapping) and "name" in p and {"arguments", "parameters"} & set(p) for p in parts
        ):
            return replace(_collected("", (call_formats.call(part) for part in parts)), bare=True)
        return ParsedReply(written)
    if named := call_formats.bare(inner, tools):
        return replace(_collected("", named), bare=True)
    calls = python_calls(inner) if inner.startswith("[") and inner.endswith(")]") else None
    return ParsedReply(written) if calls is None else replace(_collected("", calls), bare=True)


FORM = (
    "To call one, write a line\n"
    '<tool_call>{"name": "…", "arguments": {…}}</tool_call>\n'
    "and nothing after the last of them; the results come back to you."
)


_SIGNED = {"type", "properties", "required", "additionalProperties", "title", "description", "$schema"}
"""Of a tool's parameters, what a signature says or nobody needs; not so ``$defs`` or ``oneOf``."""


def listed(tools: Sequence[Tool]) -> str:
    """Tools in words, a line each: ``light(room: string, percent?: integer): What it does. percent: 100 is brightest.``

    As signatures and not as JSON Schema: a small model fills in what it is shown and calls ``{"type": "string"}``, and a signature has a third of
    the tokens.
    """
    return "\n".join(_signature(_mapping(tool.get("function"))) for tool in tools)


def _signature(function: Mapping[str, object]) -> str:
    """Of a definition that may be anybody's: what is not as it should be is left out. One whose schema says more than a signature stays as it is."""
    schema = _mapping(function.get("parameters"))
    if not schema.keys() <= _SIGNED:
        return json.dumps(function, ensure_ascii=False)
    takes, needed = _mapping(schema.get("properties")), schema.get("required")
    needed = needed if isinstance(needed, list) else []
    named = ", ".join(
        f"{_line(name)}{'' if name in needed else '?'}: {_type(kind)}" for name, kind in takes.items()
    )
    about = [_line(function.get("description"))]
    about += [
        f"{_line(name)}: {line}"
        for name, kind in takes.items()
        if (line := _line(_mapping(kind).get("description")))
    ]
    said = " ".join(text if text.endswith((".", "!", "?")) else f"{text}." for text in about if text)
    return f"{_line(function.get('name'))}({named})" + (f": {said}" if said else "")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _line(text: object) -> str:
    return " ".join(str(text or "").split())


def _type(schema: object) -> str:
    """A type in words; as the schema itself where it says more than words do."""
    rest = {key: value for key, value in _mapping(schema).items() if key not in ("description", "title")}
    kind, items = rest.get("type"), _mapping(rest.get("items"))
    if rest.keys() == {"type"} and isinstance(kind, str | list):
        return _line(kind) if isinstance(kind, str) else " | ".join(map(_line, kind))
    if isinstance(rest.get("enum"), list) and rest.keys() <= {"type", "enum"}:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in rest["enum"])
    if (
        kind == "array"
        and rest.keys() == {"type", "items"}
        and items.keys() <= {"type", "description", "title"}
    ):
        return f"list of {_type(items)}"
    return json.dumps(rest, ensure_ascii=False) if rest else "any"


def in_words(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """A conversation for a model whose chat template knows no tools: the tools in the system message, calls and results as text.

    Each message becomes one message and keeps its place, so what is appended leaves what was rendered before as it was.
    """
    made = [_in_words(each) for each in messages]
    if not tools:
        return made
    told = f"You can call these tools. {FORM}\n{listed(tools)}"
    if made and made[0]["role"] == "system":
        return [{"role": "system", "content": f"{made[0]['content']}\n\n{told}"}, *made[1:]]
    return [{"role": "system", "content": told}, *made]


def _in_words(each: Message) -> Message:
    said = text_of_reply(each) if each.get("role") == "assistant" else each.get("content") or ""
    if each.get("role") == "tool":
        return {"role": "user", "content": f"<tool_response>{said}</tool_response>"}
    if calls := [call for call in map(_structured, each.get("tool_calls") or ()) if isinstance(call, Call)]:
        told = [
            json.dumps({"name": c.name, "arguments": dict(c.arguments)}, ensure_ascii=False) for c in calls
        ]
        lines = [f"<tool_call>{line}</tool_call>" for line in told]
        return {"role": "assistant", "content": "\n".join([*([str(said)] if said else []), *lines])}
    return {"role": str(each.get("role", "user")), "content": said}
