"""Ollama's own API before the embedded engine: requests as its Python client, ChatOllama and `ollama run` send them."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import pytest

from clawback import paths, store
from clawback.dialects import BY_PATH
from clawback.paths import Home

from .conftest import Running

CHAT = {
    "model": "clawback",
    "messages": [{"role": "user", "content": "Tell me about the otter."}],
    "tools": [],
}
GENERATE = {
    "model": "clawback:latest",
    "prompt": "Tell me about the otter.",
    "suffix": "",
    "system": "",
    "template": "",
}
OPTIONS = {"num_predict": 6, "seed": 3, "num_ctx": 4096, "temperature": 0.7}
SCHEMA = {"type": "object", "properties": {"legs": {"type": "integer", "minimum": 0, "maximum": 9}, "swims": {"type": "boolean"}}, "required": ["legs", "swims"], "additionalProperties": False}  # fmt: skip


@pytest.fixture
def server(embedded_server: Running) -> Running:
    return embedded_server


def newest(home: Home) -> Any:
    with store.connect(home.database) as db:
        return db.turns(limit=1)[0]


@pytest.mark.parametrize(("path", "body"), [("/api/chat", CHAT), ("/api/generate", GENERATE)])
def test_an_answer_whole_and_streamed_says_the_same_and_is_recorded(
    server: Running, embedded_home: Home, path: str, body: dict[str, Any]
) -> None:
    token = {"authorization": f"Bearer {paths.secret(embedded_home.root / 'token')}"}
    texts = []
    for stream in (False, True, None):  # Ollama streams unless it is told not to
        more = {} if stream is None else {"stream": stream}
        answer = httpx.post(
            f"{server.url}{path}", json=body | more | {"options": OPTIONS}, headers=token, timeout=60
        )
        assert answer.status_code == 200, answer.text
        lines = [json.loads(line) for line in answer.text.splitlines()]
        assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
        assert answer.headers["content-type"] == (
            "application/json" if stream is False else "application/x-ndjson"
        )
        assert (lines[-1]["done_reason"], lines[-1]["eval_count"]) == ("length", 6)
        texts.append(
            "".join(line["message"]["content"] if path == "/api/chat" else line["response"] for line in lines)
        )
        turn = newest(embedded_home)
        assert (turn.response, turn.prompt, turn.vouched) == (texts[-1], "Tell me about the otter.", True)
        assert BY_PATH[path].hear(answer.content).text == texts[-1]
    assert len(set(texts)) == 1


def test_a_schema_a_picture_and_what_is_not_done(server: Running, embedded_home: Home) -> None:
    pytest.importorskip("llguidance")
    answer = httpx.post(f"{server.url}/api/chat", json=CHAT | {"format": SCHEMA, "stream": False}, timeout=60)
    jsonschema.validate(json.loads(answer.json()["message"]["content"]), SCHEMA)
    assert newest(embedded_home).kind == "side"
    seen = [{**CHAT["messages"][0], "images": ["iVBORw0KGgo="]}]  # type: ignore[dict-item]
    for body, word in (
        ({"messages": seen}, "reads text alone"),
        ({"format": "xml"}, "format"),
        ({"options": {"mirostat": 2}}, "mirostat"),
        ({"options": {"temperature": "hot"}}, "temperature"),
    ):
        refused = httpx.post(f"{server.url}/api/chat", json=CHAT | body, timeout=60)
        assert (refused.status_code, word in refused.json()["error"]) == (400, True), refused.text


def test_what_clients_look_up_before_they_ask(server: Running, embedded_home: Home) -> None:
    def call(path: str, **body: Any) -> Any:
        return (
            httpx.post(f"{server.url}{path}", json=body) if body else httpx.get(f"{server.url}{path}")
        ).json()

    assert call("/api/version")["version"].count(".") == 2
    names = [model["name"] for model in call("/api/tags")["models"]]
    assert names == ["clawback:latest", "clawback-base:latest"]
    assert [m["model"] for m in call("/api/ps")["models"]] == ["clawback:latest"]
    for name in ("clawback", names[1]):
        assert call("/api/show", model=name)["capabilities"] == ["completion", "tools"]
    assert "not found" in call("/api/show", model="llama3.2")["error"]
    before = newest(embedded_home).id
    for path, body in (("/api/generate", {}), ("/api/chat", {"messages": []})):  # as `ollama run` begins
        ready = call(path, model="clawback", **body)
        assert (ready["done"], ready["done_reason"]) == (True, "load")
    assert newest(embedded_home).id == before
    pair = call("/api/embed", model="clawback", input=["an otter", "a fox"])
    single = call("/api/embeddings", model="clawback", prompt="an otter")
    assert pair["embeddings"][0] == pytest.approx(single["embedding"])
    assert httpx.get(f"{server.url}/api/chat").status_code == 405
