"""Every format that models write tool calls in is read, by the environments and by the server, and typed by the schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.environments.tools import call_formats, calls
from clawback.environments.tools.calls import Call
from clawback.inference import tools as served

ARGUMENTS = '{"a": 1, "b": "two"}'
OBJECT = f'{{"name": "add", "arguments": {ARGUMENTS}}}'
TAKES = {"a": {"type": "integer"}, "b": {"type": "string"}}
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": TAKES}}}
NOW = {"type": "function", "function": {"name": "now"}}

FORMATS = {
    "qwen3-coder": "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\ntwo\n</parameter>\n</function>\n</tool_call>",
    "qwen3-coder, no beginning": "<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\ntwo\n</parameter>\n</function>\n</tool_call>",
    "seed-oss": "<seed:tool_call><function=add><parameter=a>1</parameter><parameter=b>two</parameter></function></seed:tool_call>",
    "llama 3.1": f"<function=add>{ARGUMENTS}</function>",
    "llama 3": f'<|python_tag|>{{"name": "add", "parameters": {ARGUMENTS}}}',
    "llama 4": "<|python_start|>[add(a=1, b='two')]<|python_end|>",
    "glm 4.5": "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n<arg_value>two</arg_value>\n</tool_call>",
    "glm 4.7": "<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>b</arg_key><arg_value>two</arg_value></tool_call>",
    "glm 4": f"<tool_call>add\n{ARGUMENTS}</tool_call>",
    "minimax": '<minimax:tool_call>\n<invoke name="add">\n<parameter name="a">1</parameter>\n<parameter name="b">two</parameter>\n</invoke>\n</minimax:tool_call>',
    "deepseek v3.2": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="add">\n<｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>\n<｜DSML｜parameter name="b" string="true">two</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    "deepseek v3": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek v3.1": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "kimi": f"<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>",
    "kimi, markers dropped": f"functions.add:0{ARGUMENTS}",
    "mistral": f"[TOOL_CALLS] [{OBJECT}]",
    "mistral 11": f"[TOOL_CALLS]add[ARGS]{ARGUMENTS}",
    "mistral, markers dropped": f"add{ARGUMENTS}",
    "gpt-oss": f"<|channel|>commentary to=functions.add <|constrain|>json<|message|>{ARGUMENTS}<|call|>",
    "lfm": "<|tool_call_start|>[add(a=1, b='two')]<|tool_call_end|>",
    "olmo": "<function_calls>\nadd(a=1, b='two')\n</function_calls>",
    "granite": f"<|tool_call|>[{OBJECT}]",
    "granite 4": f"<tool_call>[{OBJECT}]</tool_call>",
    "phi": f"functools[{OBJECT}]",
    "nemotron": f"<TOOLCALL>[{OBJECT}]</TOOLCALL>",
    "jamba": f"<tool_calls>[{OBJECT}]</tool_calls>",
    "command-r": f'<|START_ACTION|>[{{"tool_call_id": "0", "tool_name": "add", "parameters": {ARGUMENTS}}}]<|END_ACTION|>',
    "openai's object": f'<tool_call>{{"type": "function", "function": {OBJECT}}}</tool_call>',
}  # fmt: skip


def said(text: str, *tools: dict[str, Any]) -> calls.ParsedReply:
    return calls.read({"role": "assistant", "content": text}, tools=tools)


@pytest.mark.parametrize("kind", FORMATS)
def test_one_call_in_every_format(kind: str) -> None:
    assert said(FORMATS[kind], ADD) == calls.ParsedReply("", (Call("add", {"a": 1, "b": "two"}, "call_0"),))


@pytest.mark.parametrize("kind", FORMATS)
def test_the_server_reads_it_and_shows_nothing_of_it_before(kind: str) -> None:
    text = FORMATS[kind]
    rest, [call] = served.find(text, [ADD])
    assert (rest, call["name"], json.loads(call["arguments"])) == ("", "add", {"a": 1, "b": "two"})
    assert {served.certain(text[:n], [ADD]) for n in range(len(text) + 1)} == {0}


@pytest.mark.parametrize(
    "kind", [kind for kind, text in FORMATS.items() if text.startswith(call_formats.MARKERS)]
)
def test_several_calls_and_what_is_said_before(kind: str) -> None:
    reply = said(f"I add.\n{FORMATS[kind]}\n{FORMATS[kind]}", ADD)
    assert [call.name for call in reply.calls] == ["add", "add"]
    assert (reply.text, reply.problems) == ("I add.", ())


def test_several_calls_in_one_body() -> None:
    part = f"<｜tool▁call▁begin｜>add<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜>"
    for text in (
        f"<｜tool▁calls▁begin｜>{part}\n{part}<｜tool▁calls▁end｜>",
        f'<|python_tag|>{{"name": "add", "parameters": {ARGUMENTS}}}; {{"name": "add", "parameters": {ARGUMENTS}}}',
        f"<tool_call>{OBJECT}\n{OBJECT}</tool_call>",
        f"functions.add:0{ARGUMENTS}functions.add:1{ARGUMENTS}",
    ):
        assert said(text, ADD).calls == tuple(Call("add", json.loads(ARGUMENTS), f"call_{n}") for n in (0, 1))


def test_a_call_without_arguments() -> None:
    for text in (
        "<tool_call>now</tool_call>",
        "<tool_call>\n<function=now>\n</function>\n</tool_call>",
        '<minimax:tool_call><invoke name="now"></invoke></minimax:tool_call>',
        "<tool_call>now\n{}</tool_call>",
    ):
        assert said(text, NOW).calls == (Call("now", {}, "call_0"),)


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\ntw",
        "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>",
        "<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value>",
        '<minimax:tool_call><invoke name="add"><parameter name="a">1</parameter>',
        f"[TOOL_CALLS]add[ARGS]{ARGUMENTS[:-3]}",
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{ARGUMENTS[:-3]}",
    ],
)
def test_a_call_that_is_cut_is_a_problem_and_no_call(text: str) -> None:
    """What is missing could have changed what is there."""
    reply = said(text, ADD)
    assert not reply.calls
    assert reply.problems
    assert served.find(text, [ADD]) == (text, ())


@pytest.mark.parametrize(
    ("schema", "written", "value"),
    [
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, "true", "true"),
        ({"type": "string"}, "\nif x:\n    y()\n", "if x:\n    y()"),
        ({"type": "string"}, '{"a": 1}', '{"a": 1}'),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"type": "integer"}, "\n5\n", 5),
        ({"type": "number"}, "0.5", 0.5),
        ({"type": "boolean"}, "True", True),
        ({"type": ["string", "null"]}, "null", None),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "7", "7"),
        ({"type": "array", "items": {"type": "string"}}, '["a", "b"]', ["a", "b"]),
        ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
        ({}, "Paris", "Paris"),
        ({}, "[1]", [1]),
        ({"type": "integer"}, "many", "many"),
    ],
)
def test_a_value_without_quotes_has_the_type_of_the_schema(schema: Any, written: str, value: Any) -> None:
    tool = {"function": {"name": "f", "parameters": {"type": "object", "properties": {"x": schema}}}}
    for text in (
        f"<tool_call><function=f><parameter=x>{written}</parameter></function></tool_call>",
        f"<tool_call>f<arg_key>x</arg_key><arg_value>{written}</arg_value></tool_call>",
        f'<minimax:tool_call><invoke name="f"><parameter name="x">{written}</parameter></invoke></minimax:tool_call>',
    ):
        [call] = said(text, tool).calls
        assert call.arguments == {"x": value}
        assert type(call.arguments["x"]) is type(value)


def test_a_word_that_begins_like_a_tool_is_no_call() -> None:
    for text in ("now that you ask: {} is a dict.", "add {", "adding 1 and 2", 'add {"a": 1} gives 1.'):
        assert served.find(text, [ADD, NOW]) == (text, ())
        assert said(text, ADD, NOW) == calls.ParsedReply(text)
    assert served.certain("adding 1 and 2", [ADD]) == len("adding 1 and 2")


PIECES = st.sampled_from([*call_formats.MARKERS, *call_formats.WRAPPERS.values(), "add", "<parameter=a>", "</parameter>", "<arg_key>", "</arg_key>", "<arg_value>", '<invoke name="add">', "[ARGS]", "{", "}", ARGUMENTS, OBJECT, "\n", ";", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"])  # fmt: skip


@given(st.lists(PIECES, max_size=12).map("".join))
def test_any_mixture_is_read_without_a_crash_and_streams_a_prefix(text: str) -> None:
    shown = max(text[: served.certain(text[:n], [ADD])] for n in range(len(text) + 1))
    rest, _ = served.find(text, [ADD])
    assert rest.lstrip().startswith(shown.strip()) or shown.strip().startswith(rest.strip())


@pytest.mark.parametrize(
    "piece",
    ["<function=f><parameter=a>", "<tool_call>\n", "<tool_call><arg_key>k</arg_key><arg_value>", "[TOOL_CALLS]f[ARGS]", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f{"],
)  # fmt: skip
def test_a_flood_costs_little(piece: str) -> None:
    reply = said(piece * 2000, ADD)
    assert not reply.calls
    assert len(reply.problems) <= call_formats.MOST_CALLS + 1
