"""Python functions as tools: type hints and the docstring become a JSON schema."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union

from clawback.environments.core import Tool
from clawback.errors import UsageError

Json = dict[str, Any]
_PLAIN: dict[Any, Json] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
    dict: {"type": "object"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    set: {"type": "array"},
    Any: {},
    inspect.Parameter.empty: {},
}
_SECTION = re.compile(
    r"^\s*(args|arguments|parameters|returns?|raises|yields|examples?|notes?):\s*$", re.IGNORECASE
)
_PARAMETER = re.compile(r"^(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_SPHINX = re.compile(r"^[ \t]*:param\s+(?:[\w\[\], ]+\s+)?(\w+):\s*(.*)$", re.MULTILINE)


def definition(function: Callable[..., Any], name: str = "") -> Tool:
    """A function as OpenAI-style APIs describe it. Its docstring may be Google's or Sphinx's style.

    Raises ``UsageError`` for a type that JSON cannot carry, and for parameters without names.
    """
    said, described = documentation(inspect.getdoc(function) or "")
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        hints = {}
    properties: Json = {}
    required: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(
                f"{function.__name__} takes {parameter}, which a tool call cannot name: give it named parameters."
            )
        made = of(hints.get(parameter.name, parameter.empty), f"{function.__name__}({parameter.name})")
        if parameter.name in described:
            made = {**made, "description": described[parameter.name]}
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif isinstance(parameter.default, (str, int, float, bool)):
            made = {**made, "default": parameter.default}
        properties[parameter.name] = made
    parameters: Json = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {"name": name or function.__name__, "description": said, "parameters": parameters},
    }


def of(hint: object, where: str = "") -> Json:
    """The JSON schema of a type hint. Raises ``UsageError`` for one that JSON cannot carry."""
    if isinstance(hint, type(None)):
        hint = type(None)
    try:
        if hint in _PLAIN:
            return dict(_PLAIN[hint])
    except TypeError:  # a hint that cannot be hashed
        pass
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        note = next((part for part in inner[1:] if isinstance(part, str)), "")
        return of(inner[0], where) | ({"description": note} if note else {})
    if origin is Literal:
        return {"enum": list(inner)} | ({"type": "string"} if all(isinstance(v, str) for v in inner) else {})
    if origin in (Union, types.UnionType):
        return _union(inner, where)
    if origin in (list, set, frozenset, Sequence, tuple):
        return _array(origin, inner, where)
    if origin in (dict, Mapping):
        values = of(inner[1], where) if len(inner) == 2 else {}
        return {"type": "object"} | ({"additionalProperties": values} if values else {})
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or typing.is_typeddict(hint)):
        return _record(hint, where)
    raise UsageError(
        f"{where or hint} has the type {hint}, which a tool call cannot carry. Use str, int, float, bool, list, dict, Literal."
    )


def _union(inner: tuple[Any, ...], where: str) -> Json:
    made = [of(part, where) for part in inner]
    if all(set(part) == {"type"} for part in made):
        return {"type": [part["type"] for part in made]}
    return {"anyOf": made}


def _array(origin: object, inner: tuple[Any, ...], where: str) -> Json:
    if origin is tuple and inner and inner[-1] is not Ellipsis:
        each = [of(part, where) for part in inner]
        return {"type": "array", "prefixItems": each, "minItems": len(each), "maxItems": len(each)}
    return {"type": "array"} | ({"items": of(inner[0], where)} if inner else {})


def _record(hint: Any, where: str) -> Json:
    hints = typing.get_type_hints(hint)
    if dataclasses.is_dataclass(hint):
        missing = dataclasses.MISSING
        fields = dataclasses.fields(hint)
        required = [f.name for f in fields if f.default is missing and f.default_factory is missing]
    else:
        required = sorted(hint.__required_keys__)
    return {
        "type": "object",
        "properties": {name: of(part, where) for name, part in hints.items()},
        "required": required,
        "additionalProperties": False,
    }


def documentation(doc: str) -> tuple[str, dict[str, str]]:
    """What a docstring says of the function, and of each of its parameters."""
    described = {name: text.strip() for name, text in _SPHINX.findall(doc)}
    said: list[str] = []
    section, name, indent = "", "", 0
    for line in doc.splitlines():
        if found := _SECTION.match(line):
            section, name = found[1].lower(), ""
            continue
        if not section:
            if not line.lstrip().startswith(":"):
                said.append(line)
            continue
        if section not in ("args", "arguments", "parameters") or not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        entry = _PARAMETER.match(line.strip())
        if entry and (not name or depth <= indent):
            name, indent = entry[1].lstrip("*"), depth
            described[name] = entry[2].strip()
        elif name:
            described[name] = f"{described[name]} {line.strip()}".strip()
    return "\n".join(said).strip(), described
