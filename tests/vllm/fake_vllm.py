#!/usr/bin/env python3
"""A program in the place of ``vllm``: it answers the routes that say whether it lives, and writes down what it is asked.

Its folder says what it does: ``broken`` (it ends with an error), ``hangs`` (it leaves the request to end unheard).
"""

import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).parent


def note(**what: object) -> None:
    with (HERE / "notes.jsonl").open("a") as file:
        file.write(json.dumps(what) + "\n")


class Routes(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.answer()

    def answer(self) -> None:
        if self.path != "/health":
            note(path=self.path, key=self.headers.get("authorization", ""))
        body = b'{"version": "0.32.0"}'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    if (HERE / "hangs").exists():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if (HERE / "broken").exists():
        sys.exit("ValueError: the model is no model")
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Routes)
    engine = subprocess.Popen(["/bin/sleep", "600"])
    ours = {name: value for name, value in os.environ.items() if "VLLM" in name or "PYTHON" in name}
    note(started=os.getpid(), engine=engine.pid, arguments=sys.argv[1:], environment=ours)
    server.serve_forever()


if __name__ == "__main__":
    main()
