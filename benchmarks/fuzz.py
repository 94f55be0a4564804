"""An attacker's requests against a running server: freezes of its event loop, statuses of 500, memory kept.

``python -m benchmarks fuzz --minutes 60`` (and ``--local``, where the embedded model answers in place of an upstream). The corpus is
what reviews found, in random sizes, places and mixtures; a seed makes it the same again. Of each moment at which the loop was late it is
noted how late, for how much of that its thread waited for a processor (other work on the machine), and how much processor time our process
used meanwhile. What is left when the first is taken off, and no more than the second, was our own doing: ``by_us``. With ``--where``, ``at_work``
says which of our threads were not waiting for anything, and where they were, so that what held the loop up can be found. For that a thread of
``faulthandler`` looks at the others while they run; on a busy machine that ends the process sooner or later, for it may read a frame that is being freed.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gzip
import http.client
import json
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil

from clawback.paths import Home, secret

WAITING = ("threading.py", "selectors.py", "queue.py", "base_events.py", "thread.py", "runners.py", "fuzz.py")
"""Files of the standard library in which a thread stands that waits; and our own watch."""
TICK, LATE = 0.01, 0.1
"""Seconds: how often the loop is looked at, and what counts as a freeze."""
PIECES = (
    "Runtime: agent=", " | session=", "\n\nRuntime: agent=a | session=b", "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "⟦openclaw:ctx⟧\n```json\n",
    "<tool_call>{", "</tool_call>", "[HINT_START]", "\\boxed{", "not ", " ", "<system-reminder>", "</system-reminder", "<task-notification>",
    "<local-command-caveat>", "sk-", "eyJa.", "-----BEGIN PRIVATE KEY-----", "a://b:", "Bearer ", "api_key=", 'password: "', "cookie: a=",
    "authorization: bearer ", "machine a login b ", "private-lines: 3\n", ":AA12345678", "curl -u ", "é", "\ud800", "\0", "```\n", "/rl good ",
)  # fmt: skip
MODEL_PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions", "/v1/embeddings", "/v1/messages/count_tokens",
               "/v1beta/models/m:generateContent", "/v1beta/models/m:streamGenerateContent", "/api/chat", "/api/generate")  # fmt: skip
API_PATHS = ("status", "turns", "turns/1", "turns/99999999999999999999", "turns?limit=-1", "turns?q=%00", "sessions", "versions", "runs", "runs/1",
             "inbox", "pairs", "learning", "health", "openapi.json", "x", "turns/1/../..")  # fmt: skip

Sent = tuple[str, str, dict[str, str], bytes]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument(
        "--warm", type=float, default=1, help="minutes of it before memory is looked at first"
    )
    parser.add_argument("--local", action="store_true", help="the embedded model answers, and no upstream")
    parser.add_argument("--where", action="store_true", help="say what the server did when it was late")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        home.create()
        home.config.write_text("[training]\nbackground = false\n")
        found = run(home, options)
    print(json.dumps(found, indent=2))
    return 0


def run(home: Home, options: argparse.Namespace) -> dict[str, Any]:
    upstream = "" if options.local else play()
    program = f"from benchmarks.fuzz import serve; serve({str(home.root)!r}, {upstream!r}, {options.where})"
    server = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert server.stdout
    try:
        port = int(server.stdout.readline())
        process = psutil.Process(server.pid)
        statuses: Counter[str] = Counter()
        quiet: list[int] = []
        memory: list[int] = []
        threading.Thread(target=sample, args=(process, memory), daemon=True).start()
        # What a server keeps for good (code, tables, products compiled for the lengths of prompts) is there after a while of it.
        for seconds in (60 * options.warm, 60 * options.minutes):
            attack(home, port, time.monotonic() + seconds, options, statuses, server)
            if server.poll() is not None:
                raise SystemExit(f"The server has ended, with {server.returncode}, after {sum(statuses.values())} requests.")  # fmt: skip
            rest(process)
            quiet.append(process.memory_info().rss >> 20)
        alive = request(port, ("GET", "/healthz", {}, b""))
    finally:
        server.terminate()
        server.wait(60)
    late = [json.loads(line) for line in (home.root / "late").read_text().splitlines()]
    ours = sorted((one for one in late if one["by_us"] >= LATE), key=lambda one: -one["by_us"])
    return {
        "minutes": options.minutes,
        "requests": sum(statuses.values()),
        "statuses": dict(statuses.most_common()),
        "alive_at_the_end": alive,
        "late_by_more_than_100_ms": len(late),
        "of_these_by_our_own_work": len(ours),
        "worst": ours[:10] or late[:3],
        "at_work_then": Counter(place for one in ours for place in one["at_work"]).most_common(12),
        "memory_mb": {
            "after_the_warm_up": quiet[0],
            "after_all_of_it": quiet[1],
            "most": max(memory),
            "each_half_minute": memory,
        },
    }


def rest(process: psutil.Process) -> None:
    """Until the server has done what it was asked, and half a minute more, which is how often it looks after itself."""
    used, before = process.cpu_times(), 0.0
    while used.user + used.system - before > 0.5:
        before = used.user + used.system
        time.sleep(5)
        used = process.cpu_times()
    time.sleep(40)


def sample(process: psutil.Process, memory: list[int]) -> None:
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        memory.append(process.memory_info().rss >> 20)
        time.sleep(30)


def attack(
    home: Home,
    port: int,
    until: float,
    options: argparse.Namespace,
    statuses: Counter[str],
    server: subprocess.Popen[str],
) -> None:
    """Several clients at once, until it is time, or the server has ended."""
    tokens = secret(home.root / "token"), secret(home.root / "hook-token")

    def client(number: int) -> None:
        rng = random.Random(f"{options.seed} {number} {until}")
        while time.monotonic() < until and server.poll() is None:
            if rng.random() < 0.1:
                statuses[f"raw {knock(port, rng)}"] += 1
                continue
            sent = compose(rng, *tokens)
            got = request(port, sent)
            statuses[got] += 1
            if got == "500":
                print(f"500: {sent[0]} {sent[1]} {sent[3][:300]!r}", file=sys.stderr)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(options.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def text(rng: random.Random) -> str:
    """Up to 300 kB of one piece, or a mixture."""
    size = int(10 ** rng.uniform(0, 5.5))
    pieces = rng.sample(PIECES, rng.randint(1, 3))
    once = "".join(pieces)
    return (rng.choice(PIECES) + once * (size // len(once) + 1) + rng.choice(PIECES))[: size + 100]


def compose(rng: random.Random, token: str, hook: str) -> Sent:
    """One hostile request."""
    json_ = {"content-type": "application/json"}
    kind = rng.random()
    if kind < 0.5:
        return model_request(rng, json_)
    if kind < 0.65:
        name = rng.choice(("UserPromptSubmit", "Stop", "SubagentStop", "x"))
        said = rng.choice(("", "/rl bad ", "/rl note ", "rl: rate ")) + text(rng)
        event = {"hook_event_name": name, "session_id": str(rng.randint(0, 9)), "prompt_id": "p", "prompt": said, "last_assistant_message": text(rng)}  # fmt: skip
        event["transcript_path"] = rng.choice(("/dev/zero", "/etc/passwd", "..", "\0"))
        agent = rng.choice(("claude-code", "codex", "gemini-cli", "openclaw", "x"))
        return "POST", f"/api/hooks/{agent}", json_ | {"x-clawback-token": hook}, dumps(event)
    if kind < 0.8:
        body = {"kind": rng.choice(("critique", "edit", "rating", "x", 3)), "text": text(rng), "value": rng.choice((1, -1, 1e309, "x", None))}  # fmt: skip
        path = f"/api/turns/{rng.choice((1, 2, 3, -1, 10**30))}/feedback"
        return "POST", path, json_ | {"authorization": f"Bearer {token}"}, dumps(body)
    if kind < 0.95:
        return "GET", f"/api/{rng.choice(API_PATHS)}", {"authorization": f"Bearer {token}"}, b""
    path = rng.choice(("/v1/../api/tags", "/v1/%2e%2e/x", "/%00", "/v1/models/" + "x" * 5000, "/v1/%C3%A9"))
    return "GET", path, {"x-long": "y" * rng.randint(0, 60_000)}, b""


def model_request(rng: random.Random, headers: dict[str, str]) -> Sent:
    path = rng.choice(MODEL_PATHS)
    shape = rng.random()
    said: Any = text(rng)
    if rng.random() < 0.2:
        said = [
            {"type": rng.choice(("text", "tool_result", "image_url", "x")), "text": said, "content": said}
        ]
    message = {"role": rng.choice(("user", "user", "system", "tool", "assistant", "x", 7)), "content": said}
    many = int(10 ** rng.uniform(0, 5.6)) if rng.random() < 0.05 else rng.randint(0, 5)
    messages: Any = [message] + [{"role": "user", "content": ""}] * many
    if shape < 0.05:
        depth = int(10 ** rng.uniform(1, 5))
        return "POST", path, headers, b'{"messages":' + b"[" * depth + b"]" * depth + b"}"
    if shape < 0.1:
        messages = rng.choice((None, 3, "x", [[]], [None], {}, [{}], [{"role": {}}]))
    body = {"model": rng.choice(("m", "", 3, None, "clawback:9999999")), "messages": messages, "input": said, "prompt": said, "stream": rng.random() < 0.3}  # fmt: skip
    body |= {"contents": [{"role": "user", "parts": [{"text": said}]}], "max_tokens": rng.choice((1, 4, -1, 10**30, "x"))}  # fmt: skip
    raw = dumps(body)
    if rng.random() < 0.1:
        headers = headers | {"content-encoding": rng.choice(("gzip", "gzip", "br", "x"))}
        raw = gzip.compress(raw if rng.random() < 0.5 else bytes(80_000_000), 1)
    if rng.random() < 0.5:
        headers = headers | {"x-session-id": rng.choice(("a", "claude-code:1", "x" * 5000))}
    return "POST", path, headers, raw


def dumps(value: Any) -> bytes:
    return json.dumps(value).encode()


def request(port: int, sent: Sent) -> str:
    """The status, or what went wrong on the way."""
    method, path, headers, body = sent
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        answer.read()
        return str(answer.status)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return type(error).__name__
    finally:
        connection.close()


def knock(port: int, rng: random.Random) -> str:
    """Bytes that are nearly a request, or none at all."""
    data = bytearray(
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    for _ in range(rng.randint(1, 12)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.3:
        data = bytearray(rng.randbytes(rng.randint(1, 400)))
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
            return raw.recv(200).split(b"\r\n")[0][9:12].decode("latin-1") or "closed"
    except OSError as error:
        return type(error).__name__


def play() -> str:
    """An upstream that answers in order, in pieces, with a page, with rubbish, or not to the end; its address."""
    done = b'{"choices":[{"message":{"content":"Slowly."},"finish_reason":"stop"}]}'
    stream = b'data: {"choices":[{"delta":{"content":"Slowly."}}]}\n\n' * 50
    answers = (
        ("application/json", done), ("application/json", done[:30]), ("text/html", b"<script>steal()</script>"), ("application/json", b"\xff" * 999),
        ("text/event-stream", stream + b"data: [DONE]\n\n"), ("text/event-stream", stream), ("text/event-stream", b"data: {" * 20_000),
        ("application/json", json.dumps({"choices": [{"message": {"content": "<tool_call>{" * 9000}, "finish_reason": "stop"}]}).encode()),
    )  # fmt: skip
    rng = random.Random(1)

    class Player(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            kind, body = rng.choice(answers)
            self.send_response(rng.choice((200, 200, 200, 429, 529)))
            self.send_header("content-type", kind)
            self.send_header(
                "content-length", str(len(body) + (rng.random() < 0.1))
            )  # one more: it breaks off
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Player)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def serve(root: str, upstream: str, where: bool) -> None:
    """In a process of its own: the server as ``clawback serve`` runs it, and a watch on its loop that writes to ``late``."""
    import uvicorn

    from clawback import config
    from clawback.serve import app, protocol

    home = Home(Path(root))
    guarded = app.make(home, config.ServeSection(upstream=upstream))
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    file = (home.root / "late").open("w", buffering=1)
    stacks = (home.root / "stacks").open("w+") if where else None

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            watching.append(asyncio.create_task(watch(file, stacks)))
        await guarded(scope, receive, send)

    watching: list[asyncio.Task[None]] = []
    server = uvicorn.Server(
        uvicorn.Config(
            watched, http=protocol.Limited, log_level="error", access_log=False, timeout_graceful_shutdown=5
        )
    )
    print(listening.getsockname()[1], flush=True)
    server.run(sockets=[listening])


def runnable() -> float:
    """Seconds that this thread has waited for a processor so far, as Linux counts them; 0 elsewhere."""
    try:
        counted = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()
    except OSError:
        return 0.0
    return int(counted[1]) / 1e9


def at_work(stacks: Any) -> list[str]:
    """Where the threads stood that were not waiting, innermost call first, as the dump has it that was made meanwhile."""
    stacks.seek(0)
    dumped = stacks.read()
    found = []
    for thread in dumped.split("\n\n"):
        frames = re.findall(r'File "([^"]*)", line (\d+) in (\S+)', thread)
        if frames and Path(frames[0][0]).name not in WAITING:
            places = [f"{Path(path).name}:{line} {name}" for path, line, name in frames]
            own = next(
                (place for place, frame in zip(places, frames, strict=True) if "clawback" in frame[0]), ""
            )
            found.append(" < ".join(dict.fromkeys([*places[:2], own])))
    stacks.seek(0)
    stacks.truncate()
    return found


async def watch(file: Any, stacks: Any) -> None:
    await asyncio.sleep(2)
    while True:
        began, used, own, queued = time.perf_counter(), time.process_time(), time.thread_time(), runnable()
        if stacks:  # by a thread that needs no interpreter, so that it can look while another one holds it
            faulthandler.dump_traceback_later(LATE, file=stacks)
        await asyncio.sleep(TICK)
        faulthandler.cancel_dump_traceback_later()
        late = time.perf_counter() - began - TICK
        if late > LATE:
            used, queued = time.process_time() - used, runnable() - queued
            found = {
                "late": late,
                "waited_for_a_processor": queued,
                "used": used,
                "on_the_loop": time.thread_time() - own,
                "by_us": min(late - queued, used),
            }
            told = {key: round(value, 3) for key, value in found.items()}
            file.write(json.dumps(told | {"at_work": at_work(stacks) if stacks else []}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
