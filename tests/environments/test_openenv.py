"""OpenEnv's WebSocket protocol, against a server on this machine that speaks it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from aiohttp import WSMsgType, web

from clawback.environments import play, policies, registry
from clawback.environments.core import EnvironmentFailure
from clawback.environments.tools.calls import Call, message
from clawback.environments.validate import validate
from clawback.errors import UsageError
from tests.environments.playing import walk

Frame = dict[str, Any]
ECHO = {
    "type": "object",
    "required": ["message"],
    "properties": {"message": {"type": "string"}, "metadata": {"type": "object"}},
}
MOVE = {
    "type": "object",
    "required": ["x", "y"],
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
}
MCP = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"const": "call_tool"}, "tool_name": {"type": "string"}, "arguments": {}},
}


class Session:
    """One socket's world: it counts what it is told, and ends at three."""

    def __init__(self, kind: str) -> None:
        self.kind, self.count, self.seed = kind, 0, 0

    def answer(self, frame: Frame) -> Frame:
        data = frame.get("data") or {}
        if frame["type"] == "reset":
            self.count, self.seed = 0, data["seed"]
            return self.seen(f"seed {self.seed}", None)
        if frame["type"] != "step":
            return _error("UNKNOWN_TYPE", frame["type"])
        if self.kind == "mcp":
            return self.mcp(data)
        if self.kind == "grid":
            if not isinstance(data.get("x"), int):
                return _error("VALIDATION_ERROR", "x must be an integer")
            said = f"at {data['x']},{data['y']}"
        else:
            said = str(data["message"]).upper()
        if said == "EXPLODE":
            return _error("EXECUTION_ERROR", "it exploded")
        self.count += 1
        return self.seen(said, 0.5 * self.count, self.count == 3)

    def mcp(self, data: Frame) -> Frame:
        if data["type"] == "list_tools":
            tool = {
                "name": "add",
                "description": "Add.",
                "input_schema": {"type": "object", "properties": {"a": {"type": "number"}}},
            }
            return {
                "type": "observation",
                "data": {"observation": {"tools": [tool]}, "reward": None, "done": False},
            }
        self.count += data["arguments"]["a"]
        return {
            "type": "observation",
            "data": {"observation": {"result": self.count}, "reward": 1.0, "done": self.count > 3},
        }

    def seen(self, text: str, reward: float | None, done: bool = False) -> Frame:
        return {
            "type": "observation",
            "data": {"observation": {"text": text, "metadata": {"n": 1}}, "reward": reward, "done": done},
        }


def _error(code: str, said: str) -> Frame:
    return {"type": "error", "data": {"code": code, "message": said}}


@asynccontextmanager
async def server(kind: str, most: int = 100) -> AsyncIterator[tuple[str, list[Any]]]:
    """Its address, and the sockets that are open."""
    open_now: list[Any] = []

    async def schema(_: web.Request) -> web.Response:
        return web.json_response(
            {"action": {"echo": ECHO, "grid": MOVE, "mcp": MCP}[kind], "observation": {}, "state": {}}
        )

    async def socket(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        if len(open_now) >= most:
            await ws.send_json(_error("CAPACITY_REACHED", "no room"))
            return ws
        open_now.append(ws)
        session = Session(kind)
        try:
            async for got in ws:
                if got.type is not WSMsgType.TEXT:
                    break
                frame = json.loads(got.data)
                if frame["type"] == "close":
                    break
                if (frame.get("data") or {}).get("message") == "hang up":
                    await ws.close()
                    break
                await ws.send_json(session.answer(frame))
        finally:
            open_now.remove(ws)
        return ws

    app = web.Application()
    app.add_routes([web.get("/schema", schema), web.get("/ws", socket)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"openenv:ws://127.0.0.1:{port}", open_now
    finally:
        await runner.cleanup()


def use(kind: str, scene: Callable[[str, list[Any]], Awaitable[None]], most: int = 100) -> None:
    async def whole() -> None:
        async with asyncio.timeout(30), server(kind, most) as (name, open_now):
            await scene(name, open_now)

    asyncio.run(whole())


def test_a_text_action_is_the_whole_reply() -> None:
    async def scene(name: str, open_now: list[Any]) -> None:
        found = registry.find(f"{name}?goal=Shout.")
        opened, steps = await walk(found, found.tasks("train")[0], ["one", "two", "three", "four"])
        assert opened.messages[0] == {"role": "system", "content": "Shout."}
        assert opened.messages[1]["content"].startswith("seed ")
        assert opened.tools == ()
        assert [s.reward for s in steps] == [0.5, 1.0, 1.5]
        assert [s.messages[0]["content"] for s in steps[:2]] == ["ONE", "TWO"]
        assert steps[-1].done
        assert not open_now
        assert [c.problem for c in await validate(found, found.tasks("test")[:2])] == ["", ""]

    use("echo", scene)


def test_a_structured_action_is_a_tool_and_a_wrong_one_is_the_policys_fault() -> None:
    async def scene(name: str, open_now: list[Any]) -> None:
        found = registry.find(name)
        right, wrong = message([Call("act", {"x": 1, "y": 2})]), message([Call("act", {"x": "left", "y": 2})])
        opened, steps = await walk(found, found.tasks("train")[0], [wrong, "I go left.", right])
        assert opened.tools[0]["function"]["parameters"]["required"] == ["x", "y"]
        assert [s.info.get("unparsable") for s in steps] == [True, True, None]
        assert "must be an integer" in steps[0].messages[0]["content"]
        assert steps[2].messages[0] == {
            "role": "tool",
            "tool_call_id": "call_0",
            "name": "act",
            "content": "at 1,2",
        }

    use("grid", scene)


def test_an_mcp_server_gives_its_tools_and_several_calls_go_in_order() -> None:
    async def scene(name: str, open_now: list[Any]) -> None:
        found = registry.find(name)
        opened, [step] = await walk(
            found,
            found.tasks("train")[0],
            [message([Call("add", {"a": 2}), Call("add", {"a": 3}), Call("add", {"a": 9})])],
        )
        assert [t["function"]["name"] for t in opened.tools] == ["add"]
        assert [m["content"] for m in step.messages] == ['{"result": 2}', '{"result": 5}']
        assert (step.reward, step.done) == (2.0, True)

    use("mcp", scene)


def test_faults_of_the_server_are_no_reward_of_zero() -> None:
    async def scene(name: str, open_now: list[Any]) -> None:
        found = registry.find(name)
        for reply, says in (("explode", "it exploded"), ("hang up", "closed")):
            with pytest.raises(EnvironmentFailure, match=says):
                await walk(found, found.tasks("train")[0], [reply])
        played = await play.play(
            found,
            found.tasks("train")[:3],
            policies.Script(lambda m, t: "explode"),
            play.PlaySettings(together=3),
        )
        assert [(p.stop, p.reward) for p in played] == [("failed", None)] * 3
        assert play.summary(played)["failed"] == 3
        assert play.summary(played)["reward"] is None
        assert not open_now

    use("echo", scene)


def test_a_server_that_is_full_or_away_is_said() -> None:
    async def scene(name: str, open_now: list[Any]) -> None:
        found = registry.find(name)
        with pytest.raises(EnvironmentFailure, match="CAPACITY_REACHED"):
            await walk(found, found.tasks("train")[0], ["x"])

    use("echo", scene, most=0)
    away = registry.find("openenv:http://127.0.0.1:9")
    with pytest.raises(EnvironmentFailure, match="broke"):
        asyncio.run(walk(away, away.tasks("train")[0], []))
    with pytest.raises(UsageError, match="is no address"):
        registry.find("openenv:localhost")


def test_many_sockets_at_once() -> None:
    async def scene(name: str, open_now: list[Any]) -> None:
        found = registry.find(name)
        most = 0

        async def bot(messages: Any, tools: Any) -> str:
            nonlocal most
            most = max(most, len(open_now))
            await asyncio.sleep(0)
            return "word"

        played = await play.play(
            found, found.tasks("train")[:20], policies.Script(bot), play.PlaySettings(together=10)
        )
        assert [p.reward for p in played] == [3.0] * 20
        assert most > 3
        assert not open_now

    use("echo", scene)
