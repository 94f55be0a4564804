"""The server of an episode."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request

from clawback import engine
from clawback.dialects import BY_PATH
from clawback.extensions.harness.session import HarnessSession
from clawback.inference.conversation_tokens import fitted_conversation


async def answered(listener: socket.socket) -> list[str]:
    """The models that a session on this socket names; the socket is closed by its owner while the session still runs."""
    session, port = HarnessSession(), listener.getsockname()[1]
    session.start(listener)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/models", headers={"Authorization": f"Bearer {session.key}"}
    )

    def ask() -> list[str]:
        with urllib.request.urlopen(request, timeout=10) as response:
            return [model["id"] for model in json.load(response)["data"]]

    models = await asyncio.to_thread(ask)
    listener.close()
    await session.close()
    return models


def test_the_next_episode_is_answered_though_the_box_of_the_last_one_closed_its_listener_first() -> None:
    async def episodes() -> list[list[str]]:
        return [await answered(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]

    first, *others = asyncio.run(episodes())
    assert first
    assert others == [first, first]


def test_tools_that_do_not_fit_count_among_the_tokens_of_a_request() -> None:
    policy = engine.load("embedded")
    parameters = {"type": "object", "properties": {f"city{n}": {"type": "string"} for n in range(60)}}
    weather = {"name": "get_weather", "description": "The weather of a city.", "parameters": parameters}
    body = {
        "model": "x",
        "messages": [{"role": "user", "content": "What is a fox?"}],
        "tools": [{"type": "function", "function": weather}],
    }
    request = BY_PATH["/v1/chat/completions"].read(body)
    policy.max_prompt = 64
    ids, length = fitted_conversation(policy, request)
    assert "fox" in policy.tokenizer.decode(ids)
    assert "city7" not in policy.tokenizer.decode(ids)
    policy.max_prompt = length - 1
    assert fitted_conversation(policy, request) == (ids, length)
    policy.max_prompt = length
    ids, again = fitted_conversation(policy, request)
    assert "city7" in policy.tokenizer.decode(ids)
    assert again == length == len(ids) > 64
