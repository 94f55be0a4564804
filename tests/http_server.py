"""A server on loopback that answers from a list and keeps what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Reply:
    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Exchange:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class HttpServer:
    replies: list[Reply]
    exchanges: list[Exchange] = field(default_factory=list)
    url: str = ""


@contextmanager
def http_server(replies: Sequence[Reply]) -> Iterator[HttpServer]:
    """The replies one after another, then the last one for ever."""
    server = HttpServer(list(replies))

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.exchanges.append(Exchange(self.command, self.path, headers, body))
            reply = server.replies.pop(0) if len(server.replies) > 1 else server.replies[0]
            self.send_response(reply.status)
            for name, value in {"content-length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body)

        do_GET = do_POST = do_HEAD = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    server.url = f"http://127.0.0.1:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
