"""The official clients hold a conversation with a tool through the server: call, result, answer, one session."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai

from clawback import store
from clawback.paths import Home

from .conftest import Running, Upstream

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}}
ARGUMENTS = '{"city": "Vienna"}'


def recorded(home: Home) -> tuple[list[str], list[str], list[str]]:
    """Tools called, what came back, and responses; all of one session."""
    with store.connect(home.database) as db:
        turns = list(reversed(db.turns()))
    assert len({turn.session for turn in turns}) == 1, "the second request goes on with the first"
    assert {turn.kind for turn in turns} == {"main"}
    called = [call["name"] for turn in turns for call in turn.calls]
    back = [str(m["content"]) for turn in turns for m in turn.next_state if m["role"] == "tool"]
    return called, back, [turn.response for turn in turns]


def test_openai_chat_completions(proxy: Running, upstream: Upstream, home: Home) -> None:
    client = openai.OpenAI(base_url=proxy.url + "/v1", api_key="none", max_retries=0)
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
    tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]
    talk: list[Any] = [{"role": "user", "content": "How is the weather in Vienna?"}]

    def ask(message: dict[str, Any], reason: str) -> Any:
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
        upstream.says(
            json.dumps(
                {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
            ).encode()
        )
        made = client.chat.completions.create(model="m", messages=talk, tools=tools).choices[0].message
        talk.append(made.model_dump(exclude_none=True))
        return made

    asked = ask({"content": None, "tool_calls": [call]}, "tool_calls").tool_calls[0]
    assert (asked.function.name, json.loads(asked.function.arguments)) == ("weather", {"city": "Vienna"})
    talk.append({"role": "tool", "tool_call_id": asked.id, "content": "sunny"})
    assert ask({"content": "It is sunny."}, "stop").content == "It is sunny."
    assert recorded(home) == (["weather"], ["sunny"], ["", "It is sunny."])


def test_openai_responses(proxy: Running, upstream: Upstream, home: Home) -> None:
    client = openai.OpenAI(base_url=proxy.url + "/v1", api_key="none", max_retries=0)
    tools: Any = [{"type": "function", "name": "weather", "parameters": WEATHER, "strict": False}]
    talk: list[Any] = [{"role": "user", "content": "How is the weather in Vienna?"}]

    def ask(item: dict[str, Any]) -> Any:
        body = {
            "id": "r",
            "object": "response",
            "created_at": 0,
            "model": "m",
            "status": "completed",
            "output": [item],
        }
        upstream.says(
            json.dumps({**body, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}).encode()
        )
        return client.responses.create(model="m", input=talk, tools=tools, store=False)

    item = {
        "type": "function_call",
        "id": "f1",
        "call_id": "c1",
        "name": "weather",
        "arguments": ARGUMENTS,
        "status": "completed",
    }
    asked = ask(item).output[0]
    assert json.loads(asked.arguments) == {"city": "Vienna"}
    talk += [
        asked.model_dump(exclude_none=True),
        {"type": "function_call_output", "call_id": asked.call_id, "output": "sunny"},
    ]
    said = {"type": "output_text", "text": "It is sunny.", "annotations": []}
    answer = ask(
        {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [said]}
    )
    assert answer.output_text == "It is sunny."
    assert recorded(home) == (["weather"], ["sunny"], ["", "It is sunny."])


def test_anthropic_messages(proxy: Running, upstream: Upstream, home: Home) -> None:
    client = anthropic.Anthropic(base_url=proxy.url, api_key="none", max_retries=0)
    tools: Any = [{"name": "weather", "input_schema": WEATHER}]
    talk: list[Any] = [{"role": "user", "content": "How is the weather in Vienna?"}]

    def ask(block: dict[str, Any], reason: str) -> Any:
        head = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
        body = {
            **head,
            "content": [block],
            "stop_reason": reason,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        upstream.says(json.dumps(body).encode())
        made = client.messages.create(model="m", max_tokens=99, messages=talk, tools=tools)
        talk.append({"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in made.content]})
        return made.content[0]

    asked = ask({"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Vienna"}}, "tool_use")
    assert (asked.name, asked.input) == ("weather", {"city": "Vienna"})
    result = {"type": "tool_result", "tool_use_id": asked.id, "content": "sunny"}
    talk.append({"role": "user", "content": [result]})
    assert ask({"type": "text", "text": "It is sunny."}, "end_turn").text == "It is sunny."
    assert recorded(home) == (["weather"], ["sunny"], ["", "It is sunny."])
