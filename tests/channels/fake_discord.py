"""A Discord server: the REST calls that a bot makes, and a gateway (hello, identify, ready, heartbeats, dispatches)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.channels.world import Sent, World

ME = {"id": "900", "username": "claw", "discriminator": "0", "avatar": None, "bot": True}
GUILD, ROOM, ROLE = "700", "710", "700"
WHEN = "2026-01-01T00:00:00.000000+00:00"
DISPATCH, HEARTBEAT, IDENTIFY, HELLO, ACK = 0, 1, 2, 10, 11


class Discord(World):
    KNOWS_WHEN = False

    def __init__(self) -> None:
        super().__init__()
        self.server: TestServer
        self.socket: web.WebSocketResponse
        self.sequence = 0
        self.intents = 0

    # ------------------------------------------------------------------------------------------- REST

    async def call(self, request: web.Request) -> web.Response:
        path = request.match_info["path"]
        if request.headers.get("Authorization") != f"Bot {self.TOKENS['token']}":
            return _json({"message": "401: Unauthorized", "code": 0}, status=401)
        if path == "users/@me":
            return _json(ME)
        if path.endswith("applications/@me"):
            return _json(
                {"id": "900", "name": "claw", "description": "", "bot_public": False, "verify_key": ""}
                | {"bot_require_code_grant": False, "owner": ME, "team": None, "icon": None, "summary": ""}
            )
        assert request.method == "POST", path
        assert path.endswith("/messages"), path
        given = await request.json()
        assert given["content"].strip()
        assert len(given["content"]) <= 2000
        channel = path.split("/")[1]
        number = str(100_000 + self.number())
        self.put(Sent(number, given["content"], given | {"channel": channel}))
        return _json(_message(number, channel, ME, given["content"]))

    # ---------------------------------------------------------------------------------------- the gateway

    async def listen(self, request: web.Request) -> web.WebSocketResponse:
        self.socket = web.WebSocketResponse()
        await self.socket.prepare(request)
        await self.socket.send_json({"op": HELLO, "d": {"heartbeat_interval": 41_250}, "s": None, "t": None})
        async for message in self.socket:
            if message.type is not web.WSMsgType.TEXT:
                continue
            got = json.loads(message.data)
            if got["op"] == HEARTBEAT:
                await self.socket.send_json({"op": ACK, "d": None, "s": None, "t": None})
            elif got["op"] == IDENTIFY:
                assert got["d"]["token"] == self.TOKENS["token"]
                self.intents = got["d"]["intents"]
                await self.greet()
        return self.socket

    async def greet(self) -> None:
        ready = {"v": 10, "user": ME, "guilds": [{"id": GUILD, "unavailable": True}], "session_id": "s"}
        ready |= {"resume_gateway_url": "ws://127.0.0.1:9", "application": {"id": "900", "flags": 0}}
        await self.tell("READY", ready)
        room = {"id": ROOM, "type": 0, "name": "all", "position": 0, "permission_overwrites": []}
        role = {"id": ROLE, "name": "@everyone", "permissions": "8", "position": 0, "color": 0}
        role |= {"hoist": False, "managed": False, "mentionable": False, "flags": 0}
        guild = {"id": GUILD, "name": "us", "owner_id": self.OWNER, "roles": [role], "channels": [room]}
        guild |= {
            "members": [
                {"user": ME, "roles": [], "joined_at": WHEN, "deaf": False, "mute": False, "flags": 0}
            ]
        }
        guild |= {"emojis": [], "stickers": [], "threads": [], "presences": [], "voice_states": []}
        guild |= {"member_count": 4, "features": [], "stage_instances": [], "guild_scheduled_events": []}
        await self.tell("GUILD_CREATE", guild)
        self.ready.set()

    async def tell(self, kind: str, content: dict[str, Any]) -> None:
        self.last = (kind, content)
        self.sequence += 1
        await self.socket.send_json({"op": DISPATCH, "t": kind, "s": self.sequence, "d": content})

    async def again(self) -> None:
        await self.tell(*self.last)

    # ---------------------------------------------------------------------------------------- what happens

    async def says(self, who: str, text: str, **where: Any) -> None:
        group, reply = where.get("group"), where.get("reply")
        mentioned = where.get("mention") or (group and reply)
        if where.get("mention"):
            text = f"<@{ME['id']}> {text}"
        if group and not mentioned and not self.intents & 1 << 15:
            text = ""  # without the intent nobody reads along
        channel = ROOM if group else f"8{who}{where.get('chat', 0)}"
        person = {"id": who, "username": f"p{who}", "discriminator": "0", "avatar": None}
        message = _message(str(200_000 + self.number()), channel, person, text)
        message["mentions"] = [ME] if mentioned else []
        if reply:
            message["message_reference"] = {"message_id": reply.id, "channel_id": channel, "type": 0}
        if group:
            message["guild_id"] = GUILD
            message["member"] = {"roles": [], "joined_at": WHEN, "deaf": False, "mute": False, "flags": 0}
        await self.tell("MESSAGE_CREATE", message)

    async def reacts(self, who: str, message: Sent, sign: int, **where: Any) -> None:
        on = where.get("on", True)
        event = {"user_id": who, "channel_id": message.raw["channel"], "message_id": message.id}
        event |= {"emoji": {"id": None, "name": "👍🏽" if sign > 0 else "👎"}, "burst": False, "type": 0}
        if where.get("group"):
            event["guild_id"] = GUILD
        if on:
            event["message_author_id"] = ME["id"]
        await self.tell(f"MESSAGE_REACTION_{'ADD' if on else 'REMOVE'}", event)


def _json(data: Any, status: int = 200) -> web.Response:
    # Exactly so, as Discord has it: the library compares the whole header.
    return web.Response(
        body=json.dumps(data).encode(), status=status, headers={"Content-Type": "application/json"}
    )


def _message(number: str, channel: str, author: dict[str, Any], text: str) -> dict[str, Any]:
    return {
        "id": number,
        "channel_id": channel,
        "author": author,
        "content": text,
        "timestamp": WHEN,
        "edited_timestamp": None,
        "tts": False,
        "mention_everyone": False,
        "mentions": [],
        "mention_roles": [],
        "attachments": [],
        "embeds": [],
        "components": [],
        "pinned": False,
        "type": 0,
        "flags": 0,
    }


@asynccontextmanager
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Discord]:
    import yarl
    from discord.gateway import DiscordWebSocket
    from discord.http import Route

    made = Discord()
    app = web.Application()
    app.router.add_route("*", "/api/{path:.*}", made.call)
    app.router.add_get("/gateway/", made.listen)
    made.server = TestServer(app)
    await made.server.start_server()
    monkeypatch.setattr(Route, "BASE", str(made.server.make_url("/api")))
    gateway = str(made.server.make_url("/gateway/")).replace("http", "ws", 1)
    monkeypatch.setattr(DiscordWebSocket, "DEFAULT_GATEWAY", yarl.URL(gateway))
    try:
        yield made
    finally:
        await made.server.close()
