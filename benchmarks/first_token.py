"""How soon `clawback ask` shows the first word, and the longest time that it shows nothing: with a model to load, and beside a running server.

Each figure is of whole processes from a cold start; rounds of loading alone and of asking alternate. "Loading" is a process that loads the base model and
ends: what an answer can at best wait for.

    python -m benchmarks first_token                    # the embedded model
    python -m benchmarks first_token --model smollm2
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOAD = "from clawback.paths import home; from clawback.serve.local import Local; Local(home()).start(); print('loaded', flush=True); import os; os._exit(0)"
QUESTION = "Tell me about the otter."
WANTED = {"of_loading": 1.2, "server_seconds": 0.3, "silent_seconds": 2.0}


@dataclass(frozen=True)
class Shown:
    """Seconds until the first byte of the answer, the longest time without any sign, and all of it."""

    first: float
    silent: float
    whole: float


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks first_token", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=24)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {
            "HOME": folder,
            "CLAWBACK_HOME": f"{folder}/clawback",
            "COLUMNS": "80",
            "TERM": "xterm",
        }
        models = Path(os.environ.get("CLAWBACK_HOME", "~/.clawback")).expanduser() / "models"
        if models.is_dir():  # what was made ready for training there is not made again
            Path(folder, "clawback").mkdir()
            Path(folder, "clawback", "models").symlink_to(models)
        init = clawback("init", "--yes", "--model", options.model, "--agent", "none")
        subprocess.run(init, env=env, check=True, stdout=subprocess.DEVNULL)
        ask = clawback("ask", QUESTION, "--max-tokens", str(options.max_tokens))
        watched(ask, env)  # what is made once is made now
        rows: dict[str, list[Any]] = {"load": [], "ask": [], "server": []}
        for _ in range(options.rounds):
            rows["load"].append(watched([sys.executable, "-c", LOAD], env).first)
            rows["ask"].append(watched(ask, env))
        with server(env):
            watched(ask, env)
            rows["server"] = [watched(ask, env) for _ in range(options.rounds)]
    found = figures(options.model, rows)
    print(json.dumps(found, indent=2))
    return 0


def figures(model: str, rows: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    load = statistics.median(rows["load"])
    first = statistics.median(one.first for one in rows["ask"])
    return {
        "model": model,
        "load_seconds": round(load, 2),
        "first_word_seconds": round(first, 2),
        "of_loading": round(first / load, 2),
        "server_seconds": round(statistics.median(one.first for one in rows["server"]), 3),
        "server_each": [round(one.first, 3) for one in rows["server"]],
        "silent_seconds": round(max(one.silent for one in (*rows["ask"], *rows["server"])), 2),
        "wanted": WANTED,
    }


def clawback(*words: str) -> list[str]:
    return [sys.executable, "-m", "clawback", *words]


def watched(command: Sequence[str], env: Mapping[str, str]) -> Shown:
    """Run it with a terminal for its signs of life, and a pipe for what it answers."""
    ours, terminal = pty.openpty()
    began = last = time.perf_counter()
    process = subprocess.Popen(
        command, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal
    )
    os.close(terminal)
    assert process.stdout
    first, silent = 0.0, 0.0
    with selectors.DefaultSelector() as chosen:
        for file in (process.stdout.fileno(), ours):
            chosen.register(file, selectors.EVENT_READ)
        while chosen.get_map():
            for key, _ in chosen.select():
                now = time.perf_counter()
                silent, last = max(silent, now - last), now
                data = _read(key.fd)
                if data and key.fd != ours and not first:
                    first = now - began
                if not data:
                    chosen.unregister(key.fd)
    os.close(ours)
    if process.wait() or not first:
        raise SystemExit(f"{' '.join(command)} answered nothing (exit code {process.returncode})")
    return Shown(first, silent, time.perf_counter() - began)


def _read(file: int) -> bytes:
    try:
        return os.read(file, 65536)
    except OSError:  # the other end of a terminal is gone
        return b""


@contextmanager
def server(env: Mapping[str, str]) -> Iterator[None]:
    """``clawback serve`` for this home, once it answers."""
    process = subprocess.Popen(
        clawback("serve", "--port", "0"),
        env=dict(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout
        for line in process.stdout:
            if "http://" in line:
                break
        while not (Path(env["CLAWBACK_HOME"]) / "server.port").exists() and process.poll() is None:
            time.sleep(0.05)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)


if __name__ == "__main__":
    sys.exit(main())
