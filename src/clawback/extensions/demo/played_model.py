"""A model that is played by a function, on a port of loopback, in OpenAI's chat dialect: for the demo without a network, and for benchmarks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from clawback.records import JsonObject, Message


class PlayedModel:
    """A context manager: the server runs within it. ``requests`` holds the messages of each request."""

    def __init__(self, answer: Callable[[Sequence[Message]], str], name: str) -> None:
        self.requests: list[Sequence[Message]] = []
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 65536  # headers and body in one piece: two wait for each other

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length", "0")))
                messages = json.loads(raw)["messages"]
                model.requests.append(messages)
                data = json.dumps(_reply(answer(messages), name, len(raw))).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(timeout=10)


def _reply(text: str, name: str, read: int) -> JsonObject:
    """An answer as OpenAI writes it; tokens are counted as four characters each."""
    usage = {"prompt_tokens": read // 4, "completion_tokens": len(text) // 4}
    usage["total_tokens"] = sum(usage.values())
    message = {"role": "assistant", "content": text}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return {"id": "c", "object": "chat.completion", "model": name, "usage": usage, "choices": choices}
