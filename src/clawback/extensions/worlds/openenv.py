"""OpenEnv servers, over their WebSocket protocol; nothing of OpenEnv is imported.

``openenv:ws://127.0.0.1:8000``. One socket is one episode. The server's own schemas define an action: if it
is a single text, that is the whole reply; an MCP server's tools become tools; any other action becomes a tool
``act`` with the schema's fields.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from clawback.environments import world_helpers
from clawback.environments.core import EnvironmentFailure, Observation, Split, Step, Task, Tool
from clawback.environments.tools import calls as reading
from clawback.errors import UsageError
from clawback.records import JsonObject, Message

SECONDS = 120.0
LARGEST = 64 << 20
TURNS = 100
_OURS = ("type", "tool_name", "arguments", "metadata")
_WRONG_ACTION = ("VALIDATION_ERROR", "INVALID_JSON")
"""Errors that the policy's action caused; the others are the world's."""


def names() -> list[str]:
    return ["ws://HOST:PORT"]


def make(rest: str, settings: Mapping[str, Any]) -> OpenEnvSet:
    world_helpers.needed("aiohttp", "OpenEnv", "serve")
    world_helpers.unknown_settings("openenv", settings, ("tasks", "held_out", "turns", "goal", "seconds"))
    parts = urlsplit(rest)
    if parts.scheme not in ("ws", "wss", "http", "https") or not parts.hostname:
        raise UsageError(f"`{rest}` is no address: write openenv:ws://127.0.0.1:8000")
    return OpenEnvSet(rest, settings)


class OpenEnvSet:
    """One server; its tasks are seeds."""

    def __init__(self, address: str, settings: Mapping[str, Any] | None = None) -> None:
        parts = urlsplit(address)
        secure = parts.scheme in ("wss", "https")
        path = parts.path.rstrip("/").removesuffix("/ws")
        self.socket = urlunsplit(("wss" if secure else "ws", parts.netloc, f"{path}/ws", "", ""))
        self.http = urlunsplit(("https" if secure else "http", parts.netloc, path, "", ""))
        self.settings = dict(settings or {})
        self.name = f"openenv:{address}"

    def tasks(self, split: Split) -> Sequence[Task]:
        given = (
            int(self.settings.get("tasks", world_helpers.TRAIN_TASKS)),
            int(self.settings.get("held_out", world_helpers.TEST_TASKS)),
        )
        return world_helpers.seeded_tasks(self.name, split, *given)

    def make(self) -> OpenEnv:
        return OpenEnv(self)


class OpenEnv:
    """One episode: one socket."""

    def __init__(self, of: OpenEnvSet) -> None:
        self.of = of
        self.session: Any = None
        self.socket: Any = None
        self.tools: tuple[Tool, ...] = ()
        self.field = ""
        self.is_mcp = False
        self.turns = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        await self.close()
        self.turns = 0
        with world_helpers.faults(self.of.name):
            await self._open()
            seen = await self._ask(
                {"type": "reset", "data": {"seed": world_helpers.mixed(task.data["seed"], seed) >> 1}}
            )
            if self.is_mcp:
                listed = await self._ask({"type": "step", "data": {"type": "list_tools"}})
                self.tools = tuple(_tool(tool) for tool in listed["observation"].get("tools", ()))
        goal = self.of.settings.get("goal")
        opened = {"role": "user", "content": in_words(seen["observation"]) or "Begin."}
        return Observation((*([{"role": "system", "content": goal}] if goal else []), opened), self.tools)

    async def step(self, message: Message) -> Step:
        self.turns += 1
        late = self.turns >= int(self.of.settings.get("turns", TURNS))
        reply = reading.read(message, tools=self.tools)
        if self.field:
            return await self._step_once({self.field: world_helpers.text(message)}, None, late)
        if not reply.calls:
            if self.is_mcp and not reply.problems:
                return Step((), None, True, {"answer": reply.text})
            told = {
                "role": "user",
                "content": f"Call a tool: {', '.join(str(t['function']['name']) for t in self.tools)}.",
            }
            return Step((told,), None, late, {"unparsable": True} | ({"truncated": True} if late else {}))
        return await self._all(reply.calls, late)

    async def close(self) -> None:
        socket, session, self.socket, self.session = self.socket, self.session, None, None
        try:
            if socket is not None and not socket.closed:
                async with asyncio.timeout(5):
                    await socket.send_json({"type": "close"})
                    await socket.close()
        except (OSError, TimeoutError, RuntimeError):
            pass  # it is gone already
        finally:
            if session is not None:
                await session.close()

    async def _open(self) -> None:
        import aiohttp

        limit = aiohttp.ClientTimeout(total=float(self.of.settings.get("seconds", SECONDS)))
        self.session = aiohttp.ClientSession(timeout=limit)
        async with self.session.get(f"{self.of.http}/schema") as answer:
            schema = await answer.json() if answer.status == 200 else {}
        self._take(schema.get("action") or {})
        self.socket = await self.session.ws_connect(self.of.socket, max_msg_size=LARGEST)

    def _take(self, action: Mapping[str, Any]) -> None:
        """What a reply becomes, by the server's schema of an action."""
        fields = {name: part for name, part in (action.get("properties") or {}).items() if name != "metadata"}
        self.is_mcp = "tool_name" in fields or "call_tool" in json.dumps(action)
        needed = [name for name in action.get("required") or fields if name in fields]
        self.field = (
            needed[0]
            if len(needed) == 1 and fields[needed[0]].get("type") == "string" and not self.is_mcp
            else ""
        )
        if self.field or self.is_mcp:
            self.tools = ()
            return
        parameters = {"type": "object", "properties": fields, "required": needed} | {
            k: action[k] for k in ("$defs",) if k in action
        }
        described = str(action.get("description") or "Act in the environment.")
        self.tools = (
            {
                "type": "function",
                "function": {"name": "act", "description": described, "parameters": parameters},
            },
        )

    async def _all(self, calls: Sequence[reading.Call], late: bool) -> Step:
        """Several calls of one reply, in order, until the episode is over."""
        messages: list[Message] = []
        rewards: list[float] = []
        info: JsonObject = {}
        for call in calls:
            action = dict(call.arguments)
            if self.is_mcp:
                action = {"type": "call_tool", "tool_name": call.name, "arguments": action}
            step = await self._step_once(action, call, late)
            messages += step.messages
            rewards += [] if step.reward is None else [step.reward]
            info |= step.info
            if step.done:
                break
        return Step(tuple(messages), sum(rewards) if rewards else None, step.done, info)

    async def _step_once(self, action: Mapping[str, Any], call: reading.Call | None, late: bool) -> Step:
        with world_helpers.faults(self.of.name):
            try:
                made = await self._ask({"type": "step", "data": action})
            except _WrongAction as error:
                return Step(
                    (_answer(str(error), call),),
                    None,
                    late,
                    {"unparsable": True} | ({"truncated": True} if late else {}),
                )
            done = bool(made.get("done"))
            reward = made.get("reward")
            said = () if done and call is None else (_answer(in_words(made["observation"]), call),)
            info = {"truncated": True} if late and not done else {}
            return Step(said, None if reward is None else float(reward), done or late, info)

    async def _ask(self, message: Mapping[str, Any]) -> JsonObject:
        import aiohttp

        await self.socket.send_json(message)
        async with asyncio.timeout(float(self.of.settings.get("seconds", SECONDS))):
            got = await self.socket.receive()
        if got.type is not aiohttp.WSMsgType.TEXT:
            raise EnvironmentFailure(f"{self.of.name} closed the episode's socket.")
        answer = json.loads(got.data)
        data = answer.get("data") or {}
        if answer.get("type") == "error":
            code, told = str(data.get("code", "")), str(data.get("message", "no reason given"))
            if code in _WRONG_ACTION and message["type"] == "step":
                raise _WrongAction(told)
            raise EnvironmentFailure(f"{self.of.name} refused ({code}): {told}")
        return dict(data)


class _WrongAction(EnvironmentFailure):
    """The server did not understand the action."""


def _answer(text: str, call: reading.Call | None) -> Message:
    if call is None:
        return {"role": "user", "content": text}
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text}


def in_words(seen: Any) -> str:
    """An observation as text: its only text as it is, else its fields as JSON. Reward and end are told elsewhere."""
    if not isinstance(seen, Mapping):
        return seen if isinstance(seen, str) else json.dumps(seen, ensure_ascii=False)
    shown = {
        name: part
        for name, part in seen.items()
        if name not in ("done", "reward", "metadata") and part not in (None, "", [], {})
    }
    if len(shown) == 1 and isinstance(only := next(iter(shown.values())), str):
        return only
    return json.dumps(shown, ensure_ascii=False) if shown else ""


def _tool(tool: Mapping[str, Any]) -> Tool:
    schema = tool.get("input_schema") or tool.get("inputSchema") or {"type": "object", "properties": {}}
    made = {"name": tool["name"], "description": tool.get("description") or "", "parameters": schema}
    return {"type": "function", "function": made}
