"""What the embedded engine answers besides chats, and what it says that it does not do."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from clawback import store
from clawback.paths import Home
from clawback.serve import app as serving

from .conftest import Running

ASK: Any = [{"role": "user", "content": "Tell me about the otter."}]


@pytest.fixture
def server(trained: Home, running: Callable[[Any], Running]) -> Running:
    return running(serving.make(trained))


@pytest.fixture
def client(server: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def test_one_model_a_text_to_go_on_from_and_vectors(client: openai.OpenAI, trained: Home) -> None:
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


def test_log_probs_are_told_and_are_those_that_are_kept(client: openai.OpenAI, trained: Home) -> None:
    said = client.chat.completions.create(model="clawback", messages=ASK, seed=2, logprobs=True).choices[0]
    assert said.logprobs
    assert said.logprobs.content
    with store.connect(trained.database) as db:
        kept = db.turns(limit=1)[0]
    assert [t.logprob for t in said.logprobs.content] == pytest.approx(kept.response_logprobs)
    told: list[float] = []
    for event in client.chat.completions.create(
        model="clawback", messages=ASK, seed=2, logprobs=True, stream=True
    ):
        for choice in event.choices:
            told += [t.logprob for t in (choice.logprobs.content or [])] if choice.logprobs else []
    assert told == pytest.approx(kept.response_logprobs)


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        ("chat/completions", {"messages": ASK, "n": 2}, "n can only be 1"),
        ("chat/completions", {"messages": ASK, "logprobs": True, "top_logprobs": 3}, "top_logprobs"),
        ("chat/completions", {"messages": ASK, "response_format": {"type": "json_object"}}, "response_format"),
        ("chat/completions", {"messages": ASK, "response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ("chat/completions", {"messages": ASK, "logit_bias": {"1": 5}}, "logit_bias"),
        ("responses", {"input": "Hello", "previous_response_id": "resp_1"}, "previous_response_id"),
        ("responses", {"input": "Hello", "text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format"),
        ("messages", {"messages": ASK, "max_tokens": 5, "output_config": {"format": {"type": "json_schema"}}}, "output_config"),
        ("completions", {"prompt": "x", "echo": True}, "echo"),
        ("completions", {"prompt": ["x", "y"]}, "prompt"),
        ("embeddings", {"input": []}, "input"),
        ("embeddings", {"input": "x", "dimensions": 5}, "dimensions"),
    ],
)  # fmt: skip
def test_what_is_not_done_is_refused_in_the_dialect(server: Running, path: str, body: Any, word: str) -> None:
    answer = httpx.post(f"{server.url}/v1/{path}", json=body, timeout=60)
    assert answer.status_code == 400
    told = answer.json()["error"]
    assert word in (told["message"] if isinstance(told, dict) else told)


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


def test_four_hundred_thousand_messages_are_refused_at_once(server: Running) -> None:
    raw = b'{"messages": [' + b'{"role": "user", "content": ""},' * 400_000 + b"{}]}"
    answer = httpx.post(f"{server.url}/v1/chat/completions", content=raw, timeout=60)
    assert (answer.status_code, "parts" in answer.text) == (400, True)
