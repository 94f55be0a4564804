"""A real agent through a real ``clawback serve``: run by test_serve.py where only loopback exists.

usage: serve_loop.py claude|codex PROGRAM WORKDIR
Claude Code first in front of an upstream that makes the agent call a tool, then with the embedded model answering.
Prints one JSON object about what happened.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from agents import claude_environment

from clawback import store
from clawback.paths import Home


class Upstream(BaseHTTPRequestHandler):
    """Speaks Anthropic messages: asks for a tool once, then says what the tool said."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        results = [
            b
            for m in body["messages"]
            if isinstance(m["content"], list)
            for b in m["content"]
            if b.get("type") == "tool_result"
        ]
        head = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [],
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        if results:
            block, delta, reason = (
                {"type": "text", "text": ""},
                {"type": "text_delta", "text": f"It said: {results[-1]['content']}"},
                "end_turn",
            )
        else:
            block = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
            delta = {
                "type": "input_json_delta",
                "partial_json": json.dumps({"command": "echo tool-ran", "description": "try"}),
            }
            reason = "tool_use"
        events = [
            ("message_start", {"message": {**head, "stop_reason": None}}),
            ("content_block_start", {"index": 0, "content_block": block}),
            ("content_block_delta", {"index": 0, "delta": delta}),
            ("content_block_stop", {"index": 0}),
            ("message_delta", {"delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}),
            ("message_stop", {}),
        ]
        data = b"".join(f"event: {n}\ndata: {json.dumps({'type': n, **d})}\n\n".encode() for n, d in events)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serve(home: Home, *options: str) -> Iterator[str]:
    """``clawback serve`` on a free port; its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "clawback", "serve", "--port", "0", *options],
        env=claude_environment(home.root, "", home.root),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        yield process.stdout.readline().split("answers on ")[1].split()[0]
    finally:
        process.terminate()
        assert process.wait(timeout=60) in (0, -15)


def claude_code(claude: str, workdir: Path) -> dict[str, Any]:
    person, project = workdir / "home", workdir / "project"
    for folder in (person, project):
        folder.mkdir(parents=True)
    seen: dict[str, Any] = {}

    def ask(url: str, text: str, *options: str) -> dict[str, Any]:
        environment = claude_environment(person, url, workdir / "nobody")
        done = subprocess.run(
            [claude, "-p", text, "--output-format", "json", *options],
            cwd=project, env=environment, capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout[-1500:]} {done.stderr[-1500:]}"
        return dict(json.loads(done.stdout))

    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as upstream:
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        home = Home(workdir / "proxied")
        home.create()
        with serve(home, "--upstream", f"http://127.0.0.1:{upstream.server_port}") as url:
            said = ask(url, "Try the tool.", "--allowedTools", "Bash")
        upstream.shutdown()
    with store.connect(home.database) as db:
        turns = list(reversed(db.turns(limit=50, kind="main")))
    seen["tool"] = {
        "result": said["result"],
        "sessions": sorted({t.session for t in turns} ^ {said["session_id"]}),
        "agents": sorted({t.agent for t in turns}),
        "calls": [c["name"] for t in turns for c in t.calls],
        "came_back": [m["content"] for m in turns[0].next_state if m["role"] == "tool"],
        "responses": [t.response for t in turns],
    }

    home = Home(workdir / "embedded")
    home.create()
    with serve(home) as url:
        first = ask(url, "Tell me about the otter.")
        again = ask(url, "And the fox?", "--resume", first["session_id"])
    with store.connect(home.database) as db:
        turns = list(reversed(db.turns(limit=50, kind="main")))
    seen["embedded"] = {
        "said": [first["result"], again["result"]],
        "stored": [t.response for t in turns],
        "sessions": sorted({t.session for t in turns} ^ {first["session_id"]}),
        "versions": sorted({t.version for t in turns}),
        "tokens": all(t.response_ids for t in turns),
    }
    return seen


class ResponsesUpstream(BaseHTTPRequestHandler):
    """Speaks OpenAI responses: asks for the shell once, then says what the shell said."""

    protocol_version = "HTTP/1.1"
    SHELLS = {"exec_command": "cmd", "shell_command": "command", "shell": "command"}

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        came_back = [i["output"] for i in body["input"] if i.get("type") == "function_call_output"]
        if came_back:
            said = {"type": "output_text", "text": f"It said: {came_back[-1]}", "annotations": []}
            item = {
                "type": "message",
                "id": "m1",
                "role": "assistant",
                "status": "completed",
                "content": [said],
            }
        else:
            name = next(t["name"] for t in body["tools"] if t.get("name") in self.SHELLS)
            command: Any = ["sh", "-c", "echo tool-ran"] if name == "shell" else "echo tool-ran"
            given = json.dumps({self.SHELLS[name]: command})
            item = {
                "type": "function_call",
                "id": "f1",
                "call_id": "call_1",
                "name": name,
                "arguments": given,
                "status": "completed",
            }
        tokens = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        whole = {
            "id": "r1",
            "object": "response",
            "model": body["model"],
            "status": "completed",
            "output": [item],
            "usage": tokens,
        }
        events = [
            (
                "response.created",
                {"response": {**whole, "status": "in_progress", "output": [], "usage": None}},
            ),
            ("response.output_item.added", {"output_index": 0, "item": {**item, "status": "in_progress"}}),
            ("response.output_item.done", {"output_index": 0, "item": item}),
            ("response.completed", {"response": whole}),
        ]
        data = b"".join(f"event: {n}\ndata: {json.dumps({'type': n, **d})}\n\n".encode() for n, d in events)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


CODEX_SETTINGS = """
model = "clawback"
model_provider = "x"
check_for_update_on_startup = false
[model_providers.x]
name = "x"
base_url = "{url}/v1"
env_key = "KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
[projects."{project}"]
trust_level = "trusted"
"""


def codex(program: str, workdir: Path) -> dict[str, Any]:
    """Codex speaks the responses dialect alone: the embedded model answers it, and then one that calls a tool."""
    seen = codex_says(program, workdir / "embedded", "Tell me about the otter.")
    with ThreadingHTTPServer(("127.0.0.1", 0), ResponsesUpstream) as upstream:
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{upstream.server_port}"
        seen["tool"] = codex_says(program, workdir / "tool", "Try the tool.", "--upstream", address)
        upstream.shutdown()
    return seen


def codex_says(program: str, workdir: Path, text: str, *options: str) -> dict[str, Any]:
    project, settings, home = workdir / "project", workdir / ".codex", Home(workdir / "clawback")
    for folder in (project, settings, home.root):
        folder.mkdir(parents=True)
    with serve(home, *options) as url:
        (settings / "config.toml").write_text(CODEX_SETTINGS.format(url=url, project=project))
        done = subprocess.run(
            [program, "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "--json", text],
            cwd=project,
            env={"PATH": os.environ["PATH"], "HOME": str(workdir), "CODEX_HOME": str(settings), "TERM": "xterm", "KEY": "none"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-1500:]} {done.stderr[-1500:]}"
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    with store.connect(home.database) as db:
        turns = list(reversed(db.turns(limit=50, kind="main")))
    return {
        "calls": [c["name"] for t in turns for c in t.calls],
        "came_back": [m["content"] for t in turns for m in t.next_state if m["role"] == "tool"],
        "thread": next(e["thread_id"] for e in events if e["type"] == "thread.started"),
        "said": [e["item"]["text"] for e in events if e.get("item", {}).get("type") == "agent_message"],
        "stored": [t.response for t in turns],
        "sessions": [t.session for t in turns],
        "agents": [t.agent for t in turns],
        "prompts": [t.prompt for t in turns],
    }


if __name__ == "__main__":
    run = {"claude": claude_code, "codex": codex}[sys.argv[1]]
    print(json.dumps(run(sys.argv[2], Path(sys.argv[3]))))
