"""``tool_choice`` of every dialect, and the JSON schema of an answer that has to call a tool.

A call that is required is drawn as JSON, ``{"name": …, "arguments": …}``, held to the schemas of the tools. Where an
answer may be a call or a document (tools together with a response format), it is held to either of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clawback.dialects.parsing import dicts, text
from clawback.dialects.shapes import Asked, Body, Json
from clawback.inference import tools
from clawback.records import Message

_MODES = {"auto": "auto", "none": "none", "required": "required", "any": "required"}
_AS_IT_STANDS = ("const", "enum", "default", "examples")
"""Keywords of a schema whose values are data."""
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose value maps names of any kind to schemas."""


_OPEN = frozenset(
    ("additionalProperties", "patternProperties", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "$ref")
)
"""Keywords beside ``properties`` with which an object may have other fields, too."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    required: bool = False
    names: tuple[str, ...] | None = None
    """The tools that may be called; None: all of them."""


def parse(body: Body) -> ToolChoice:
    """What a request says of its tools. Raises ``ValueError`` for a value that no dialect has.

    >>> parse({"tool_choice": {"type": "function", "function": {"name": "look"}}})
    ToolChoice(required=True, names=('look',))
    >>> parse({"tool_choice": "none"}).names
    ()
    """
    value = body.get("tool_choice")
    if value in (None, "", {}):
        return ToolChoice()
    if isinstance(value, str):
        return _by_mode(value)
    kind = text(value.get("type")) if isinstance(value, dict) else ""
    if kind in ("function", "tool"):
        return ToolChoice(True, (_name(value),))
    if kind == "allowed_tools":
        inner = value.get("allowed_tools")
        inner = inner if isinstance(inner, dict) else value
        mode = _by_mode(text(inner.get("mode")) or "auto")
        return replace(mode, names=tuple(_name(tool) for tool in dicts(inner.get("tools"))))
    return _by_mode(kind)


def _by_mode(word: str) -> ToolChoice:
    mode = _MODES.get(word)
    if mode is None:
        raise ValueError("tool_choice: auto, none, required, or one of the tools by its name is needed.")
    return ToolChoice(mode == "required", () if mode == "none" else None)


def _name(tool: Body) -> str:
    function = tool.get("function")
    return text((function if isinstance(function, dict) else tool).get("name"))


def applied(request: Asked, choice: ToolChoice) -> Asked:
    """The request with the tools that may be called. Raises ``ValueError`` where a required one is not there."""
    known = {_name(tool): tool for tool in request.tools}
    if choice.required and not known:
        raise ValueError("tool_choice asks for a call, and the request has no tool that can be called here.")
    if choice.names is None:
        return replace(request, must_call=choice.required)
    if missing := [name for name in choice.names if name not in known]:
        raise ValueError(f"tool_choice: the request has no tool {missing[0][:100]!r}.")
    kept = tuple(known[name] for name in choice.names)
    return replace(request, tools=kept, must_call=choice.required and bool(kept))


def schema_of(request: Asked) -> Json | None:
    """The schema that a whole answer is held to: a call, a document, or either of them; None for free text."""
    if not (request.must_call or request.form is not None):
        return None
    if not request.tools:
        return request.form
    choices = [_call_schema(tool, f"#/anyOf/{n}") for n, tool in enumerate(request.tools)]
    if request.form is not None and not request.must_call:
        choices.append(_moved(request.form, f"#/anyOf/{len(choices)}"))
    return {"anyOf": choices}


def _call_schema(tool: Body, pointer: str) -> Json:
    parameters = tool["function"].get("parameters")
    known = parameters if isinstance(parameters, dict) and parameters else {"type": "object"}
    known = known if '"allOf"' in json.dumps(known, default=str) else _closed(known)
    arguments = _moved(known, f"{pointer}/properties/arguments")
    return {
        "type": "object",
        "properties": {"name": {"const": _name(tool)}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _closed(schema: object) -> Any:
    """A schema whose objects have the fields that it names, where it does not say otherwise: a program takes no other arguments."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed: Json = {}
    for key, value in schema.items():
        if key in _BY_NAME and isinstance(value, dict):
            closed[key] = {name: _closed(part) for name, part in value.items()}
        else:
            closed[key] = value if key in _AS_IT_STANDS else _closed(value)
    if isinstance(schema.get("properties"), dict) and not _OPEN & set(schema):
        closed["additionalProperties"] = False
    return closed


def _moved(schema: object, pointer: str) -> Any:
    """A schema that stands at ``pointer`` of another one: references to its own parts lead there."""
    if isinstance(schema, list):
        return [_moved(part, pointer) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return dict(_moved_entries(schema, pointer))


def _moved_entries(schema: Json, pointer: str) -> Iterator[tuple[str, Any]]:
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/")):
            yield key, pointer + value[1:]
        elif key in _BY_NAME and isinstance(value, dict):
            yield key, {name: _moved(part, pointer) for name, part in value.items()}
        elif key in _AS_IT_STANDS:
            yield key, value
        elif key not in ("$schema", "$id"):
            yield key, _moved(value, pointer)


def call_of(document: str, offered: Sequence[Body]) -> Message | None:
    """The call that a document written to ``schema_of`` is; None for another document, and for a part of one."""
    try:
        value = json.loads(document)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or set(value) != {"name", "arguments"}:
        return None
    if value["name"] not in {_name(tool) for tool in offered} or not isinstance(value["arguments"], dict):
        return None
    return tools.call_message(value["name"], value["arguments"])
