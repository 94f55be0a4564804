"""A real OpenClaw gateway with Telegram on one side and ``clawback serve`` on the other: run by test_openclaw.py where only
loopback exists.

usage: openclaw_loop.py OPENCLAW NODE_FOLDER WORKDIR
Prints one JSON object about what happened.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from agents import claude_environment, soon
from serve_loop import serve
from telegram_server import TelegramServer

from clawback import store
from clawback.paths import Home

ANN = {"id": 11, "is_bot": False, "first_name": "Ann", "username": "ann"}
BOB = {"id": 22, "is_bot": False, "first_name": "Bob", "username": "bob"}
WITH_ANN = {"id": 11, "type": "private", "first_name": "Ann", "username": "ann"}
WITH_BOB = {"id": 22, "type": "private", "first_name": "Bob", "username": "bob"}
GROUP = {"id": -100, "type": "group", "title": "Everybody"}
GATEWAY_TOKEN = "of-this-test-alone-" * 2


HELP = "Count what is in the jar."
TOOLS = {"tool": ("exec", {"command": "echo tool-ran"}), "helper": ("sessions_spawn", {"task": HELP})}


class Upstream(BaseHTTPRequestHandler):
    """Speaks chat completions: "about the otter" is answered with "All about the otter."; ``TOOLS`` by a call first."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[dict[str, str], dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(({k.lower(): v for k, v in self.headers.items()}, body))
        texts = [m["content"] for m in body["messages"] if m["role"] == "user"]
        topics = re.findall(r"about the (\w+)", " ".join(t for t in texts if isinstance(t, str)))
        topic = topics[-1] if topics else "beans" if HELP in str(body["messages"]) else "nothing"
        ran = [m["content"] for m in body["messages"] if m["role"] == "tool"]
        if topic in TOOLS and not ran:
            name, arguments = TOOLS[topic]
            call = {"name": name, "arguments": json.dumps(arguments)}
            delta: dict[str, Any] = {
                "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": call}]
            }
        else:
            text = f"It said: {ran[-1]}" if topic == "tool" else f"All about the {topic}."
            if topic == "epic":
                text += "".join(f" Line {n} of it is not short." for n in range(250))
            delta = {"content": text}
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
        end = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if "tool_calls" in delta else "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        chunks = [
            {**head, "choices": [{"index": 0, "delta": {"role": "assistant", **delta}}]},
            {**head, "choices": [end]},
            {**head, "choices": [], "usage": usage},
        ]
        data = b"".join(f"data: {json.dumps(c)}\n\n".encode() for c in chunks) + b"data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def settings(telegram: str, clawback: int, upstream: int, gateway: int, workspace: Path) -> dict[str, Any]:
    def provider(port: int) -> dict[str, Any]:
        model = {"id": "m", "name": "m", "contextWindow": 128_000, "maxTokens": 4_000}
        return {
            "baseUrl": f"http://127.0.0.1:{port}/v1",
            "apiKey": "none",
            "api": "openai-completions",
            "models": [model],
        }

    return {
        "gateway": {
            "mode": "local",
            "bind": "loopback",
            "port": gateway,
            "auth": {"mode": "token", "token": GATEWAY_TOKEN},
            "http": {"endpoints": {"chatCompletions": {"enabled": True}}},
        },
        "models": {"providers": {"clawback": provider(clawback), "direct": provider(upstream)}},
        "agents": {
            "defaults": {
                "model": {"primary": "clawback/m", "fallbacks": ["direct/m"]},
                "workspace": str(workspace),
                "skipBootstrap": True,
                "heartbeat": {"every": "0m"},
            },
        },
        "commands": {"ownerAllowFrom": ["telegram:11"]},
        "channels": {
            "telegram": {
                "enabled": True,
                "botToken": "700:of-this-test-alone",
                "apiRoot": telegram,
                "dmPolicy": "open",
                "allowFrom": ["*"],
                "groupPolicy": "open",
                "groups": {"*": {"requireMention": False}},
                "reactionNotifications": "own",
            }
        },
        "session": {"dmScope": "per-channel-peer"},
        "tools": {"toolSearch": False},  # every tool by its own name
        "logging": {"file": str(workspace.with_name("openclaw.log")), "level": "debug"},
    }


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Claw:
    """OpenClaw in a throwaway home."""

    def __init__(self, program: str, node: str, workdir: Path, home: Home) -> None:
        self.program, self.workdir, self.home = program, workdir, home
        self.settings = workdir / "openclaw.json"
        self.port, self.log = free_port(), workdir / "gateway.log"
        self.environment = {
            **claude_environment(workdir, "", home.root),
            "OPENCLAW_STATE_DIR": str(workdir / "state"),
            "OPENCLAW_CONFIG_PATH": str(self.settings),
            "OPENCLAW_HOME": str(workdir),
            "DO_NOT_TRACK": "1",
            "OPENCLAW_DISABLE_BONJOUR": "1",
            "OPENCLAW_SKIP_UPDATE_CHECK": "1",
        }
        self.environment["PATH"] = os.pathsep.join([node, self.environment["PATH"]])

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command,
            cwd=self.workdir,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, f"{command[:4]}: {done.stdout[-1500:]} {done.stderr[-2000:]}"
        return done.stdout

    def ask(self, text: str, session: str) -> str:
        """``openclaw agent``, on the gateway; what it says."""
        command = [
            self.program,
            "agent",
            "--agent",
            "main",
            "--session-id",
            session,
            "--message",
            text,
            "--json",
        ]
        try:
            out = self.run(*command)
        except AssertionError as error:
            # On a busy machine this OpenClaw may find its own database's cleaning in the way, and says to come again.
            if "Agent database cleanup failed" not in str(error):
                raise
            out = self.run(*command)
        payloads = json.loads(out[out.index("{") :])["result"]["payloads"]
        return " ".join(p.get("text") or "" for p in payloads)

    def send(self, text: str, key: str, session: str = "web") -> None:
        """The gateway's ``chat.send``, as its web page and apps use it."""
        given = {"sessionKey": f"agent:main:{session}", "message": text, "idempotencyKey": key}
        self.run(
            self.program,
            "gateway",
            "call",
            "chat.send",
            "--params",
            json.dumps(given),
            "--token",
            GATEWAY_TOKEN,
        )

    def complete(self, text: str) -> str:
        """The gateway's own ``/v1/chat/completions``."""
        body = {"model": "openclaw/main", "messages": [{"role": "user", "content": text}]}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {GATEWAY_TOKEN}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=400) as response:
                return str(json.load(response)["choices"][0]["message"]["content"])
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error

    def listens(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether the gateway can be reached."""
        assert process.poll() is None, "the gateway has ended"
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    @contextmanager
    def gateway(self) -> Iterator[None]:
        with self.log.open("w") as out:
            process = subprocess.Popen(
                [self.program, "gateway", "run"],
                cwd=self.workdir,
                env=self.environment,
                stdout=out,
                stderr=out,
            )
            try:
                soon("the gateway's port", lambda: self.listens(process))
                yield
            except BaseException:
                sys.stderr.write(self.log.read_text()[-3000:])
                raise
            finally:
                process.terminate()
                process.wait(timeout=60)


class Trial:
    def __init__(self, program: str, node: str, workdir: Path) -> None:
        self.home = Home(workdir / "clawback")
        self.home.create()
        self.claw = Claw(program, node, workdir, self.home)
        self.telegram = TelegramServer()
        self.seen: dict[str, Any] = {}

    # ---------------------------------------------------------------------------------------- what is looked at

    def ratings(self) -> dict[str, list[list[Any]]]:
        """By what the turn is about: the ratings that hold, each with who gave it."""
        with store.connect(self.home.database) as db:
            found: dict[str, list[list[Any]]] = {}
            for turn in reversed(db.turns(limit=100, kind="main")):
                about = re.findall(r"about the (\w+)", turn.prompt) or ["?"]
                given = [[f.source, f.value] for f in db.feedback(turn_id=turn.id) if f.kind == "rating"]
                found.setdefault(about[-1], []).extend(given)
            return found

    def rated(self, about: str, ratings: list[list[Any]]) -> None:
        soon(f"{about}: {ratings}, is {self.ratings()}", lambda: self.ratings().get(about) == ratings)

    def said(self, chat: dict[str, Any], text: str, seconds: float = 240) -> int:
        return int(self.telegram.until(lambda: self.telegram.find(chat, text), seconds))

    def tell(self, person: dict[str, Any], chat: dict[str, Any], text: str, answer: str) -> int:
        """Somebody writes, and the bot says something new that holds the answer; its message."""
        before = self.telegram.find(chat, answer)
        self.telegram.say(person, chat, text)
        return int(
            self.telegram.until(
                lambda: (new := self.telegram.find(chat, answer)) and new != before and new, 400
            )
        )

    # ----------------------------------------------------------------------------------------- what is done

    def in_a_channel(self) -> None:
        telegram, seen = self.telegram, self.seen
        otter = self.tell(ANN, WITH_ANN, "Tell me about the otter.", "All about the otter.")
        fox = self.tell(ANN, WITH_ANN, "And about the fox?", "All about the fox.")
        telegram.react(ANN, WITH_ANN, otter, "👍")
        self.rated("otter", [["openclaw:telegram:11", 1.0]])
        telegram.react(ANN, WITH_ANN, fox, "👎")
        self.rated("fox", [["openclaw:telegram:11", -1.0]])
        telegram.react(ANN, WITH_ANN, otter, "👍")  # told twice
        self.tell(ANN, WITH_ANN, "And about the owl?", "All about the owl.")
        asked = len(Upstream.asked)
        seen["rl"] = telegram.sent[self.tell(ANN, WITH_ANN, "/rl bad too long", "Clawback: ")]["text"]
        seen["train"] = telegram.sent[self.tell(ANN, WITH_ANN, "/rl train", "Clawback: ")]["text"]
        seen["calls_of_rl"] = len(Upstream.asked) - asked
        seen["train_by_bob"] = telegram.sent[self.tell(BOB, WITH_BOB, "/rl train", "Clawback: ")]["text"]
        telegram.say(ANN, WITH_ANN, "Write about the epic.")
        last = self.said(WITH_ANN, "Line 249 of it")
        first = self.said(WITH_ANN, "Line 3 of it")
        seen["epic_messages"] = [first, last]
        telegram.react(ANN, WITH_ANN, last, "👍")
        self.rated("epic", [["openclaw:telegram:11", 1.0]])

    def in_a_group(self) -> None:
        telegram, seen = self.telegram, self.seen
        hare = self.tell(BOB, GROUP, "Tell us about the hare.", "All about the hare.")
        seen["rl_by_bob"] = telegram.sent[self.tell(BOB, GROUP, "/rl good", "Clawback: ")]["text"]
        telegram.react(BOB, GROUP, hare, "👎")
        telegram.react(ANN, GROUP, hare, "👍")
        self.rated("hare", [["openclaw:telegram:11", 1.0]])

    def without_a_channel(self) -> None:
        claw, seen = self.claw, self.seen
        claw.send("Tell me about the tool.", "k1")
        soon("the tool's answer", lambda: any(t.response.startswith("It said:") for t in self.turns()))
        called = next(t for t in self.turns() if t.calls)
        seen["came_back"] = [m["content"].strip() for m in called.next_state if m["role"] == "tool"]
        claw.send("/rl rate 9", "k2")
        self.rated("tool", [["openclaw", 7 / 9]])
        claw.ask("Tell me about the mole.", "S1")
        asked = len(Upstream.asked)
        seen["agent_rl"] = claw.ask("/rl good", "S1")
        seen["http_rl"] = claw.complete("/rl status")
        seen["calls_without_a_channel"] = len(Upstream.asked) - asked

    def with_a_helper(self) -> None:
        """A sub-agent works, and its answer is none of the person's."""
        self.claw.send("Tell me about the helper.", "k3", "another")
        soon("the helper's answer", lambda: self.kinds("beans"), 90)
        soon("the answer", lambda: self.kinds("All about the helper."))
        self.seen["kinds_of_helper"] = self.kinds("beans")

    def kinds(self, response: str) -> list[str]:
        with store.connect(self.home.database) as db:
            return [t.kind for t in db.turns(limit=100) if response in t.response]

    def turns(self) -> list[Any]:
        with store.connect(self.home.database) as db:
            return list(reversed(db.turns(limit=100, kind="main")))

    def with_clawback_stopped(self) -> None:
        self.seen["stopped"] = self.claw.ask("Tell me about the newt.", "S2")
        self.seen["stopped_rl"] = self.claw.ask("/rl good", "S2")

    def main(self) -> dict[str, Any]:
        port = free_port()
        self.home.config.write_text(f"[serve]\nport = {port}\n")
        with self.telegram, ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as upstream:
            threading.Thread(target=upstream.serve_forever, daemon=True).start()
            claw, to = self.claw, f"http://127.0.0.1:{upstream.server_port}"
            held = settings(
                self.telegram.url, port, upstream.server_port, claw.port, claw.workdir / "workspace"
            )
            before = json.dumps(held, indent=4).encode() + b"\n\n"
            claw.settings.write_bytes(before)
            claw.run("clawback", "init", "--yes", "--agent", "openclaw", "--model", "embedded")
            installed = claw.settings.read_bytes()
            serving = serve(self.home, "--port", str(port), "--upstream", to)
            serving.__enter__()
            with claw.gateway():
                self.in_a_channel()
                self.in_a_group()
                self.without_a_channel()
                self.with_a_helper()
                serving.__exit__(None, None, None)
                self.with_clawback_stopped()
                with serve(self.home, "--port", str(port), "--upstream", to):
                    self.rated("newt", [["openclaw", 1.0]])
            self.seen["touched_by_openclaw"] = claw.settings.read_bytes() != installed
            claw.run("clawback", "init", "--remove", "--yes")
            upstream.shutdown()
        return {
            **self.seen,
            "settings_restored": claw.settings.read_bytes() == before,
            "ratings": self.ratings(),
            "turns": [[t.prompt, t.response[:40], t.agent, len(t.calls)] for t in self.turns()],
            "programs": sorted({h.get("user-agent", "") for h, _ in Upstream.asked}),
            "session_of_mole": next(t.session for t in self.turns() if "mole" in t.prompt),
            "token_in_log": json.loads(installed)["plugins"]["entries"]["clawback"]["config"]["token"]
            in claw.log.read_text() + claw.settings.with_name("openclaw.log").read_text(),
        }


if __name__ == "__main__":
    print(json.dumps(Trial(sys.argv[1], sys.argv[2], Path(sys.argv[3])).main(), ensure_ascii=False))
