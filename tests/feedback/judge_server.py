"""A judge on loopback that speaks both dialects and misbehaves on request: slow, broken, redirecting, or simply wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = str | int | bytes | tuple[int, dict[str, str], str]
"""A text to answer with; a status; bytes instead of JSON; or status, headers, body."""


@dataclass
class JudgeServer:
    """``says(system, user)`` → what to reply. ``asked`` keeps (path, headers, body) of every request."""

    says: Callable[[str, str], Reply]
    url: str = ""
    asked: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    """Cleared: replies wait until it is set."""


@contextmanager
def judge_server(says: Callable[[str, str], Reply]) -> Iterator[JudgeServer]:
    judge = JudgeServer(says)
    judge.hold.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            judge.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            judge.hold.wait(30)
            anthropic = self.path == "/v1/messages"
            system = body["system"] if anthropic else body["messages"][0]["content"]
            said = judge.says(system, body["messages"][-1]["content"])
            status, headers, out = 200, {}, b""
            if isinstance(said, int):
                status = said
            elif isinstance(said, bytes):
                out = said
            elif isinstance(said, tuple):
                status, headers, text = said
                out = text.encode()
            else:
                out = json.dumps(_anthropic(said) if anthropic else _openai(said)).encode()
            try:
                self.send_response(status)
                for name, value in {"content-length": str(len(out)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(out)
            except OSError:  # the client had no patience
                pass

        def do_GET(self) -> None:
            judge.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}, {}))
            self.send_error(405)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    judge.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield judge
    finally:
        judge.hold.set()
        server.shutdown()
        server.server_close()


def _openai(text: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100}}


def _anthropic(text: str) -> dict[str, Any]:
    blocks = [{"type": "thinking", "thinking": "\\boxed{0}"}, {"type": "text", "text": text}]
    return {"content": blocks, "stop_reason": "end_turn", "usage": {"input_tokens": 90, "output_tokens": 10}}
