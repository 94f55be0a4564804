"""How soon `clawback ask` shows the first word, and how long it is silent: with a model to load, and with a running server.

Each figure is of complete processes. Rounds of loading alone and of asking alternate. "Loading" is a process that loads
the base model and ends: the least time that an answer can take.

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

LOAD = "from benchmarks.first_token import load; load()"
QUESTION = "Tell me about the otter."
TARGETS = {"of_loading": 1.2, "server_seconds": 0.3, "silent_seconds": 2.0}


@dataclass(frozen=True)
class Timing:
    """Seconds of one process."""

    first_word: float
    """Until the first byte of its output."""
    silence: float
    """The longest time without a sign of life."""
    silence_start: float
    """When that began."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks first_token", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=24)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        env = environment(Path(folder))
        init = clawback("init", "--yes", "--model", options.model, "--agent", "none")
        subprocess.run(init, env=env, check=True, stdout=subprocess.DEVNULL)
        ask = clawback("ask", QUESTION, "--max-tokens", str(options.max_tokens))
        run_timed(ask, env)  # a model is made ready at its first use
        loading, cold, warm = [], [], []
        for _ in range(options.rounds):
            loading.append(run_timed([sys.executable, "-c", LOAD], env))
            cold.append(run_timed(ask, env))
        with server(env):
            run_timed(ask, env)  # the server loads its model
            warm = [run_timed(ask, env) for _ in range(options.rounds)]
    print(json.dumps(report(options.model, loading, cold, warm), indent=2))
    return 0


def environment(folder: Path) -> dict[str, str]:
    """A new home in a folder, with the models that the real home has made ready."""
    models = Path(os.environ.get("CLAWBACK_HOME", "~/.clawback")).expanduser() / "models"
    home = folder / "clawback"
    if models.is_dir():
        home.mkdir()
        (home / "models").symlink_to(models)
    return os.environ | {"HOME": str(folder), "CLAWBACK_HOME": str(home), "COLUMNS": "80", "TERM": "xterm"}


def report(
    model: str, loading: Sequence[Timing], cold: Sequence[Timing], warm: Sequence[Timing]
) -> dict[str, Any]:
    """The figures of all rounds; ``cold``: with a model to load, ``warm``: with a running server."""
    load_seconds = statistics.median(timing.first_word for timing in loading)
    first_word = statistics.median(timing.first_word for timing in cold)
    longest = max((*cold, *warm), key=lambda timing: timing.silence)
    return {
        "model": model,
        "load_seconds": round(load_seconds, 2),
        "first_word_seconds": round(first_word, 2),
        "of_loading": round(first_word / load_seconds, 2),
        "server_seconds": round(statistics.median(timing.first_word for timing in warm), 3),
        "server_each": [round(timing.first_word, 3) for timing in warm],
        "silent_seconds": round(longest.silence, 2),
        "silent_from": round(longest.silence_start, 2),
        "targets": TARGETS,
    }


def load() -> None:
    """Load the base model of the home, say so, and end: in a process of its own."""
    from clawback.inference.local import LocalEngine
    from clawback.paths import home

    LocalEngine(home()).start()
    print("loaded", flush=True)
    os._exit(0)


def clawback(*words: str) -> list[str]:
    return [sys.executable, "-m", "clawback", *words]


def run_timed(command: Sequence[str], env: Mapping[str, str]) -> Timing:
    """Run a command with a terminal for its signs of life, and a pipe for its output."""
    reader, terminal = pty.openpty()
    start = last = time.perf_counter()
    process = subprocess.Popen(
        command, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal
    )
    os.close(terminal)
    assert process.stdout
    first_word = silence = silence_start = 0.0
    with selectors.DefaultSelector() as selector:
        for file in (process.stdout.fileno(), reader):
            selector.register(file, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                now = time.perf_counter()
                if now - last > silence:
                    silence, silence_start = now - last, last - start
                last = now
                data = _read(key.fd)
                if data and key.fd != reader and not first_word:
                    first_word = now - start
                if not data:
                    selector.unregister(key.fd)
    os.close(reader)
    if process.wait() or not first_word:
        raise SystemExit(f"{' '.join(command)} answered nothing (exit code {process.returncode})")
    return Timing(first_word, silence, silence_start)


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
