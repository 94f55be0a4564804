"""A real agent set up, talked to, rated by its own command, and taken out again: run by test_rating.py where only loopback exists.

usage: rating_loop.py claude-hooks|claude-plugin|codex|gemini PROGRAM WORKDIR
Prints one JSON object about what happened.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from agents import claude_environment
from serve_loop import CODEX_SETTINGS, serve

from clawback import store
from clawback.paths import Home

SCRIPTS = str(Path(sys.executable).parent)
INTEGRATIONS = Path(__file__).parents[2] / "integrations"
Say = Callable[..., dict[str, Any]]


def run(command: list[str], environment: dict[str, str], cwd: Path) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, f"{command[:3]}: {done.stdout[-1500:]} {done.stderr[-2500:]}"
    return done.stdout


def rated(home: Home) -> list[tuple[str, str, list[float]]]:
    """(prompt, response, its ratings) of each main turn, oldest first."""
    with store.connect(home.database) as db:
        return [
            (t.prompt, t.response, [f.value for f in db.feedback(turn_id=t.id) if f.kind == "rating"])
            for t in reversed(db.turns(limit=50, kind="main"))
        ]


def converse(say: Say, start: str) -> dict[str, Any]:
    """Two questions, a rating after each, and the second rating taken back and given again."""
    first = say("Tell me about the otter.")
    replies = [say(f"{start} good", first["session"])]
    second = say("Tell me about the fox.", first["session"])
    replies += [say(f"{start} {word}", first["session"]) for word in ("bad", "undo", "rate 1")]
    return {"said": [first["result"], second["result"]], "replies": [r["result"] for r in replies]}


def claude(program: str, workdir: Path, plugin: bool) -> dict[str, Any]:
    person, project, home = workdir / "home", workdir / "project", Home(workdir / "clawback")
    settings = person / ".claude" / "settings.json"
    for folder in (settings.parent, project, home.root):
        folder.mkdir(parents=True)
    before = b'{\n\t"model": "opus",\n\t"permissions": {"allow": ["Bash(ls:*)"]}\n}'
    settings.write_bytes(before)
    with serve(home) as url:
        environment = claude_environment(person, url, home.root)

        def say(text: str, session: str = "") -> dict[str, Any]:
            more = ["--resume", session] if session else []
            made = json.loads(
                run([program, "-p", text, "--output-format", "json", *more], environment, project)
            )
            return {"result": made["result"], "session": made["session_id"]}

        if plugin:
            run([program, "plugin", "marketplace", "add", str(INTEGRATIONS)], environment, project)
            run([program, "plugin", "install", "clawback@clawback"], environment, project)
        else:
            run(
                [f"{SCRIPTS}/clawback", "init", "--yes", "--agent", "claude-code", "--model", "embedded"],
                environment,
                project,
            )
        seen = converse(say, "/rl")
        if not plugin:
            run([f"{SCRIPTS}/clawback", "init", "--remove", "--yes"], environment, project)
    # With the server gone (and, by hooks, with Clawback itself gone) the agent works on.
    return seen | {"stored": rated(home), "restored": plugin or settings.read_bytes() == before}


def codex(program: str, workdir: Path) -> dict[str, Any]:
    """Once as it is before its person has trusted the hooks (`notify` alone), once with the trust given for the call."""
    project, settings, home = workdir / "project", workdir / ".codex", Home(workdir / "clawback")
    for folder in (project, settings, home.root):
        folder.mkdir(parents=True)
    environment = {
        **{"PATH": f"{SCRIPTS}:{os.environ['PATH']}", "HOME": str(workdir), "CODEX_HOME": str(settings)},
        **{"TERM": "xterm", "KEY": "none", "CLAWBACK_HOME": str(home.root)},
    }
    seen: dict[str, Any] = {}
    with serve(home) as url:
        before = CODEX_SETTINGS.format(url=url, project=project).encode()
        (settings / "config.toml").write_bytes(before)
        init = [f"{SCRIPTS}/clawback", "init", "--yes", "--agent", "codex", "--model", "embedded", "--json"]
        seen["notes"] = json.loads(run(init, environment, project))["notes"]
        for name, trust in (("notify", []), ("hooks", ["--dangerously-bypass-hook-trust"])):

            def say(text: str, session: str = "", trust: list[str] = trust) -> dict[str, Any]:
                resume = ["resume", session] if session else []
                words = [program, "exec", *resume, "--skip-git-repo-check", "--json", *trust, text]
                events = [
                    json.loads(e) for e in run(words, environment, project).splitlines() if e[:1] == "{"
                ]
                texts = [
                    e["item"]["text"] for e in events if e.get("item", {}).get("type") == "agent_message"
                ]
                thread = next(e["thread_id"] for e in events if e["type"] == "thread.started")
                return {"result": "".join(texts), "session": thread}

            seen[name] = converse(say, "rl:") | {"stored": rated(home)}
        run([f"{SCRIPTS}/clawback", "init", "--remove", "--yes"], environment, project)
    seen["restored"] = (settings / "config.toml").read_bytes() == before and not (
        settings / "hooks.json"
    ).exists()
    return seen


class Gemini(BaseHTTPRequestHandler):
    """As much of ``generateContent`` as the agent needs; what it says names the question."""

    protocol_version = "HTTP/1.1"
    asked: list[str] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = [
            p["text"] for c in body["contents"] if c.get("role") == "user" for p in c["parts"] if "text" in p
        ]
        self.asked.append(texts[-1])
        animal = re.findall(r"about the (\w+)", " ".join(texts))[-1:]
        said = f"The {animal[0]} is an animal." if animal else "Well."
        if "responseSchema" in str(body) or "responseJsonSchema" in str(body):
            said = json.dumps(
                {
                    "reasoning": "easy",
                    "model_choice": "flash",
                    "complexity_reasoning": "",
                    "complexity_score": 1,
                }
            )
        piece = {
            "candidates": [
                {"content": {"role": "model", "parts": [{"text": said}]}, "finishReason": "STOP", "index": 0}
            ],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        }
        stream = "alt=sse" in self.path
        data = (f"data: {json.dumps(piece)}\n\n" if stream else json.dumps(piece)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def gemini(program: str, workdir: Path) -> dict[str, Any]:
    project, home, settings = (
        workdir / "project",
        Home(workdir / "clawback"),
        workdir / ".gemini" / "settings.json",
    )
    for folder in (project, home.root, settings.parent):
        folder.mkdir(parents=True)
    before = b'{"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": false}}'
    settings.write_bytes(before)
    with ThreadingHTTPServer(("127.0.0.1", 0), Gemini) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = {
            **{"PATH": f"{SCRIPTS}:{os.environ['PATH']}", "HOME": str(workdir), "TERM": "xterm"},
            **{
                "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{server.server_port}",
                "GEMINI_API_KEY": "dummy-key",
            },
            **{"CLAWBACK_HOME": str(home.root), "GEMINI_CLI_TRUST_WORKSPACE": "true", "NO_COLOR": "1"},
        }

        def say(text: str, session: str = "") -> dict[str, Any]:
            more = ["--resume", "latest"] if session else []
            out = run([program, "-p", text, "--output-format", "json", *more], environment, project)
            made = json.loads(out[out.index("{") :]) if "{" in out else {}
            return {"result": made.get("response", out), "session": made.get("session_id", "latest")}

        run(
            [f"{SCRIPTS}/clawback", "init", "--yes", "--agent", "gemini-cli", "--model", "embedded"],
            environment,
            project,
        )
        seen = converse(say, "rl:")
        run([f"{SCRIPTS}/clawback", "init", "--remove", "--yes"], environment, project)
        server.shutdown()
    commands = [text for text in Gemini.asked if "rl:" in text]
    return seen | {
        "stored": rated(home),
        "restored": settings.read_bytes() == before,
        "asked_for_commands": len(commands),
    }


if __name__ == "__main__":
    kind, program, workdir = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    if kind.startswith("claude"):
        print(json.dumps(claude(program, workdir, plugin=kind == "claude-plugin")))
    else:
        print(json.dumps({"codex": codex, "gemini": gemini}[kind](program, workdir)))
