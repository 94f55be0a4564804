"""A real opencode or Hermes Agent in a terminal, with the plugin that ``clawback init`` installs: ``plugin_loop.py AGENT PROGRAM FOLDER [PACKAGES]``.

Prints one JSON object about what happened. PACKAGES: the node_modules of opencode's own plugin package, which it would fetch.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from agents import soon
from terminal import Terminal, plain

from clawback import store
from clawback.paths import Home

SHELLS = ("bash", "terminal")
COMMAND = {"command": "echo tool-ran", "description": "try it"}


class Upstream(BaseHTTPRequestHandler):
    """Chat completions, as a stream or whole: "about the otter" is answered by a shell command first, then with "All about the otter."."""

    protocol_version = "HTTP/1.1"
    asked: list[str] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(json.dumps(body["messages"], ensure_ascii=False))
        topics = re.findall(
            r"about the (\w+)", str([m["content"] for m in body["messages"] if m["role"] == "user"])
        )
        tools = [tool["function"]["name"] for tool in body.get("tools", [])]
        shell = next((name for name in SHELLS if name in tools), "")
        message: dict[str, Any] = {
            "role": "assistant",
            "content": f"All about the {topics[-1] if topics else 'rest'}.",
        }
        if topics[-1:] == ["otter"] and shell and body["messages"][-1]["role"] != "tool":
            call = {
                "index": 0,
                "id": "call_1",
                "type": "function",
                "function": {"name": shell, "arguments": json.dumps(COMMAND)},
            }
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        end = "tool_calls" if "tool_calls" in message else "stop"
        head = {"id": "chatcmpl-1", "created": 1, "model": body["model"]}
        if body.get("stream"):
            chunks = [{"delta": message, "finish_reason": None}, {"delta": {}, "finish_reason": end}]
            lines = [
                {**head, "object": "chat.completion.chunk", "choices": [{"index": 0, **chunk}]}
                for chunk in chunks
            ]
            data = b"".join(f"data: {json.dumps(line)}\n\n".encode() for line in lines) + b"data: [DONE]\n\n"
        else:
            data = json.dumps(
                {
                    **head,
                    "object": "chat.completion",
                    "choices": [{"index": 0, "message": message, "finish_reason": end}],
                }
            ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if body.get("stream") else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with suppress(BrokenPipeError):
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def set_up(agent: str, home: Path, port: int, packages: str) -> Path:
    """The agent's own settings, as its person has them."""
    url = f"http://127.0.0.1:{port}/v1"
    if agent == "hermes":
        folder = home / ".hermes"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(
            f"# mine\nmodel:\n  default: m\n  provider: custom\n  base_url: {url}\n  api_key: none\n"
        )
        return folder
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "F",
        "options": {"baseURL": url, "apiKey": "none"},
        "models": {"m": {"name": "m"}},
    }
    held = {
        "$schema": "https://opencode.ai/config.json",  # else opencode adds it
        "autoupdate": False,
        "share": "disabled",
        "model": "f/m",
        "small_model": "f/m",
        "provider": {"f": provider},
    }
    (folder / "opencode.json").write_text(json.dumps(held))
    if packages:
        shutil.copytree(packages, folder / "node_modules")
        version = json.loads((folder / "node_modules/@opencode-ai/plugin/package.json").read_text())[
            "version"
        ]
        (folder / "package.json").write_text(json.dumps({"dependencies": {"@opencode-ai/plugin": version}}))
    return folder


def files(folder: Path) -> dict[str, str]:
    """Those that a person or Clawback writes: agents keep state of their own beside them."""
    named = [
        p
        for place in ("opencode.json", "config.yaml", "plugins", "commands")
        for p in sorted([folder / place, *(folder / place).rglob("*")])
    ]
    return {
        str(p.relative_to(folder)): p.read_text()
        for p in named
        if p.is_file() and "__pycache__" not in p.parts
    }


def main(agent: str, program: str, root: Path, packages: str = "") -> dict[str, Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    person, here = root / "person", Home(root / "clawback")
    folder = set_up(agent, person, server.server_address[1], packages)
    work = root / "work"
    work.mkdir()
    environment = {
        "PATH": os.pathsep.join([str(Path(program).parent), os.environ["PATH"]]), "HOME": str(person), "TERM": "xterm", "LANG": "C.UTF-8",
        "CLAWBACK_HOME": str(here.root), "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }  # fmt: skip
    clawback = [sys.executable, "-m", "clawback"]

    def run(*arguments: str) -> str:
        done = subprocess.run([*clawback, *arguments], env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True, check=True)  # fmt: skip
        return done.stdout

    before = files(folder)
    run("init", "--yes", "--agent", agent, "--model", "embedded")
    command = [program] if agent == "opencode" else [program, "chat"]
    seen = {}
    with Terminal(command, work, environment) as terminal:
        ready = "Askanything" if agent == "opencode" else "❯"
        terminal.until("ready", lambda: ready in terminal.new(), 150)
        for text, answer in (
            ("Tell me about the otter.", "All about the otter."),
            ("/rl good clear", "Clawback: Noted: good (turn 1)."),
            ("Tell me about the fox.", "All about the fox."),
            ("/rl bad too long", "Clawback: Noted: bad (turn 2)."),
        ):
            terminal.press(text)
            terminal.until(text, lambda text=text: plain(text) in terminal.new(), 60)  # type: ignore[misc]
            terminal.mark = len(terminal.written)
            terminal.press("\r")
            with suppress(
                AssertionError
            ):  # what is typed may have opened a list of commands, whose first Return chooses
                terminal.shows(answer, 8)
            if plain(answer) not in terminal.new():
                terminal.press("\r")
                terminal.shows(answer, 90)
            seen[text] = answer
            terminal.mark = len(terminal.written)
            soon("the turn is stored", lambda text=text: text.startswith("/rl") or _has(here, answer))  # type: ignore[misc]  # noqa: B023
    with store.connect(here.database) as db:
        turns = list(reversed(db.turns()))
        stored = [
            {"prompt": t.prompt, "response": t.response, "roles": [m["role"] for m in t.messages], "kind": t.kind, "cwd": t.cwd, "agent": t.agent,
             "feedback": [(f.kind, f.value, f.text) for f in db.feedback(turn_id=t.id)]}
            for t in turns
        ]  # fmt: skip
    result = {
        "seen": list(seen),
        "turns": stored,
        "work": str(work),
        "leaked": [text for text in Upstream.asked if "/rl" in text or "Noted" in text],
    }
    run("init", "--remove", "--yes")
    return result | {"before": before, "after": files(folder)}


def _has(here: Home, answer: str) -> bool:
    with store.connect(here.database) as db:
        return any(turn.response == answer for turn in db.turns())


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])))
