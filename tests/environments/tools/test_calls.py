"""Calls are read from replies however models write them; nothing is evaluated, and nothing hostile stops the reader."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.environments.tools import calls
from clawback.environments.tools.calls import Call

ADD = Call("add", {"a": 1, "b": "two"}, "call_0")
AS_JSON = '{"name": "add", "arguments": {"a": 1, "b": "two"}}'


def said(text: Any) -> calls.ParsedReply:
    return calls.read({"role": "assistant", "content": text})


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>\n{AS_JSON}\n</tool_call>",
        f"<tool_call>{AS_JSON}",
        f"<think>I add them: <tool_call>no</tool_call></think><tool_call>{AS_JSON}</tool_call>",
        f"[TOOL_CALLS] [{AS_JSON}]",
        AS_JSON,
        f"<|python_tag|>{AS_JSON.replace('arguments', 'parameters')}",
        f"```json\n{AS_JSON}\n```",
        "[add(a=1, b='two')]",
    ],
)
def test_one_call_in_every_dialect(text: str) -> None:
    assert said(text) == calls.ParsedReply("", (ADD,))


def test_several_calls_and_what_is_said_beside_them() -> None:
    reply = said(f"First.\n<tool_call>{AS_JSON}</tool_call>\n<tool_call>{AS_JSON}</tool_call>")
    assert reply.text == "First."
    assert [call.id for call in reply.calls] == ["call_0", "call_1"]
    assert [c.name for c in said("[f(x=[1, 2]), g.h()]").calls] == ["f", "g.h"]


def test_structured_calls_keep_their_ids() -> None:
    message = calls.message([ADD, Call("stop")], "Now.")
    assert calls.read(message) == calls.ParsedReply("Now.", (ADD, Call("stop", {}, "call_1")))
    flat = {"role": "assistant", "tool_calls": [{"id": "z", "name": "add", "arguments": {"a": 1}}]}
    assert calls.read(flat).calls == (Call("add", {"a": 1}, "z"),)


@pytest.mark.parametrize(
    "text",
    ["Call add(a=1) please", "", "{}", "[1, 2]", '{"name": "Otter"}', "[x for x in y]", "[add(1)]", "[add(a=b)]", "[add(**{})]", "x = [f(a=1)]", "None", "[__import__('os').system('true')]"],
)  # fmt: skip
def test_what_is_no_call_stays_text(text: str) -> None:
    assert said(text) == calls.ParsedReply(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<tool_call>{</tool_call>", "no JSON"),
        ("<tool_call>[1]</tool_call>", "without a name"),
        ('<tool_call>{"name": "f", "arguments": "{"}</tool_call>', "no JSON"),
        ('<tool_call>{"name": "f", "arguments": 3}</tool_call>', "no object"),
        ("[TOOL_CALLS] nonsense", "no JSON"),
    ],
)
def test_what_tried_to_be_a_call_is_a_problem(text: str, says: str) -> None:
    reply = said(text)
    assert not reply.calls
    assert says in reply.problems[0]


def test_a_flood_of_calls_is_cut() -> None:
    reply = said(f"<tool_call>{AS_JSON}</tool_call>" * 5000)
    assert len(reply.calls) == calls.MOST_CALLS
    assert "more than" in reply.problems[0]
    assert said("<tool_call>" * 100_000).calls == ()
    assert said("[" * 100_000 + ")]").calls == ()


TEXTS = st.one_of(
    st.text(max_size=80),
    st.lists(st.sampled_from(["<tool_call>", "</tool_call>", "{", "}", '"name"', ":", '"f"', "[TOOL_CALLS]", "[f(a=", ")]", "<think>", "```"])).map("".join),
)  # fmt: skip
ARGUMENTS = st.dictionaries(st.text(max_size=5), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x, max_size=3), max_leaves=5), max_size=3)  # fmt: skip


@given(TEXTS)
def test_any_text_is_read_without_a_crash(text: str) -> None:
    reply = said(text)
    assert isinstance(reply.text, str)


@given(st.text(min_size=1), ARGUMENTS)
def test_what_is_written_is_read_back(name: str, arguments: dict[str, Any]) -> None:
    told = calls.message([Call(name, arguments, "i")])
    assert calls.read(told).calls == (Call(name, json.loads(json.dumps(arguments)), "i"),)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "string"}, "a?: string"),
        ({"type": ["integer", "null"], "title": "A"}, "a?: integer | null"),
        ({"type": "string", "enum": ["on", "off"]}, 'a?: "on" | "off"'),
        ({"enum": [1, None]}, "a?: 1 | null"),
        ({"type": "array", "items": {"type": "string", "description": "left out"}}, "a?: list of string"),
        ({"type": "array"}, "a?: array"),
        ({}, "a?: any"),
        (True, "a?: any"),
        ({"type": "array", "items": {"enum": [1]}}, 'a?: {"type": "array", "items": {"enum": [1]}}'),
        ({"type": "integer", "minimum": 0}, 'a?: {"type": "integer", "minimum": 0}'),
        (
            {"type": "object", "properties": {"b": {"type": "string"}}},
            'a?: {"type": "object", "properties": {"b": {"type": "string"}}}',
        ),
    ],
)
def test_a_tool_is_shown_as_a_signature_that_says_all_of_its_schema(schema: Any, told: str) -> None:
    parameters = {"type": "object", "properties": {"a": schema}}
    assert calls.listed([{"function": {"name": "f", "parameters": parameters}}]) == f"f({told})"


def test_a_schema_that_a_signature_cannot_say_stays_as_it_is() -> None:
    parameters = {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}
    function = {"name": "f", "parameters": parameters}
    assert json.loads(calls.listed([{"function": function}])) == function


def test_a_tool_is_one_line_however_it_is_described() -> None:
    takes = {"room": {"type": "string", "description": "which\n\none?"}, "n": {"type": "integer"}}
    parameters = {"type": "object", "properties": takes, "required": ["room"]}
    function = {"name": "light", "description": "Set\nit", "parameters": parameters}
    assert calls.listed([{"function": function}, {"function": {"name": "stop"}}]).splitlines() == [
        "light(room: string, n?: integer): Set it. room: which one?",
        "stop()",
    ]


_KEYS = st.sampled_from(
    ["name", "parameters", "properties", "required", "type", "items", "enum", "description", "a\n"]
)
_ODD = st.recursive(st.none() | st.booleans() | st.text(), lambda x: st.lists(x) | st.dictionaries(_KEYS, x), max_leaves=12)  # fmt: skip


@given(_ODD)
def test_whatever_comes_as_a_tool_is_a_line(tool: Any) -> None:
    assert "\n" not in calls.listed([{"function": tool}])


def test_a_conversation_in_words_keeps_its_beginning() -> None:
    tools = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {}}}]
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]
    first = calls.in_words(talk, tools)
    assert [m["role"] for m in first] == ["system", "user"]
    assert "Be brief." in first[0]["content"]
    assert first[0]["content"].endswith("\nadd(): Add.")
    more = [*talk, calls.message([ADD], "I add."), {"role": "tool", "content": "3", "tool_call_id": "call_0"}]
    after = calls.in_words(more, tools)
    assert after[:2] == first
    assert after[2]["content"] == f"I add.\n<tool_call>{AS_JSON}</tool_call>"
    assert calls.read(after[2]).calls == (ADD,)
    assert after[3] == {"role": "user", "content": "<tool_response>3</tool_response>"}
    assert calls.in_words(talk[1:], tools)[0]["role"] == "system"
