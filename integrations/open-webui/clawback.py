"""
title: Clawback
version: 0.1.0
description: Brings answers and what you think of them (thumbs, 1 to 10, reasons) to Clawback, which trains your own model from it.
required_open_webui_version: 0.5.0
"""

# A filter function of Open WebUI. It runs in Open WebUI's own Python and imports nothing of Clawback.

import asyncio
import inspect
import json
import logging
import time
import urllib.request
from collections import deque

from pydantic import BaseModel, Field

URL = "http://127.0.0.1:8742"
TOKEN = ""
WAIT_SECONDS = 5
WATCH_SECONDS = 1800
"""How long after a person's last message their ratings are looked for."""
MOST_ROWS = 100
"""The newest ratings of a person that are looked at."""
MOST_WAITING = 500
"""Events that are kept while Clawback does not answer."""

log = logging.getLogger("clawback")


class Filter:
    class Valves(BaseModel):
        url: str = Field(default=URL, description="Address of `clawback serve`, as this server reaches it")
        token: str = Field(default=TOKEN, description="The content of ~/.clawback/hook-token")
        owner: str = Field(
            default="", description="E-mail of the person whose Clawback it is; empty: administrators"
        )
        seconds: float = Field(
            default=15, description="How often ratings are looked for while somebody chats"
        )
        priority: int = Field(default=0, description="Order among filters")

    def __init__(self):
        self.valves = self.Valves()
        self._waiting = deque(maxlen=MOST_WAITING)
        self._sending = asyncio.Lock()
        self._people = {}
        self._ratings = {}
        self._watcher = None

    async def inlet(self, body, __user__=None):
        """Before a model is asked: what was rated meanwhile."""
        self._note(__user__)
        self._watch()
        return body

    async def outlet(self, body, __user__=None):
        """After an answer: the prompt, the answer, and the message that shows it."""
        try:
            self._note(__user__)
            self._queue_answer(body, __user__ or {})
            await self._send()
            self._watch()
        except Exception as error:
            log.warning("an answer did not reach Clawback: %s", error)
        return body

    # ---------------------------------------------------------------------------------------------- what is told

    def _queue_answer(self, body, user):
        chat, messages = str(body.get("chat_id") or ""), body.get("messages") or []
        if not chat or chat.startswith("local") or len(messages) < 2:
            return  # a temporary chat is kept nowhere
        answer = messages[-1]
        prompt = next((m for m in reversed(messages[:-1]) if m.get("role") == "user"), None)
        if answer.get("role") != "assistant" or prompt is None:
            return
        message = str(answer.get("id") or body.get("id") or "")
        name = f"{prompt.get('id') or ''}:{message}"
        event = {"session": chat, "id": name, "by": self._by(user)}
        self._waiting.append({**event, "event": "prompt", "text": words(prompt.get("content")), "last": True})
        model = str(answer.get("model") or body.get("model") or "")
        self._waiting.append(
            {**event, "event": "answer", "text": words(answer.get("content")), "model": model}
        )
        self._waiting.append({**event, "event": "shown", "message": message})

    def _queue_rating(self, row, user):
        """A thumb, a score or a reason that is new; the newest of a message counts."""
        meta, data = row.get("meta") or {}, row.get("data") or {}
        chat, message, command = meta.get("chat_id"), meta.get("message_id"), command_of(data)
        state = (row.get("updated_at"), command)
        if not (chat and message and command) or self._ratings.get(row["id"], (None,))[0] == state:
            return
        self._ratings[row["id"]] = (state, chat, message, user["id"])
        self._queue_command(
            chat, message, command, f"{row['id']}:{row.get('updated_at')}:{command[:40]}", user
        )

    def _queue_command(self, chat, message, command, name, user):
        event = {"event": "prompt", "session": str(chat), "id": name, "text": command, "about": str(message)}
        self._waiting.append({**event, "by": self._by(user)})

    async def _queue_ratings(self):
        from open_webui.models.feedbacks import Feedbacks

        for user in list(self._people.values()):
            newest = Feedbacks.get_feedbacks_by_user_id
            # Newer versions give pages, the newest first.
            options = {"limit": MOST_ROWS} if "limit" in inspect.signature(newest).parameters else {}
            page = await result_of(newest(user["id"], **options))
            rows = [
                row if isinstance(row, dict) else row.model_dump() for row in getattr(page, "items", page)
            ]
            for row in sorted(rows, key=lambda row: row.get("updated_at") or 0):
                self._queue_rating(row, user)
            there = {row["id"] for row in rows}
            mine = [name for name, known in self._ratings.items() if known[3] == user["id"]]
            for name in mine:
                if name not in there and await result_of(Feedbacks.get_feedback_by_id(name)) is None:
                    _, chat, message, _ = self._ratings.pop(name)
                    self._queue_command(chat, message, "/rl undo", f"{name}:gone", user)

    def _note(self, user):
        if user and user.get("id"):
            self._people[user["id"]] = {**user, "seen": time.monotonic()}

    def _by(self, user):
        """Empty for the owner; else who it is."""
        mine = user.get("email") == self.valves.owner if self.valves.owner else user.get("role") == "admin"
        return "" if mine or not user.get("id") else str(user["id"])

    # ---------------------------------------------------------------------------------------------- how it is sent

    def _watch(self):
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.get_running_loop().create_task(self._look())

    async def _look(self):
        while self._people:
            try:
                await self._queue_ratings()
                await self._send()
            except Exception as error:
                log.warning("ratings did not reach Clawback: %s", error)
            await asyncio.sleep(self.valves.seconds)
            now = time.monotonic()
            self._people = {i: u for i, u in self._people.items() if now - u["seen"] < WATCH_SECONDS}

    async def _send(self):
        """What waits, in its order. What Clawback did not take waits on."""
        async with self._sending:
            while self._waiting:
                await asyncio.to_thread(self._post, self._waiting[0])
                self._waiting.popleft()

    def _post(self, event):
        request = urllib.request.Request(  # noqa: S310
            self.valves.url.rstrip("/") + "/api/hooks/open-webui",
            data=json.dumps(event).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self.valves.token}"},
        )
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:  # noqa: S310
            answer.read()


async def result_of(value):
    """Of a call that newer versions of Open WebUI made asynchronous."""
    return await value if inspect.isawaitable(value) else value


def words(content):
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(
        str(p.get("text") or "") for p in parts if isinstance(p, dict) and p.get("type") == "text"
    )


def command_of(data):
    """Clawback's command for what a person chose: a score from 1 to 10 where there is one, else the thumb."""
    score, thumb = (data.get("details") or {}).get("rating"), str(data.get("rating"))
    reason = " ".join(str(data.get(name) or "").replace("_", " ") for name in ("reason", "comment")).strip()
    reason = " ".join(reason.split())
    if isinstance(score, (int, float)) and 1 <= score <= 10:
        return f"/rl rate {score:g} {reason}".strip()
    if thumb in ("1", "-1"):
        return f"/rl {'good' if thumb == '1' else 'bad'} {reason}".strip()
    return ""
