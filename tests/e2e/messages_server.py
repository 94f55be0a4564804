"""A loopback server that speaks as much of the Anthropic Messages API as an agent needs to hold a conversation.

What it answers is the caller's: ``answer(messages)`` gives a text or a ``Call``, where messages are plain user and assistant texts.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Call(NamedTuple):
    """An answer that calls a tool. ``delta``: further fields of its last event, such as the verdicts of a safety check."""

    id: str
    name: str
    input: dict[str, Any]
    delta: dict[str, Any]


Answer = Callable[[list[dict[str, str]]], str | Call]


def plain(messages: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The human conversation: what an agent injects (reminders, tool results, system entries) is left out."""
    kept = []
    for message in messages:
        if message["role"] not in ("user", "assistant"):
            continue
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        texts = [b["text"] for b in blocks if b.get("type") == "text"]
        text = "\n".join(t for t in texts if not t.lstrip().startswith("<system-reminder>")).strip()
        if text:
            kept.append({"role": message["role"], "content": text})
    return kept


def stream_events(message: dict[str, Any], text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The server-sent events of one text answer, in the order that the API documents."""
    yield "message_start", {"message": {**message, "content": [], "stop_reason": None}}
    yield "content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}
    for start in range(0, len(text), 40):
        delta = {"type": "text_delta", "text": text[start : start + 40]}
        yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    yield (
        "message_delta",
        {"delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 5}},
    )
    yield "message_stop", {}


def call_events(message: dict[str, Any], call: Call) -> Iterator[tuple[str, dict[str, Any]]]:
    """The server-sent events of one tool call."""
    yield "message_start", {"message": {**message, "content": [], "stop_reason": None}}
    block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
    yield "content_block_start", {"index": 0, "content_block": block}
    delta = {"type": "input_json_delta", "partial_json": json.dumps(call.input)}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    stop = {"stop_reason": "tool_use", "stop_sequence": None, **call.delta}
    yield "message_delta", {"delta": stop, "usage": {"output_tokens": 5}}
    yield "message_stop", {}


class MessagesServer:
    """Use as a context manager; ``url`` is where to point an agent, ``requests`` what it sent, in order."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[dict[str, Any]] = []
        self.betas: list[str] = []
        """The header ``anthropic-beta`` of each request."""
        numbers, outer = itertools.count(1), self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None: ...

            def send_json(self, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def do_HEAD(self) -> None:
                self.send_json({})

            do_GET = do_HEAD

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if self.path.split("?")[0].endswith("/count_tokens"):
                    return self.send_json({"input_tokens": 42})
                outer.requests.append(body)
                outer.betas.append(self.headers.get("anthropic-beta", ""))
                reply = answer(plain(body["messages"]))
                text = reply if isinstance(reply, str) else ""
                message = {
                    "id": f"msg_{next(numbers)}",
                    "type": "message",
                    "role": "assistant",
                    "model": body["model"],
                    "content": [{"type": "text", "text": text}],
                    "stop_reason": "end_turn",
                    "stop_sequence": None,
                    "usage": {"input_tokens": 10, "output_tokens": 5},
                }
                if not body.get("stream"):
                    return self.send_json(message)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                events = (
                    stream_events(message, reply) if isinstance(reply, str) else call_events(message, reply)
                )
                for name, data in events:
                    event = f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n"
                    self.wfile.write(event.encode())
                    self.wfile.flush()
                self.close_connection = True
                return None

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> MessagesServer:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
