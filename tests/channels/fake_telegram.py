"""A Bot API server: getMe, getUpdates (long polling), sendMessage, deleteWebhook."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.channels.world import Sent, World

BOT = {"id": 42, "is_bot": True, "first_name": "Claw", "username": "claw_bot"}
BEGAN = 1_700_000_000
GROUP = -5000


class Telegram(World):
    def __init__(self) -> None:
        super().__init__()
        self.updates: list[dict[str, Any]] = []
        self.more = asyncio.Condition()
        self.reactions: dict[tuple[int, str], set[str]] = {}
        self.server: TestServer

    def settings(self) -> str:
        return f'api = "{str(self.server.make_url("")).rstrip("/")}"\n'

    # ------------------------------------------------------------------------------------------- the API

    async def call(self, request: web.Request) -> web.Response:
        if request.match_info["token"] != self.TOKENS["token"]:
            return web.json_response(
                {"ok": False, "error_code": 401, "description": "Unauthorized"}, status=401
            )
        given = {k: _value(v) for k, v in (await request.post()).items()}
        method = request.match_info["method"]
        result: Any = True
        if method == "getMe":
            result = BOT | {"can_join_groups": True}
        elif method == "getUpdates":
            self.ready.set()
            result = await self.fetch(int(given.get("offset", 0)), float(given.get("timeout", 0)))
        elif method == "sendMessage":
            result = self.send(given)
        return web.json_response({"ok": True, "result": result})

    async def fetch(self, offset: int, seconds: float) -> list[dict[str, Any]]:
        async with self.more:
            # What was fetched and confirmed is gone; a platform that repeats itself gives it the next number.
            self.updates = [u for u in self.updates if u["update_id"] >= offset]
            if not self.updates and seconds:
                try:
                    await asyncio.wait_for(self.more.wait(), min(seconds, 2))
                except TimeoutError:
                    return []
            return self.updates

    def send(self, given: dict[str, Any]) -> dict[str, Any]:
        assert given["text"].strip()
        assert len(given["text"].encode("utf-16-le")) // 2 <= 4096
        chat, number = int(given["chat_id"]), self.number()
        self.put(Sent(str(number), given["text"], given))
        return {"message_id": number, "date": BEGAN, "chat": _chat(chat), "from": BOT, "text": given["text"]}

    # ---------------------------------------------------------------------------------------- what happens

    async def tell(self, kind: str, content: dict[str, Any]) -> None:
        self.last = (kind, content)
        async with self.more:
            self.updates.append({"update_id": 10_000 + self.number(), kind: content})
            self.more.notify_all()

    async def again(self) -> None:
        await self.tell(*self.last)

    async def says(self, who: str, text: str, **where: Any) -> None:
        chat = GROUP if where.get("group") else int(who) + 1_000_000 * where.get("chat", 0)
        entities = []
        if where.get("mention"):
            text = f"@{BOT['username']} {text}"
            entities = [{"type": "mention", "offset": 0, "length": len(BOT["username"]) + 1}]
        message = {
            "message_id": self.number(),
            "date": BEGAN,
            "chat": _chat(chat),
            "from": {"id": int(who), "is_bot": False, "first_name": "Somebody"},
            "text": text,
            "entities": entities,
        }
        if reply := where.get("reply"):
            message["reply_to_message"] = {
                "message_id": int(reply.id),
                "date": BEGAN,
                "chat": _chat(chat),
                "from": BOT,
                "text": reply.text,
            }
        await self.tell("message", message)

    async def reacts(self, who: str, message: Sent, sign: int, **where: Any) -> None:
        chat = int(message.raw["chat_id"])
        held = self.reactions.setdefault((int(message.id), who), set())
        before = set(held)
        emoji = "👍" if sign > 0 else "👎"
        (held.add if where.get("on", True) else held.discard)(emoji)
        at = where.get("at")
        await self.tell(
            "message_reaction",
            {
                "chat": _chat(chat),
                "message_id": int(message.id),
                "user": {"id": int(who), "is_bot": False, "first_name": "Somebody"},
                "date": BEGAN + (self.count if at is None else at),
                "old_reaction": [{"type": "emoji", "emoji": e} for e in sorted(before)],
                "new_reaction": [{"type": "emoji", "emoji": e} for e in sorted(held)],
            },
        )


def _chat(number: int) -> dict[str, Any]:
    if number < 0:
        return {"id": number, "type": "supergroup", "title": "All of us"}
    return {"id": number, "type": "private", "first_name": "Somebody"}


def _value(raw: Any) -> Any:
    try:
        return json.loads(raw) if raw[:1] in "[{" else raw
    except ValueError:
        return raw


@asynccontextmanager
async def world(_: pytest.MonkeyPatch) -> AsyncIterator[Telegram]:
    made = Telegram()
    app = web.Application()
    app.router.add_post("/bot{token}/{method}", made.call)
    made.server = TestServer(app)
    await made.server.start_server()
    try:
        yield made
    finally:
        await made.server.close()
