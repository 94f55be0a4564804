"""While such a trial is on, the server answers with the best of several draws, and the turn says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from clawback import config, store
from clawback.paths import Home
from clawback.release import best_of
from clawback.serve import app as serving
from tests.release.test_best_of import rated

from .conftest import Running

ASK = [{"role": "user", "content": "Tell me about the otter."}]


@pytest.mark.slow  # a server with a model
def test_an_answer_is_the_best_of_several_and_its_turn_says_so(
    home: Home, running: Callable[[Any], Running]
) -> None:
    rated(home, 20)
    server = running(serving.make(home))

    def answered(**more: Any) -> tuple[httpx.Response, Any]:
        body = {"model": "clawback", "messages": ASK, "max_tokens": 40, "seed": 3, **more}
        reply = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
        assert reply.status_code == 200, reply.text
        with store.connect(home.database) as db:
            return reply, db.turns(limit=1)[0]

    single, turn = answered()
    assert "x-clawback-best-of" not in single.headers
    assert turn.version == 0
    assert turn.response_logprobs
    with store.connect(home.database) as db:
        best_of.begin(db, config.load(home.config), 3, 1.0)
    reply, turn = answered()
    assert reply.headers["x-clawback-best-of"] == "3"
    assert reply.json()["choices"][0]["message"]["content"] == turn.response
    assert (turn.model, turn.version, turn.response_logprobs) == ("clawback/v0-best-of-3", None, None)
    streamed, again = answered(stream=True)
    assert streamed.headers["x-clawback-best-of"] == "3"
    assert again.response == turn.response, "the same seed gives the same answer, streamed or not"
    for exact in ({"temperature": 0}, {"model": "clawback-base"}, {"logprobs": True}):
        reply, turn = answered(**exact)
        assert "x-clawback-best-of" not in reply.headers
        assert turn.version == 0
    with store.connect(home.database) as db:
        best_of.stop(db)
    assert answered()[0].json()["choices"] == single.json()["choices"]
