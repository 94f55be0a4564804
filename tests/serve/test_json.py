"""The embedded model's answers keep to a JSON schema in every dialect, or the request is refused in a sentence."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import openai
import pydantic
import pytest

from clawback import store
from clawback.dialects import BY_PATH
from clawback.inference import schema_grammar
from clawback.paths import Home

from .conftest import Running

pytest.importorskip("llguidance")

ASK: Any = [{"role": "user", "content": "Tell me about the otter."}]


@pytest.fixture
def server(embedded_server: Running) -> Running:
    return embedded_server


@pytest.fixture
def client(server: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


ANIMAL = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "legs": {"type": "integer", "minimum": 0, "maximum": 100},
        "kind": {"enum": ["mammal", "bird", "fish"]},
    },
    "required": ["name", "legs", "kind"],
    "additionalProperties": False,
}


def in_json(path: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A request for that, as each dialect writes it."""
    layout = {"type": "json_schema", "name": "x", "strict": True, "schema": schema}
    return {
        "chat/completions": {"messages": ASK, "max_tokens": 200, "response_format": {"type": "json_schema", "json_schema": layout}},
        "responses": {"input": "Tell me about the otter.", "max_output_tokens": 200, "text": {"format": layout}},
        "messages": {"messages": ASK, "max_tokens": 200, "output_config": {"format": layout}},
    }[path]  # fmt: skip


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
def test_a_schema_is_kept_to_whole_and_streamed(server: Running, embedded_home: Home, path: str) -> None:
    for stream in (False, True):
        body = in_json(path, ANIMAL) | {"stream": stream}
        answer = httpx.post(f"{server.url}/v1/{path}", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        said = BY_PATH[f"/v1/{path}"].hear(answer.content)
        assert said.ending == "done"
        jsonschema.validate(json.loads(said.text), ANIMAL)
        with store.connect(embedded_home.database) as db:
            kept = db.turns(limit=1)[0]
        assert (kept.kind, kept.response) == ("side", said.text), "not what the policy alone would have said"


def test_json_mode_and_the_official_clients_own_classes(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(
        model="clawback", messages=ASK, seed=1, max_tokens=200, response_format={"type": "json_object"}
    )
    if plain.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(plain.choices[0].message.content or ""), dict)
    else:
        assert (plain.choices[0].message.content or "").startswith("{")

    class Animal(pydantic.BaseModel):
        legs: int
        swims: bool

    made = client.chat.completions.parse(model="clawback", messages=ASK, response_format=Animal, seed=1)
    assert isinstance(made.choices[0].message.parsed, Animal)


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
def test_a_schema_that_cannot_be_kept_to_and_a_missing_library_are_told(
    server: Running, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    wrong = httpx.post(f"{server.url}/v1/{path}", json=in_json(path, {"type": "animal"}), timeout=60)
    assert (wrong.status_code, "animal" in wrong.json()["error"]["message"]) == (400, True)
    monkeypatch.setattr(schema_grammar, "available", lambda: False)
    missing = httpx.post(f"{server.url}/v1/{path}", json=in_json(path, ANIMAL), timeout=60)
    assert (missing.status_code, "[json]'" in missing.json()["error"]["message"]) == (400, True)


@pytest.mark.parametrize(
    "layout",
    [
        {"type": "json_object", "schema": ANIMAL},  # instructor's JSON_SCHEMA until 1.4, Together, llama.cpp
        {"type": "json_schema", "schema": ANIMAL},  # llama.cpp
        {"type": "json_schema", "json_schema": {"name": "animal", "strict": True, "schema": ANIMAL}},
    ],
)
def test_a_schema_is_read_wherever_a_client_puts_it(layout: dict[str, Any]) -> None:
    body = {"model": "clawback", "messages": ASK, "response_format": layout}
    asked = BY_PATH["/v1/chat/completions"].read(body)
    assert asked.schema == asked.form == ANIMAL
