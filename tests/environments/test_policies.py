"""Who plays: a function, a server on this machine, a model in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from aiohttp import web

from clawback.environments import play, policies, registry
from clawback.errors import ClawbackError, NotFound, UsageError

BUY = "tools:shop?kinds=buy&held_out=4"


@asynccontextmanager
async def server(*, fail: int = 0, status: int = 503) -> AsyncIterator[tuple[str, list[Any]]]:
    """An OpenAI-style server that buys what it is asked for, and what it was sent."""
    heard: list[Any] = []
    left = fail

    async def complete(request: web.Request) -> web.Response:
        nonlocal left
        body = await request.json()
        heard.append((body, request.headers))
        if left:
            left -= 1
            return web.json_response({"error": "busy"}, status=status)
        if body["messages"][-1]["role"] == "tool":
            return web.json_response({"choices": [{"message": {"role": "assistant", "content": "Done."}}]})
        said = body["messages"][-1]["content"].split()
        arguments = {"customer": said[2].strip("."), "quantity": int(said[8]), "item": said[-1].strip(".")}
        call = {
            "id": "c9",
            "type": "function",
            "function": {"name": "place_order", "arguments": json.dumps(arguments)},
        }
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return web.json_response({"choices": [{"message": message}]})

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "clerk"}]})

    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", complete), web.get("/v1/models", models)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", heard
    finally:
        await runner.cleanup()


def test_a_server_plays_with_its_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        found = registry.find(BUY)
        async with server(fail=1) as (address, heard):
            player = policies.player(address, found, policies.AnswerOptions("", "k", 0.5, 99))
            monkeypatch.setattr(policies.asyncio, "sleep", _at_once)
            played = await play.play(found, found.tasks("test"), player, play.PlaySettings(together=4))
        assert [p.reward for p in played] == [1.0] * 4
        body, headers = heard[-1]
        assert headers["Authorization"] == "Bearer k"
        assert headers["X-Turn-Type"] == "side"
        assert len({h["X-Session-Id"] for _, h in heard}) == 4
        assert (body["model"], body["temperature"], body["max_tokens"]) == ("clerk", 0.5, 99)
        assert {t["function"]["name"] for t in body["tools"]} >= {"place_order"}
        assert body["messages"][-1]["tool_call_id"] == "c9"

    asyncio.run(scene())


_sleep = asyncio.sleep


async def _at_once(_: float) -> None:
    await _sleep(0)


def test_a_server_that_refuses_or_is_away_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies.asyncio, "sleep", _at_once)

    async def scene() -> None:
        found = registry.find(BUY)
        async with server(fail=99, status=401) as (address, heard):
            with pytest.raises(ClawbackError, match="answered 401"):
                await play.play(
                    found,
                    found.tasks("test"),
                    policies.player(address, found, policies.AnswerOptions("m")),
                    play.PlaySettings(together=1),
                )
            assert len(heard) == 1
        with pytest.raises(ClawbackError, match="cannot be asked"):
            await play.play(
                found, found.tasks("test"), policies.player(address, found, policies.AnswerOptions("m"))
            )

    asyncio.run(scene())


def test_functions_and_their_mistakes(tmp_path: Path) -> None:
    file = tmp_path / "bot.py"
    file.write_text(
        "async def bot(messages, tools):\n    return f'{len(messages)} {len(tools)}'\nnothing = 1\n"
    )
    found = registry.find(BUY)
    player = policies.player(f"{file}:bot", found)
    view = play.View(found.tasks("test")[0], ({"role": "user", "content": "x"},), (), 0, 0)
    assert asyncio.run(player(view)) == {"role": "assistant", "content": "1 0"}
    for name, kind, says in (
        (f"{file}:nothing", UsageError, "is no function"),
        (f"{file}:gone", NotFound, "no gone in"),
        ("somebody", UsageError, "There is no policy `somebody`"),
        ("live", NotFound, "no versions here"),
    ):
        with pytest.raises(kind, match=says):
            policies.player(name, found)
    pytest.importorskip("gymnasium")
    with pytest.raises(UsageError, match="knows no solutions"):
        policies.player("reference", registry.find("gymnasium:Blackjack-v1"))


def test_a_model_in_this_process_answers_many_in_one_batch() -> None:
    from clawback import engine

    found = registry.find("tools:shop?kinds=price&held_out=2")
    model = engine.load("embedded")
    batches: list[int] = []

    class Watched(policies.LocalPolicy):
        def _answers(self, views: Any) -> list[str]:
            batches.append(len(views))
            return super()._answers(views)

    played = asyncio.run(
        play.play(
            found, found.tasks("test"), Watched(model, 4, seed=1), play.PlaySettings(together=2, turns=1)
        )
    )
    assert batches == [2]
    assert all(p.messages[-1]["role"] == "assistant" for p in played)
    again = asyncio.run(
        play.play(
            found,
            found.tasks("test"),
            policies.LocalPolicy(model, 4, seed=1),
            play.PlaySettings(together=2, turns=1),
        )
    )
    assert [p.messages for p in again] == [p.messages for p in played]
