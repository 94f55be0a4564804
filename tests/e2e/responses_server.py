"""A loopback server that speaks as much of the OpenAI Responses API as Codex needs: texts, tool calls, and a stream that never ends.

What it answers is the caller's: ``answer(asked) -> Say | Call``. Titles are its own affair: they are asked for with a schema.
"""

from __future__ import annotations

import itertools
import json
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HELD_SECONDS = 300
"""How long an endless answer is held open for somebody to interrupt it."""
USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 15,
}


@dataclass(frozen=True)
class Asked:
    texts: list[str]
    """What the person wrote since the last answer, in order."""
    outputs: list[str]
    """What tools brought since then."""
    spaces: dict[str, str]
    """Every tool's name, with that of the namespace that it is in, or ""."""
    title: bool
    """It is a title that is asked for, not an answer."""


@dataclass(frozen=True)
class Say:
    text: str
    endless: bool = False
    """After the text nothing comes, not even its end, until the client leaves."""


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, Any]


Answer = Callable[[Asked], Say | Call]


def read(body: dict[str, Any]) -> Asked:
    texts: list[str] = []
    outputs: list[str] = []
    for item in body["input"]:
        kind, role = item.get("type", "message"), item.get("role")
        if kind == "message" and role == "assistant":
            texts, outputs = [], []
        elif kind == "message" and role == "user":
            said = "\n".join(p.get("text", "") for p in item["content"]).strip()
            if said.startswith("<turn_aborted>"):
                texts, outputs = [], []
            elif not said.startswith("<"):  # the agent's own words about folder and instructions
                texts.append(said)
        elif kind.endswith("_call_output"):
            outputs.append(str(item["output"]))
    spaces = {}
    for tool in body.get("tools") or []:
        inner = tool.get("tools")
        spaces |= {t["name"]: tool["name"] for t in inner} if inner else {tool.get("name", tool["type"]): ""}
    title = "title" in str((body.get("text") or {}).get("format", ""))
    return Asked(texts, outputs, spaces, title)


class ResponsesServer:
    """Use as a context manager; ``url`` is where to point Codex, ``asked`` what it asked for, in order."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[Asked] = []
        numbers, outer = itertools.count(1), self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

            def do_GET(self) -> None:
                self.send_error(404)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                asked = read(body)
                outer.asked.append(asked)
                said = Say('{"title": "Look at animals"}') if asked.title else answer(asked)
                number = next(numbers)
                item = self.item(said, asked, number)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                head = {"id": f"resp_{number}", "object": "response", "model": body["model"]}
                whole = {**head, "status": "completed", "output": [item], "usage": USAGE}
                begun = {**head, "status": "in_progress", "output": [], "usage": None}
                self.send("response.created", response=begun)
                if isinstance(said, Call):
                    self.send("response.output_item.added", output_index=0, item=item | {"arguments": ""})
                elif not self.stream(said, item):
                    return
                self.send("response.output_item.done", output_index=0, item=item)
                self.send("response.completed", response=whole)

            def stream(self, said: Say, item: dict[str, Any]) -> bool:
                """False where it has no end."""
                place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
                empty = {"type": "output_text", "text": "", "annotations": []}
                self.send("response.output_item.added", output_index=0, item=item | {"content": []})
                self.send("response.content_part.added", **place, part=empty)
                for line in said.text.splitlines(keepends=True):
                    self.send("response.output_text.delta", **place, delta=line)
                if said.endless:
                    select.select([self.connection], [], [], HELD_SECONDS)
                    return False
                self.send("response.output_text.done", **place, text=said.text)
                return True

            @staticmethod
            def item(said: Say | Call, asked: Asked, number: int) -> dict[str, Any]:
                if isinstance(said, Say):
                    content = [{"type": "output_text", "text": said.text, "annotations": []}]
                    head = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
                    return {**head, "status": "completed", "content": content}
                space = asked.spaces[said.name]
                return {
                    "type": "function_call",
                    "id": f"fc_{number}",
                    "call_id": f"call_{number}",
                    "name": said.name,
                    "arguments": json.dumps(said.arguments),
                    "status": "completed",
                    **({"namespace": space} if space else {}),
                }

            def send(self, name: str, **data: Any) -> None:
                self.wfile.write(f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode())
                self.wfile.flush()

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> ResponsesServer:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
