"""A base that sees answers what is asked about a picture, and what it answered can be learned from."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch

pytest.importorskip("PIL")

from benchmarks._people_adapters import live_with
from clawback import engine, store
from clawback.paths import Home
from clawback.serve import app as serving
from clawback.templates import vision
from tests.engine.torch.test_vision import BLUE, RED, asked, folder, picture, stirred  # noqa: F401 — a fixture

from .conftest import Running


@pytest.fixture
def server(home: Home, folder: Any, running: Callable[[Any], Running]) -> Running:  # noqa: F811
    home.config.write_text(f"[model]\nbase = {json.dumps(str(folder))}\n[generation]\nmax_tokens = 12\n")
    return running(serving.make(home))


@pytest.fixture
def client(server: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def test_a_picture_is_looked_at_and_the_turn_has_what_was_seen(
    client: openai.OpenAI,
    home: Home,
    folder: Any,  # noqa: F811
) -> None:
    said = [
        client.chat.completions.create(model="clawback", messages=list(asked(colour)), seed=1, logprobs=True)
        for colour in (RED, BLUE, RED)
    ]
    first, other, again = (one.choices[0] for one in said)
    assert first.message.content == again.message.content
    assert first.logprobs.content[0].logprob != other.logprobs.content[0].logprob, "the colours were seen"
    with store.connect(home.database) as db:
        [turn] = [db.turn(t.id) for t in db.turns() if t.response == first.message.content][:1]
    [values] = engine.load(str(folder)).logprobs([turn.messages], [turn.response_ids])
    assert torch.allclose(torch.tensor(turn.response_logprobs), values, atol=1e-4), "what would be learned"


def test_a_version_answers_about_a_picture_by_its_adapter_and_the_base_beside_it_does_not(
    server: Running,
    client: openai.OpenAI,
    home: Home,
    folder: Any,  # noqa: F811
    tmp_path: Path,
) -> None:
    policy = stirred(folder)
    (tmp_path / "adapter").mkdir()
    policy.save(tmp_path / "adapter")
    live_with(home, tmp_path / "adapter", policy.info)
    for model, number, speaks in (("clawback", 1, policy), ("clawback-base", 0, engine.load(str(folder)))):
        raw = client.chat.completions.with_raw_response.create(
            model=model, messages=list(asked(RED)), seed=1, logprobs=True
        )
        assert int(raw.headers["x-clawback-version"]) == number
        with store.connect(home.database) as db:
            turn = db.turn(max(one.id for one in db.turns()))
        assert turn.response == raw.parse().choices[0].message.content
        [values] = speaks.logprobs([turn.messages], [turn.response_ids])
        assert torch.allclose(torch.tensor(turn.response_logprobs), values, atol=1e-4)
    [others] = policy.logprobs([turn.messages], [turn.response_ids])
    assert not torch.allclose(others, values, atol=1e-2), "the adapter says something else"


def test_it_streams_and_speaks_anthropic(server: Running, client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="clawback", messages=list(asked(RED)), seed=2)
    pieces = client.chat.completions.create(model="clawback", messages=list(asked(RED)), seed=2, stream=True)
    text = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    assert text == whole.choices[0].message.content
    source = {"type": "base64", "media_type": "image/png", "data": picture(RED).split(",")[1]}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "Which colour?"}]
    body = {"model": "m", "max_tokens": 12, "messages": [{"role": "user", "content": content}]}
    answer = httpx.post(server.url + "/v1/messages", json=body, timeout=60)
    assert answer.status_code == 200
    counted = httpx.post(server.url + "/v1/messages/count_tokens", json=body, timeout=60)
    assert counted.json()["input_tokens"] == answer.json()["usage"]["input_tokens"]


def test_one_that_cannot_be_looked_at_is_refused(
    client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 30).decode()
    content: Any = [{"type": "image_url", "image_url": {"url": broken}}, {"type": "text", "text": "And?"}]
    with pytest.raises(openai.BadRequestError, match="cannot be read"):
        client.chat.completions.create(model="clawback", messages=[{"role": "user", "content": content}])
    both: Any = [*asked(RED)[0]["content"], content[0]]
    with pytest.raises(openai.BadRequestError, match="cannot be read"):
        client.chat.completions.create(model="clawback", messages=[{"role": "user", "content": both}])
    content[0]["image_url"] = {"url": "https://example.org/red.png"}
    with pytest.raises(openai.BadRequestError, match="as base64"):
        client.chat.completions.create(model="clawback", messages=[{"role": "user", "content": content}])
    monkeypatch.setattr(vision, "MOST_PIXELS", 100)
    with pytest.raises(openai.BadRequestError, match="too large"):
        client.chat.completions.create(model="clawback", messages=list(asked(RED)))
