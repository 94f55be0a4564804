"""What models write between the markers of a tool call: one reader for the bodies of all formats.

| format | as it is written |
| --- | --- |
| Hermes, Qwen, Granite, Phi | ``<tool_call>{"name", "arguments"}</tool_call>``, one object or a list |
| Qwen3-Coder, Seed | ``<tool_call><function=f><parameter=a>1</parameter></function></tool_call>`` |
| Llama 3.1 | ``<function=f>{"a": 1}</function>`` |
| GLM | ``<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>`` |
| MiniMax, DeepSeek V3.2 | ``<invoke name="f"><parameter name="a">1</parameter></invoke>`` |
| DeepSeek, Kimi | a section of calls, each a name, a separator and JSON |
| Mistral | ``[TOOL_CALLS] […]`` or ``[TOOL_CALLS]f[ARGS]{…}`` |
| gpt-oss | ``<|channel|>commentary to=functions.f<|message|>{…}<|call|>`` |
| LFM, OLMo | Python calls between markers |

Where a format writes values without quotes, the tool's schema says which of them are texts. Nothing is evaluated.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one tool."""

    name: str
    arguments: Json = field(default_factory=dict)
    id: str = ""


MOST_CALLS = 64
"""Calls of one reply that are read."""
MISTRAL = "[TOOL_CALLS]"
WRAPPERS: Mapping[str, str] = {
    "<tool_call>": "</tool_call>",
    "<tool_calls>": "</tool_calls>",
    "<function=": "</function>",
    "<function_calls>": "</function_calls>",
    "<TOOLCALL>": "</TOOLCALL>",
    "<minimax:tool_call>": "</minimax:tool_call>",
    "<seed:tool_call>": "</seed:tool_call>",
    "<|tool_call|>": "<|/tool_call|>",
    "<|tool_call_start|>": "<|tool_call_end|>",
    "<|START_ACTION|>": "<|END_ACTION|>",
    "<|tool_calls_section_begin|>": "<|tool_calls_section_end|>",
    "<｜tool▁calls▁begin｜>": "<｜tool▁calls▁end｜>",
    "<｜DSML｜function_calls>": "</｜DSML｜function_calls>",
    "<|channel|>commentary to=": "<|call|>",
}
"""What begins a call wherever it stands in a text, and what ends it."""
MARKERS = (*WRAPPERS, MISTRAL)

_NAME = r"[\w.\-/]{1,128}"
_FUNCTION = re.compile(rf"<function=({_NAME})>")
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]{1,128})>(.*?)</parameter>", re.DOTALL)
_FUNCTION_END = re.compile(r"\s*</function>")
_INVOKE = re.compile(rf'<(?:｜DSML｜)?invoke name="({_NAME})">')
_NAMED = re.compile(
    r'\s*<(?:｜DSML｜)?parameter name="([^"\n]{1,128})"(?: string="(?:true|false)")?>(.*?)</(?:｜DSML｜)?parameter>',
    re.DOTALL,
)
_INVOKE_END = re.compile(r"\s*</(?:｜DSML｜)?invoke>")
_KEYED = re.compile(r"\s*<arg_key>([^<]{1,128})</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_PART = re.compile(r"<｜tool▁call▁begin｜>|<\|tool_call_begin\|>")
_BEFORE_JSON = re.compile(
    rf"\s*(?:function<｜tool▁sep｜>)?(?:functions\.)?({_NAME})(?::\d+)?\s*"
    r"(?:<｜tool▁sep｜>|<\|tool_call_argument_begin\|>|\[CALL_ID\](\w*)|\[ARGS\]"
    r"|<\|constrain\|>\w+|<\|message\|>|```json|\s)*(?=\{)"
)
_SEPARATORS = re.compile(r"[\s;,]*")


@dataclass(frozen=True, slots=True)
class CallBody:
    """What stands between a marker and its end, from ``start`` to ``end`` of the text with both of them."""

    text: str
    start: int
    end: int
    closed: bool


def bodies(text: str, marker: str) -> Iterator[CallBody]:
    """The bodies of all calls with one marker. One without an end goes on to the next marker, or to the end of the text."""
    if marker == "<function=":
        # Some models forget the wrapper's beginning, and write its end.
        pattern = r"(<function=.*?(?:(</function>)|\Z))(?:\s*</tool_call>)?"
    else:
        pattern = f"{re.escape(marker)}(.*?)(?:({re.escape(WRAPPERS[marker])})|\\Z)"
    for found in re.finditer(pattern, text, re.DOTALL):
        if found[2] is not None:
            yield CallBody(found[1].strip(), found.start(), found.end(), True)
            continue
        start = found.start()
        while start >= 0:
            following = text.find(marker, start + len(marker))
            end = following if following >= 0 else len(text)
            first = start if marker == "<function=" else start + len(marker)
            yield CallBody(text[first:end].strip(), start, end, False)
            start = following


def read(body: CallBody, tools: Sequence[Json] = ()) -> list[Call | str]:
    """The calls of one body, and a sentence for what cannot be read. ``tools``: definitions, for the types of values."""
    written, schemas = body.text, _schemas(tools)
    if _FUNCTION.search(written):
        return _elements(written, (_FUNCTION, _PARAMETER, _FUNCTION_END), schemas)
    if _INVOKE.search(written):
        return _elements(written, (_INVOKE, _NAMED, _INVOKE_END), schemas)
    if "<arg_key>" in written or written in schemas:
        return [_keyed(written, schemas) if body.closed else f"the call of {written[:40]!r} is not closed"]
    if _PART.search(written):
        return [named(part) for part in _PART.split(written) if part.strip()]
    if _BEFORE_JSON.match(written):
        return [named(written)]
    if not written.startswith(("{", "[{")) and (calls := _pythons(written)):
        return list(calls)
    return from_json(written)


def mistral(text: str) -> list[Call | str]:
    """All calls behind ``[TOOL_CALLS]``: a list of objects, or a name and its arguments for each."""
    found: list[Call | str] = []
    at = text.find(MISTRAL)
    while at >= 0 and len(found) <= MOST_CALLS:
        at += len(MISTRAL)
        at += len(text[at:]) - len(text[at:].lstrip())
        start = _BEFORE_JSON.match(text, at)
        try:
            value, end = json.JSONDecoder().raw_decode(text, start.end() if start else at)
        except (ValueError, RecursionError) as error:
            found.append(f"a tool call that is no JSON: {error}")
            end = at
        else:
            if start:
                found.append(Call(start[1], value, start[2] or ""))
            else:
                found += [call(part) for part in (value if isinstance(value, list) else [value])]
        at = text.find(MISTRAL, end)
    return found


def named(written: str) -> Call | str:
    """A name, whatever stands between, and the arguments as JSON."""
    start = _BEFORE_JSON.match(written)
    if start is None:
        return "a tool call without a name"
    try:
        arguments, _ = json.JSONDecoder().raw_decode(written, start.end())
    except (ValueError, RecursionError) as error:
        return f"the arguments of {start[1]} are no JSON: {error}"
    return Call(start[1], arguments, start[2] or "")


def bare(written: str, tools: Sequence[Json]) -> list[Call]:
    """Names of these tools with JSON behind them, where the text is nothing else; else none."""
    known, found, at = _schemas(tools), [], 0
    while at < len(written) and (start := _BEFORE_JSON.match(written, at)) and start[1] in known:
        try:
            arguments, at = json.JSONDecoder().raw_decode(written, start.end())
        except (ValueError, RecursionError):
            return []
        found.append(Call(start[1], arguments))
    return [] if written[at:].strip() else found


def from_json(written: str) -> list[Call | str]:
    """Objects, lists of objects, or several of them with ``;``, a comma or a line between."""
    found: list[Call | str] = []
    try:
        for value in values(written):
            found += [call(part) for part in (value if isinstance(value, list) else [value])]
    except (ValueError, RecursionError) as error:
        return [f"a tool call that is no JSON: {error}"]
    return found or ["a tool call that is no JSON: it is empty"]


def values(written: str) -> list[Any]:
    """All JSON values of a text that holds nothing else but separators. Raises ``ValueError``."""
    decoder, at, found = json.JSONDecoder(), 0, []
    while at < len(written):
        value, at = decoder.raw_decode(written, at)
        found.append(value)
        separator = _SEPARATORS.match(written, at)
        at = separator.end() if separator else at
    return found


def call(value: Any) -> Call | str:
    """One call as an object, whatever the format calls its fields."""
    if isinstance(value, Mapping) and isinstance(value.get("function"), Mapping):
        value = value["function"]
    name = value.get("name", value.get("tool_name")) if isinstance(value, Mapping) else None
    if not isinstance(name, str):
        return "a tool call without a name"
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            return f"the arguments of {name} are no JSON: {error}"
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        return f"the arguments of {name} are no object"
    return Call(name, dict(arguments))


def python_calls(written: str) -> list[Call] | None:
    """``[f(a=1), g.h(b="x")]`` or ``f(a=1)`` as calls, read and not run; None where it is something else."""
    try:
        node = ast.parse(written.strip(), mode="eval").body
        nodes = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
        calls: list[Call] = []
        for part in nodes:
            if not isinstance(part, ast.Call) or part.args:
                return None
            arguments = {word.arg: ast.literal_eval(word.value) for word in part.keywords if word.arg}
            if len(arguments) != len(part.keywords):
                return None
            calls.append(Call(ast.unparse(part.func), arguments))
        return calls
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None


def _pythons(written: str) -> list[Call]:
    """Python calls, as a list or one a line; none where a line is something else."""
    if (listed := python_calls(written)) is not None:
        return listed
    found = [python_calls(line) for line in written.splitlines() if line.strip()]
    return [] if None in found else [call for calls in found for call in calls or ()]


def _schemas(tools: Sequence[Json]) -> dict[str, Json]:
    """The properties of each tool's parameters by its name. Definitions may be anybody's."""
    found: dict[str, Json] = {}
    for tool in tools:
        function = _mapping(tool.get("function")) or tool
        parameters = _mapping(function.get("parameters") or function.get("input_schema"))
        found[str(function.get("name"))] = _mapping(parameters.get("properties"))
    return found


def _mapping(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}


def _elements(
    written: str, patterns: tuple[re.Pattern[str], ...], schemas: Mapping[str, Json]
) -> list[Call | str]:
    """Calls as elements: a beginning with the name, a value for each parameter (or JSON), and an end."""
    first, parameter, last = patterns
    found: list[Call | str] = []
    at = 0
    while len(found) <= MOST_CALLS and (start := first.search(written, at)):
        name, at = start[1], start.end()
        if written[at:].lstrip().startswith("{"):
            found.append(named(f"{name} {written[at:]}"))
            continue
        pairs, at = _pairs(parameter, written, at)
        if last.match(written, at):
            found.append(_typed(name, pairs, schemas))
        else:
            found.append(f"the call of {name} is not closed")
    return found


def _keyed(written: str, schemas: Mapping[str, Json]) -> Call | str:
    """A name, and keys and values in turns."""
    name = written.partition("<arg_key>")[0]
    pairs, end = _pairs(_KEYED, written, len(name))
    if written[end:].strip() or not re.fullmatch(_NAME, name.strip()):
        return f"the arguments of {name.strip()[:40]!r} cannot be read"
    return _typed(name.strip(), pairs, schemas)


def _pairs(pattern: re.Pattern[str], written: str, at: int) -> tuple[list[tuple[str, str]], int]:
    """Names and values, one behind the other, and where they end."""
    pairs = []
    while found := pattern.match(written, at):
        pairs.append((found[1].strip(), found[2]))
        at = found.end()
    return pairs, at


def _typed(name: str, pairs: Sequence[tuple[str, str]], schemas: Mapping[str, Json]) -> Call:
    takes = schemas.get(name, {})
    return Call(name, {key: _value(text, takes.get(key)) for key, text in pairs})


_WORDS = {"True": True, "False": False, "None": None}


def _value(text: str, schema: object) -> object:
    """A value that is written without quotes: a text where the schema says so, else JSON, else a text."""
    text = text.removeprefix("\n").removesuffix("\n")
    kinds = _kinds(schema)
    if kinds and kinds <= {"string", "null"}:
        return None if "null" in kinds and text.strip() == "null" else text
    word = text.strip()
    if word in _WORDS:
        return _WORDS[word]
    try:
        value = json.loads(word)
    except (ValueError, RecursionError):
        return text
    # Quotes are the format's own only where the schema asks for something else than a text.
    return text if isinstance(value, str) and not kinds else value


def _kinds(schema: object) -> set[str]:
    """The types that a value may have; empty for any."""
    schema = _mapping(schema)
    kind, choices = schema.get("type"), schema.get("anyOf") or schema.get("oneOf")
    if isinstance(kind, str | list):
        return {kind} if isinstance(kind, str) else {str(each) for each in kind}
    if isinstance(choices, list):
        found = [_kinds(choice) for choice in choices]
        return set().union(*found) if all(found) else set()
    enum = schema.get("enum")
    texts = isinstance(enum, list) and all(isinstance(each, str) for each in enum)
    return {"string"} if texts and enum else set()
