"""A Slack workspace: the Web API calls that a bot makes, and Socket Mode over a websocket."""

from __future__ import annotations

import html
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.channels.world import Sent, World

ME = "UBOT"
BEGAN = 1_700_000_000
NAMES = {1: "+1::skin-tone-3", -1: "-1"}


class Slack(World):
    TOKENS = {"token": "xoxb-token-of-the-test", "app_token": "xapp-token-of-the-test"}

    def __init__(self) -> None:
        super().__init__()
        self.server: TestServer
        self.socket: web.WebSocketResponse
        self.acks: dict[str, dict[str, Any]] = {}

    def settings(self) -> str:
        return f'api = "{self.server.make_url("/api/")}"\n'

    # ------------------------------------------------------------------------------------------- the API

    async def call(self, request: web.Request) -> web.Response:
        method, token = request.match_info["method"], request.headers.get("Authorization", "")
        wanted = self.TOKENS["app_token" if method == "apps.connections.open" else "token"]
        if token != f"Bearer {wanted}":
            return web.json_response({"ok": False, "error": "invalid_auth"})
        given = (
            await request.json() if "json" in request.content_type else dict((await request.post()).items())
        )
        if method == "auth.test":
            return web.json_response(
                {"ok": True, "user_id": ME, "bot_id": "BBOT", "team_id": "T1", "user": "claw"}
            )
        if method == "apps.connections.open":
            url = str(self.server.make_url("/socket")).replace("http", "ws", 1)
            return web.json_response({"ok": True, "url": url})
        assert method == "chat.postMessage", method
        ts = self.ts()
        text = html.unescape(given["text"])
        self.put(Sent(ts, text, given))
        return web.json_response(
            {"ok": True, "channel": given["channel"], "ts": ts, "message": {"text": text}}
        )

    async def listen(self, request: web.Request) -> web.WebSocketResponse:
        self.socket = web.WebSocketResponse()
        await self.socket.prepare(request)
        await self.socket.send_json({"type": "hello", "num_connections": 1})
        self.ready.set()
        async for message in self.socket:
            if message.type is web.WSMsgType.TEXT:
                acked = json.loads(message.data)
                payload = acked.get("payload") or {}
                self.acks[acked["envelope_id"]] = payload
                if payload.get("text"):
                    self.put(Sent("", html.unescape(payload["text"]), payload))
        return self.socket

    def ts(self) -> str:
        return f"{BEGAN + self.number()}.000100"

    # ---------------------------------------------------------------------------------------- what happens

    async def tell(self, kind: str, payload: dict[str, Any]) -> None:
        self.last = (kind, payload)
        envelope = {"envelope_id": f"e{self.number()}", "type": kind, "payload": payload}
        await self.socket.send_json(envelope | {"accepts_response_payload": kind == "slash_commands"})

    async def event(self, event: dict[str, Any]) -> None:
        await self.tell(
            "events_api",
            {
                "type": "event_callback",
                "team_id": "T1",
                "api_app_id": "A1",
                "event_id": f"Ev{self.number()}",
                "event": event,
                "authorizations": [{"team_id": "T1", "user_id": ME, "is_bot": True}],
            },
        )

    async def again(self) -> None:
        await self.tell(*self.last)

    async def says(self, who: str, text: str, **where: Any) -> None:
        group = where.get("group")
        channel = "C1" if group else f"D{who}x{where.get('chat', 0)}"
        if text.startswith("/rl") and not where.get("reply"):
            # What Slack makes of it: such a line is never a message.
            await self.command(who, text, channel)
            return
        event = {
            "type": "message",
            "channel": channel,
            "user": who,
            "ts": self.ts(),
            "text": html.escape(text),
        }
        event["channel_type"] = "channel" if group else "im"
        if where.get("mention"):
            event |= {"type": "app_mention", "text": f"<@{ME}> {event['text']}"}
        if reply := where.get("reply"):
            event["thread_ts"] = reply.raw.get("thread_ts") or reply.id
        await self.event(event)

    async def command(self, who: str, text: str, channel: str) -> None:
        given = {"command": "/rl", "text": text.removeprefix("/rl").strip(), "user_id": who, "team_id": "T1"}
        given |= {"channel_id": channel, "trigger_id": f"t{self.number()}", "response_url": ""}
        await self.tell("slash_commands", given)

    async def reacts(self, who: str, message: Sent, sign: int, **where: Any) -> None:
        at = where.get("at")
        when = self.ts() if at is None else f"{BEGAN + 100_000 + at}.000200"
        await self.event(
            {
                "type": "reaction_added" if where.get("on", True) else "reaction_removed",
                "user": who,
                "reaction": NAMES[sign],
                "item": {"type": "message", "channel": message.raw["channel"], "ts": message.id},
                "item_user": ME,
                "event_ts": when,
            }
        )


@asynccontextmanager
async def world(_: pytest.MonkeyPatch) -> AsyncIterator[Slack]:
    made = Slack()
    app = web.Application()
    app.router.add_post("/api/{method}", made.call)
    app.router.add_get("/socket", made.listen)
    made.server = TestServer(app)
    await made.server.start_server()
    try:
        yield made
    finally:
        await made.server.close()
