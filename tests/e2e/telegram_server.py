"""A loopback server that speaks as much of Telegram's Bot API as a bot needs to talk, be talked to, and be reacted to."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

BOT = {"id": 700, "is_bot": True, "first_name": "Claw", "username": "claw_bot", "can_join_groups": True}


class TelegramServer:
    """Use as a context manager; ``url`` is the API root. Messages that the bot sends stand in ``sent``, by their number."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.update_ids, self.message_ids = itertools.count(1), itertools.count(1)
        self.sent: dict[int, dict[str, Any]] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.changed = threading.Condition()
        self.stopping = False
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a bot that hangs up
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> TelegramServer:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()

    # ------------------------------------------------------------------------------------- what people do

    def say(self, person: dict[str, Any], chat: dict[str, Any], text: str) -> int:
        """Somebody writes; the number of the message."""
        number = next(self.message_ids)
        message: dict[str, Any] = {
            "message_id": number,
            "from": person,
            "chat": chat,
            "date": int(time.time()),
            "text": text,
        }
        if text.startswith("/"):
            message["entities"] = [{"type": "bot_command", "offset": 0, "length": len(text.split()[0])}]
        self._put({"message": message})
        return number

    def react(
        self, person: dict[str, Any], chat: dict[str, Any], message: int, emoji: str, was: str = ""
    ) -> None:
        """Somebody sets a reaction ("" takes it away)."""
        self._put(
            {
                "message_reaction": {
                    "chat": chat,
                    "message_id": message,
                    "user": person,
                    "date": int(time.time()),
                    "old_reaction": [{"type": "emoji", "emoji": was}] if was else [],
                    "new_reaction": [{"type": "emoji", "emoji": emoji}] if emoji else [],
                }
            }
        )

    def until(self, true: Callable[[], Any], seconds: float = 60) -> Any:
        """Wait for something that the bot says to make ``true()`` true."""
        with self.changed:
            assert self.changed.wait_for(true, seconds), f"not within {seconds} s; sent: {self.sent}"
            return true()

    def find(self, chat: dict[str, Any], text: str) -> int | None:
        """The newest message of the bot in that chat that holds the text."""
        for number, message in sorted(self.sent.items(), reverse=True):
            if str(message["chat_id"]) == str(chat["id"]) and text in message["text"]:
                return number
        return None

    # --------------------------------------------------------------------------------------------- the API

    def _put(self, update: dict[str, Any]) -> None:
        with self.changed:
            self.updates.append({"update_id": next(self.update_ids), **update})
            self.changed.notify_all()

    def _call(self, method: str, given: dict[str, Any]) -> Any:
        if method == "getMe":
            return BOT
        if method == "getUpdates":
            return self._new_updates(int(given.get("offset") or 0), float(given.get("timeout") or 0))
        if method == "getWebhookInfo":
            return {"url": "", "has_custom_certificate": False, "pending_update_count": 0}
        if method in ("getMyCommands", "getChatAdministrators"):
            return []
        if method in ("sendMessage", "editMessageText"):
            return self._message(method, given)
        return True

    def _new_updates(self, offset: int, seconds: float) -> list[dict[str, Any]]:
        """As Telegram has it: an update is given again and again until a later offset is asked for."""
        with self.changed:
            self.updates = [u for u in self.updates if u["update_id"] >= offset]
            self.changed.wait_for(lambda: self.updates or self.stopping, min(seconds, 5))
            return list(self.updates)

    def _message(self, method: str, given: dict[str, Any]) -> dict[str, Any]:
        with self.changed:
            number = int(given["message_id"]) if method == "editMessageText" else next(self.message_ids)
            self.sent[number] = {"chat_id": given["chat_id"], "text": str(given.get("text", ""))}
            self.changed.notify_all()
        chat = {"id": int(given["chat_id"]), "type": "private" if int(given["chat_id"]) > 0 else "group"}
        return {
            "message_id": number,
            "from": BOT,
            "chat": chat,
            "date": int(time.time()),
            "text": self.sent[number]["text"],
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None: ...

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                method = self.path.split("?")[0].rsplit("/", 1)[-1]
                given = _fields(raw, self.headers)
                if method != "getUpdates":
                    outer.calls.append((method, given))
                data = json.dumps({"ok": True, "result": outer._call(method, given)}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST

        return Handler


def _fields(raw: bytes, headers: Message) -> dict[str, Any]:
    kind = headers.get_content_type()
    if kind == "application/json":
        return dict(json.loads(raw or b"{}"))
    if kind == "application/x-www-form-urlencoded":
        return {name: values[-1] for name, values in parse_qs(raw.decode()).items()}
    return {}
