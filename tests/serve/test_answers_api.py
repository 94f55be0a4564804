"""What the embedded engine answers besides chats, and what it says that it does not do."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from typing import Any

import httpx
import jsonschema
import openai
import pytest

from clawback import store
from clawback.dialects import BY_PATH, shapes
from clawback.inference.local import LocalEngine
from clawback.paths import Home
from clawback.serve import app as serving

from .conftest import Running

ASK: Any = [{"role": "user", "content": "Tell me about the otter."}]


@pytest.fixture
def server(home: Home, running: Callable[[Any], Running]) -> Running:
    return running(serving.make(home))


@pytest.fixture
def client(server: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def test_one_model_a_text_to_go_on_from_and_vectors(trained: Home, running: Callable[[Any], Running]) -> None:
    served = running(serving.make(trained))
    client = openai.OpenAI(base_url=served.url + "/v1", api_key="none", max_retries=0)
    assert client.models.retrieve("clawback-v1").id == "clawback-v1"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("clawback-v99")
    whole = client.completions.create(model="clawback", prompt="The otter", max_tokens=8, seed=1)
    pieces = client.completions.create(
        model="clawback", prompt="The otter", max_tokens=8, seed=1, stream=True
    )
    assert whole.choices[0].text == "".join(p.choices[0].text for p in pieces if p.choices)
    with store.connect(trained.database) as db:
        assert db.turns(limit=1)[0].kind == "side", "it saw no chat template"
    made = client.embeddings.create(model="clawback", input=["The otter eats fish.", "Tax law"])
    one, other = (d.embedding for d in made.data)
    assert math.isclose(sum(x * x for x in one), 1, rel_tol=1e-4)
    assert one != pytest.approx(other, abs=1e-2)
    plain = client.embeddings.create(model="clawback", input="The otter eats fish.", encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(one, abs=1e-5)


def test_log_probs_are_told_and_are_those_that_are_kept(client: openai.OpenAI, home: Home) -> None:
    said = client.chat.completions.create(model="clawback", messages=ASK, seed=2, logprobs=True).choices[0]
    assert said.logprobs
    assert said.logprobs.content
    with store.connect(home.database) as db:
        kept = db.turns(limit=1)[0]
    assert [t.logprob for t in said.logprobs.content] == pytest.approx(kept.response_logprobs)
    told: list[float] = []
    for event in client.chat.completions.create(
        model="clawback", messages=ASK, seed=2, logprobs=True, stream=True
    ):
        for choice in event.choices:
            told += [t.logprob for t in (choice.logprobs.content or [])] if choice.logprobs else []
    # What was read for the first answer is not read again: equal but for rounding.
    assert told == pytest.approx(kept.response_logprobs, rel=1e-4)


def test_the_likeliest_tokens_at_each_place_are_told(client: openai.OpenAI) -> None:
    choice = client.chat.completions.create(
        model="clawback", messages=ASK, seed=2, logprobs=True, top_logprobs=5, temperature=0, max_tokens=12
    ).choices[0]
    assert choice.logprobs
    assert choice.logprobs.content
    for place in choice.logprobs.content:
        values = [other.logprob for other in place.top_logprobs]
        assert len(values) == 5
        assert values == sorted(values, reverse=True)
        assert sum(map(math.exp, values)) < 1 + 1e-4
        first = place.top_logprobs[0]
        assert (first.token, first.logprob) == (place.token, pytest.approx(place.logprob, abs=1e-4)), (
            "it is greedy"
        )


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}
TITLE = {
    "type": "object",
    "properties": {"title": {"type": "string", "minLength": 1, "maxLength": 36}},
    "required": ["title"],
    "additionalProperties": False,
}
"""As Codex asks for it."""


@pytest.mark.parametrize("stream", [False, True])
def test_an_agents_errand_gets_its_title_in_json_and_is_not_trained_on(
    server: Running, home: Home, stream: bool
) -> None:
    layout = {"type": "json_schema", "name": "x", "schema": TITLE}
    asks: dict[str, Any] = {
        "chat/completions": {
            "messages": ASK,
            "response_format": {"type": "json_schema", "json_schema": layout},
        },
        "responses": {"input": "Tell me about the otter.", "text": {"format": layout}},
        "messages": {"messages": ASK, "max_tokens": 50, "output_config": {"format": layout}},
    }
    for path, body in asks.items():
        answer = httpx.post(f"{server.url}/v1/{path}", json=body | {"stream": stream}, timeout=60)
        assert answer.status_code == 200, answer.text
        said = BY_PATH[f"/v1/{path}"].hear(answer.content)
        assert said.ending == "done"
        made = json.loads(said.text)
        jsonschema.validate(made, TITLE)
        assert 'finish_reason": "length' not in answer.text
        with store.connect(home.database) as db:
            kept = db.turns(limit=1)[0]
        assert (kept.kind, kept.response) == ("side", said.text)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
        {"type": "object", "properties": {"a": {"type": "number"}}},
        {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}},
        {"type": "object", "properties": {"a": {"type": "string", "minLength": 40}}},
        {"type": "object", "properties": {"a": {"type": "string", "maxLength": 0}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]},
        {"type": "object", "properties": {"a": {"type": "string"}}, "minProperties": 2},
        {"type": "array"},
    ],
)
def test_any_other_schema_is_none_that_could_be_kept_to(schema: Any) -> None:
    assert shapes.field(schema) is None


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        ("chat/completions", {"messages": ASK, "n": 2}, "n can only be 1"),
        ("chat/completions", {"messages": ASK, "logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ("chat/completions", {"messages": ASK, "top_logprobs": 3}, "top_logprobs"),
        ("chat/completions", {"messages": ASK, "response_format": {"type": "xml"}}, "response_format"),
        ("chat/completions", {"messages": ASK, "response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ("chat/completions", {"messages": ASK, "logit_bias": {"1": 5}}, "logit_bias"),
        ("responses", {"input": "Hello", "previous_response_id": "resp_1"}, "previous_response_id"),
        ("responses", {"input": "Hello", "text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format"),
        ("messages", {"messages": ASK, "max_tokens": 5, "output_config": {"format": {"type": "json_schema"}}}, "output_config"),
        ("completions", {"prompt": "x", "echo": True}, "echo"),
        ("completions", {"prompt": ["x", "y"]}, "prompt"),
        ("embeddings", {"input": []}, "input"),
        ("embeddings", {"input": "x", "dimensions": 5}, "dimensions"),
        ("embeddings", {"input": "x", "encoding_format": "int8"}, "encoding_format"),
        ("responses", {"input": "Hello", "tool_choice": "required"}, "tool_choice"),
        ("messages", {"messages": ASK, "max_tokens": 5, "tool_choice": {"type": "any"}}, "tool_choice"),
        ("responses", {"input": "Hello", "include": ["message.output_text.logprobs"]}, "include"),
        ("chat/completions", {"messages": ASK, "modalities": ["text", "audio"]}, "modalities"),
        ("chat/completions", {"messages": ASK, "max_tokens": 0}, "max_tokens"),
        ("chat/completions", {"messages": ASK, "max_completion_tokens": -1}, "max_completion_tokens"),
        ("responses", {"input": "Hello", "max_output_tokens": "5"}, "max_output_tokens"),
        ("messages", {"messages": ASK, "max_tokens": 5, "temperature": "hot"}, "temperature"),
        ("chat/completions", {"messages": ASK, "temperature": 2.5}, "temperature"),
        ("chat/completions", {"messages": ASK, "top_p": 7}, "top_p"),
        ("completions", {"prompt": "x", "seed": "a"}, "seed"),
        ("chat/completions", {"messages": ASK, "stop": 5}, "stop"),
        ("messages", {"messages": ASK, "max_tokens": 5, "stop_sequences": [1]}, "stop_sequences"),
        ("chat/completions", {"messages": ASK, "stream": "yes"}, "stream"),
        ("chat/completions", {"messages": ASK, "response_format": "json"}, "response_format"),
        ("chat/completions", {"messages": [{"role": "user", "content": [PICTURE]}]}, "picture"),
        ("messages/count_tokens", {"messages": []}, "messages"),
        ("messages/batches", {}, "nothing"),
        ("files", {}, "nothing"),
    ],
)  # fmt: skip
def test_what_is_not_done_is_refused_in_the_dialect(server: Running, path: str, body: Any, word: str) -> None:
    answer = httpx.post(f"{server.url}/v1/{path}", json=body, timeout=60)
    assert answer.status_code == (404 if word == "nothing" else 400), answer.text
    assert word in answer.json()["error"]["message"]
    assert answer.json().get("type") == ("error" if path.startswith("messages") else None)


def test_tools_that_may_not_be_called_are_not_shown(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[int] = []
    read = LocalEngine.prompt

    def watched(self: LocalEngine, asked: shapes.Asked, system: str = "") -> list[int]:
        shown.append(len(asked.tools))
        return read(self, asked, system)

    monkeypatch.setattr(LocalEngine, "prompt", watched)
    for choice in ("auto", "none", {"type": "none"}):
        body = {"messages": ASK, "max_tokens": 2, "tools": [TOOL], "tool_choice": choice}
        assert httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).status_code == 200
    assert shown == [1, 0, 0]


def test_a_picture_further_back_in_the_conversation_is_no_reason(server: Running) -> None:
    seen = [{"role": "user", "content": [PICTURE]}, {"role": "assistant", "content": "An otter."}]
    body = {"messages": [*seen, *ASK], "max_tokens": 2}
    assert httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).status_code == 200


def test_what_says_the_same_as_nothing_is_no_reason(server: Running) -> None:
    body = {
        "messages": ASK,
        "n": 1,
        "max_tokens": 2,
        "logprobs": False,
        "frequency_penalty": 0.0,
        "response_format": {"type": "text"},
        "logit_bias": {},
    }
    assert httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).status_code == 200
    packed = gzip.compress(json.dumps(body).encode())
    headers = {"content-encoding": "gzip"}
    assert (
        httpx.post(
            f"{server.url}/v1/chat/completions", content=packed, headers=headers, timeout=60
        ).status_code
        == 200
    )


@pytest.mark.parametrize("path", ["chat/completions", "completions", "embeddings", "messages", "responses"])
def test_half_a_character_is_read_as_a_sign(server: Running, path: str) -> None:
    text = "half of an otter: \ud83e"
    body = {
        "messages": [{"role": "user", "content": text}],
        "prompt": text,
        "input": text,
        "max_tokens": 2,
        "max_output_tokens": 2,
    }
    if path == "responses":  # where `prompt` is a template's name, which is not done here
        del body["prompt"]
    answer = httpx.post(f"{server.url}/v1/{path}", content=json.dumps(body), timeout=60)
    assert answer.status_code == 200, answer.text


def test_four_hundred_thousand_messages_are_refused_at_once(server: Running) -> None:
    raw = b'{"messages": [' + b'{"role": "user", "content": ""},' * 400_000 + b"{}]}"
    answer = httpx.post(f"{server.url}/v1/chat/completions", content=raw, timeout=60)
    assert (answer.status_code, "parts" in answer.text) == (400, True)
