"""Counts what five everyday things pass through: `python -m tests.walks [--path] [tap] [run] [stream] [prompt] [episode]`.

A file counts when code of it runs between the first call and the last (class bodies included, module level not); a hop is a call
that goes on in another file than the call before it, in any thread. For a run the modules of Clawback that its process has imported
are counted. Each walk has a process and a home of its own. The stand-in for a model's server is no part of a walk. ``--path``: also
each file in the order in which it is met, how many hops lead there, and its functions.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

STAND_IN = "extensions/demo/"
SOURCE = str(Path(__file__).parent.parent / "src" / "clawback") + os.sep
HOPS = ""
TARGETS = {"tap": 15, "run": 90, "stream": 60, "prompt": 45, "episode": 60}
EVENTS: tuple[dict[str, str], ...] = (
    {"hook_event_name": "UserPromptSubmit", "prompt": "Tell me about otters."},
    {"hook_event_name": "Stop", "last_assistant_message": "Otters live in rivers."},
    {"hook_event_name": "UserPromptSubmit", "prompt": "/rl bad too long"},
)
"""A prompt, its answer and a rating, as Claude Code reports them."""


class Trace:
    """Files, functions and hops of what runs within ``with trace:``."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.path: dict[str, Counter[str]] = {}
        self.functions: set[CodeType] = set()
        self.hops, self.last = 0, ""

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and code.co_name != "<module>":
            name = code.co_filename.removeprefix(SOURCE)
            if name.startswith(STAND_IN):
                return
            self.files.add(name)
            self.functions.add(code)
            visits = self.path.setdefault(name, Counter())
            visits[code.co_qualname] += 1
            visits[HOPS] += name != self.last
            self.hops += name != self.last
            self.last = name

    def __enter__(self) -> Trace:
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]

    def figures(self) -> dict[str, int]:
        for name, visits in self.path.items() if os.environ["CLAWBACK_WALK"] == "path" else ():
            functions = ", ".join(
                f"{function} {count}" for function, count in visits.items() if function != HOPS
            )
            print(f"{name}: {visits[HOPS]} hops; {functions}", file=sys.__stdout__)
        return {"files": len(self.files), "functions": len(self.functions), "hops": self.hops}


class Ended(BaseException):
    """The hook's process would end here."""


def tap() -> dict[str, int]:
    """A rating typed in an agent, from the hook's start to the row in the store."""
    sys.argv = ["clawback-hook", "claude-code"]
    for event in EVENTS[:-1]:
        start = [sys.executable, "-c", "from clawback.rules import hook; hook.main()", "claude-code"]
        line = json.dumps({"session_id": "s", "cwd": "/", **event})
        subprocess.run(start, input=line, text=True, check=True, stdout=subprocess.DEVNULL)
    line = json.dumps({"session_id": "s", "cwd": "/", **EVENTS[-1]})
    sys.stdin = io.TextIOWrapper(io.BytesIO(line.encode()))
    os._exit = _end  # type: ignore[assignment]
    trace = Trace()
    with contextlib.suppress(Ended, SystemExit), contextlib.redirect_stdout(io.StringIO()), trace:
        from clawback.rules import hook

        hook.main()
    from clawback import store

    with store.connect(_home().database) as db:
        assert db.count_feedback() == 1, "nothing was rated"
    return trace.figures()


def _end(_: int) -> None:
    raise Ended


def run() -> dict[str, int]:
    """A training run on ratings, gate included, by the command."""
    from tests.conftest import rate_some

    home = _home()
    rate_some(home)
    code = "import sys; from clawback.cli import main; main(['train']); print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = [name for name in done.stdout.split() if name.partition(".")[0] == "clawback"]
    return {"modules": len(modules)}


def stream() -> dict[str, int]:
    """A streamed answer of Anthropic's API through the recording proxy, from the request to the stored turn."""
    import uvicorn

    from clawback import config, store
    from clawback.serve import app
    from tests.http_server import Reply, http_server

    home = _home()
    home.create()
    pieces: tuple[dict[str, Any], ...] = (
        {"type": "message_start", "message": {"id": "m", "model": "m", "role": "assistant", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Yes."}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )
    events = "".join(f"event: {piece['type']}\ndata: {json.dumps(piece)}\n\n" for piece in pieces)
    answer = Reply(body=events.encode(), headers={"content-type": "text/event-stream"})
    body = {"model": "m", "stream": True, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi?"}]}
    with http_server([answer]) as upstream:
        made = app.make(home, config.ServeSection(upstream=upstream.url))
        trace = Trace()
        threading.setprofile(trace.profile)  # of the threads that begin now: those of the server
        server = uvicorn.Server(uvicorn.Config(made, port=0, log_level="error"))
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        time.sleep(0.5)
        start = Trace()
        trace.files, trace.functions, trace.path, trace.hops = start.files, start.functions, start.path, 0
        headers = {"content-type": "application/json", "x-api-key": "k", "anthropic-version": "2023-06-01"}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/messages", json.dumps(body).encode(), headers
        )
        with urllib.request.urlopen(request) as response:
            response.read()
        with store.connect(home.database) as db:
            while db.count_turns() == 0:
                time.sleep(0.01)
        time.sleep(0.2)
        figures = trace.figures()
        server.should_exit = True
        thread.join()
    return figures


def prompt() -> dict[str, int]:
    """A search for a prompt by the command, up to what the gate says of the version."""
    from clawback import config
    from clawback.cli import main
    from clawback.extensions.demo import cloud
    from tests.jobs.test_prompting import fill

    home = _home()
    home.create()
    fill(home)
    with cloud.Cloud() as model:
        config.save(home.config, {"prompts": {"url": model.url}})
        with _quiet(), Trace() as trace:
            main(["prompts", "optimize", "--yes", "--json"])
    return trace.figures()


def episode() -> dict[str, int]:
    """Four episodes in a shop of tools, learned from and judged, by the command."""
    from clawback.cli import main

    _home().create()
    with _quiet(), Trace() as trace:
        main(["env", "train", "tools:shop", "--episodes", "4", "--json"])
    return trace.figures()


def _home() -> Any:
    from clawback import paths

    return paths.home()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


WALKS: dict[str, Callable[[], dict[str, int]]] = {
    walk.__name__: walk for walk in (tap, run, stream, prompt, episode)
}


def main(names: list[str]) -> int:
    if len(names) == 1 and "CLAWBACK_WALK" in os.environ:
        print(json.dumps(WALKS[names[0]]()), file=sys.__stdout__)
        return 0
    path = "--path" in names
    for name in [name for name in names if name != "--path"] or WALKS:
        with tempfile.TemporaryDirectory() as home:
            environment = os.environ | {
                "HOME": home,
                "CLAWBACK_HOME": f"{home}/clawback",
                "CLAWBACK_WALK": "path" if path else "figures",
            }
            start = [sys.executable, "-m", "tests.walks", name]
            done = subprocess.run(start, env=environment, capture_output=True, text=True)
        print(f"{name:8} target {TARGETS[name]:3}  {done.stdout.strip() or done.stderr[-600:]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
