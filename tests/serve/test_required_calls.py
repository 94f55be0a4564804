"""A call that is required, and a schema beside tools: the embedded model keeps to them in every dialect."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import pytest

from clawback import store
from clawback.dialects import BY_PATH, Asked
from clawback.inference import tool_choice
from clawback.paths import Home

from .conftest import Running

pytest.importorskip("llguidance")

NEWT: Any = [{"role": "user", "content": "Describe the newt."}]
ANIMAL = {
    "$defs": {"Kind": {"enum": ["mammal", "bird", "fish"], "title": "Kind", "type": "string"}},
    "additionalProperties": False,
    "properties": {
        "name": {"maxLength": 8, "title": "Name", "type": "string"},
        "legs": {"maximum": 100, "minimum": 0, "title": "Legs", "type": "integer"},
        "kind": {"$ref": "#/$defs/Kind"},
    },
    "required": ["name", "legs", "kind"],
    "title": "Animal",
    "type": "object",
}
"""As pydantic writes it, which is what instructor, PydanticAI and LangChain send."""
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 4}}, "required": ["city"], "additionalProperties": False}  # fmt: skip
FUNCTIONS = {"final_result": ANIMAL, "weather": CITY}


def in_chat(choice: Any) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": n, "description": "", "parameters": p, "strict": True}} for n, p in FUNCTIONS.items()]  # fmt: skip
    return {"messages": NEWT, "model": "clawback", "tools": tools, "tool_choice": choice}


def in_responses(choice: Any) -> dict[str, Any]:
    tools = [{"type": "function", "name": n, "parameters": p, "strict": True} for n, p in FUNCTIONS.items()]
    return {"input": "Describe the newt.", "model": "clawback", "tools": tools, "tool_choice": choice}


def in_messages(choice: Any) -> dict[str, Any]:
    tools = [{"name": n, "input_schema": p} for n, p in FUNCTIONS.items()]
    return {"messages": NEWT, "model": "clawback", "max_tokens": 300, "tools": tools, "tool_choice": choice}


REQUESTS = [
    # instructor's default, LangChain's function_calling
    ("chat/completions", in_chat({"type": "function", "function": {"name": "final_result"}}), ["final_result"]),
    # PydanticAI's default, smolagents, LlamaIndex
    ("chat/completions", in_chat("required"), [*FUNCTIONS]),
    ("chat/completions", in_chat({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "weather"}}]}}), ["weather"]),
    ("responses", in_responses("required"), [*FUNCTIONS]),
    ("responses", in_responses({"type": "function", "name": "weather"}), ["weather"]),
    ("messages", in_messages({"type": "any"}), [*FUNCTIONS]),
    ("messages", in_messages({"type": "tool", "name": "final_result"}), ["final_result"]),
]  # fmt: skip


@pytest.fixture
def server(embedded_server: Running) -> Running:
    return embedded_server


def newest(home: Home) -> Any:
    with store.connect(home.database) as db:
        return db.turns(limit=1)[0]


@pytest.mark.parametrize("number", range(len(REQUESTS)))
def test_a_required_call_is_made_whole_and_streamed(
    server: Running, embedded_home: Home, number: int
) -> None:
    path, body, names = REQUESTS[number]
    answer = httpx.post(f"{server.url}/v1/{path}", json=body | {"stream": number % 2 == 0}, timeout=60)
    assert answer.status_code == 200, answer.text
    heard = BY_PATH[f"/v1/{path}"].hear(answer.content)
    [call] = heard.calls
    assert (heard.text, heard.ending) == ("", "done")
    assert call["name"] in names
    jsonschema.validate(json.loads(call["arguments"]), FUNCTIONS[call["name"]])
    turn = newest(embedded_home)
    assert (turn.kind, turn.prompt, list(turn.calls)) == ("main", "Describe the newt.", [dict(call)])
    assert turn.response_ids is None, "no sample of the policy"


def test_a_schema_beside_tools_is_answered_by_a_document_or_a_call(
    server: Running, embedded_home: Home
) -> None:
    layout = {"type": "json_schema", "json_schema": {"name": "x", "schema": ANIMAL}}
    for seed in range(2):
        body = in_chat("auto") | {"response_format": layout, "seed": seed, "stream": seed == 0}
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
        heard = BY_PATH["/v1/chat/completions"].hear(answer.content)
        if heard.calls:
            [call] = heard.calls
            jsonschema.validate(json.loads(call["arguments"]), FUNCTIONS[call["name"]])
        else:
            jsonschema.validate(json.loads(heard.text), ANIMAL)
        assert newest(embedded_home).kind == "main"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (in_chat({"type": "function", "function": {"name": "other"}}), "no tool 'other'"),
        (in_chat("required") | {"tools": []}, "no tool that can be called"),
        (in_chat("sometimes"), "auto, none, required"),
        (in_chat(5), "auto, none, required"),
        (in_chat({"type": "custom"}), "auto, none, required"),
    ],
)
def test_a_choice_that_cannot_be_kept_to_is_refused_in_a_sentence(
    server: Running, body: dict[str, Any], word: str
) -> None:
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
    assert (answer.status_code, word in answer.json()["error"]["message"]) == (400, True), answer.text


def test_a_tool_that_the_provider_runs_is_none_that_can_be_called(server: Running) -> None:
    """As Claude Code asks for a search of the web."""
    tools = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]
    body = {"messages": NEWT, "model": "clawback", "max_tokens": 9, "tools": tools, "tool_choice": {"type": "tool", "name": "web_search"}}  # fmt: skip
    answer = httpx.post(f"{server.url}/v1/messages", json=body, timeout=60)
    assert (answer.status_code, "no tool" in answer.json()["error"]["message"]) == (400, True)


TREE = {
    "type": "object",
    "properties": {
        "default": {"$ref": "#/$defs/Leaf"},
        "$ref": {"type": "string"},
        "children": {"type": "array", "items": {"$ref": "#"}},
        "mark": {"const": {"$ref": "#/$defs/Leaf"}},
    },
    "$defs": {"Leaf": {"type": "integer"}},
    "required": ["children"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ({"children": []}, True),
        ({"children": [{"children": [], "default": 3}], "$ref": "x"}, True),
        ({"children": [], "mark": {"$ref": "#/$defs/Leaf"}}, True),
        ({"children": [{"children": [], "default": "3"}]}, False),
        ({"children": [{}]}, False),
        ({"children": [], "mark": {"$ref": "#/anyOf/1/properties/arguments/$defs/Leaf"}}, False),
    ],
)
def test_references_of_a_tools_schema_lead_to_its_own_parts(value: Any, valid: bool) -> None:
    tools = tuple({"type": "function", "function": {"name": n, "parameters": p}} for n, p in (("a", ANIMAL), ("tree", TREE)))  # fmt: skip
    schema = tool_choice.schema_of(Asked((), tools=tools, must_call=True))
    checks = jsonschema.Draft202012Validator(TREE), jsonschema.Draft202012Validator(schema or {})
    documents = (value, {"name": "tree", "arguments": value})
    assert [check.is_valid(one) for check, one in zip(checks, documents, strict=True)] == [valid, valid]


@pytest.mark.parametrize(
    ("parameters", "arguments", "valid"),
    [
        # As smolagents and LangChain write a tool.
        ({"type": "object", "properties": {"swims": {"type": "boolean"}}}, {"swims": True, "more": 1}, False),
        (
            {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}},
            {"a": {"b": 1}},
            False,
        ),
        ({"type": "object", "properties": {}, "additionalProperties": True}, {"b": 1}, True),
        ({"type": "object"}, {"b": 1}, True),
        ({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, {"a": 1, "b": 2}, True),
        ({"properties": {"a": {}}, "anyOf": [{"required": ["b"]}]}, {"a": 1, "b": 2}, True),
        ({"properties": {"a": {"default": {"properties": {}}, "type": "integer"}}}, {"a": 1}, True),
    ],
)
def test_a_call_has_the_arguments_that_its_tool_names(parameters: Any, arguments: Any, valid: bool) -> None:
    tools = ({"type": "function", "function": {"name": "f", "parameters": parameters}},)
    schema = tool_choice.schema_of(Asked((), tools=tools, must_call=True))
    document = {"name": "f", "arguments": arguments}
    assert jsonschema.Draft202012Validator(schema or {}).is_valid(document) == valid


def test_a_document_that_only_looks_like_a_call_stays_a_document() -> None:
    tools = ({"type": "function", "function": {"name": "weather"}},)
    for text in (
        '{"name": "otter", "arguments": {}}',
        '{"name": "weather"}',
        '{"name": "weather", "arguments": 3}',
        '{"name": "wea',
    ):
        assert tool_choice.call_of(text, tools) is None
    call = tool_choice.call_of('{"name": "weather", "arguments": {"city": "Graz"}}', tools)
    assert call
    assert (call["name"], json.loads(call["arguments"])) == ("weather", {"city": "Graz"})
