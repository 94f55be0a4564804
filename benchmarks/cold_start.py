"""What a tap and a hook cost, as whole processes from a cold start, beside ReinforceClaw.

Each figure is the wall time of one process, from start to exit, with 100,000 turns in the store, and beside it the time that the
process had a processor, which other work on the machine changes least. Ours and the peer's are run in turn, so that a machine whose
speed drifts is as unkind to the one as to the other. Medians are what to quote.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import _page
from clawback.capture import script
from clawback.paths import Home
from clawback.store.connection import open_database

TURNS = 100_000
PAIRS = {
    "clawback good": "reinforceclaw good",
    "clawback status": "reinforceclaw status",
    "our prompt hook": "its prompt hook",
    "our stop hook": "its stop hook",
    "our prompt hook, server running": "its prompt hook",
    "our stop hook, server running": "its stop hook",
}
SESSION = "bench"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks cold_start", description=__doc__)
    parser.add_argument("--runs", type=int, default=30, help="counted runs of each command")
    parser.add_argument("--turns", type=int, default=TURNS, help="turns in our store")
    parser.add_argument("--no-peer", action="store_true", help="ours alone")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        commands = ours(root / "ours", options.turns)
        served = {
            f"{n}, server running": c for n, c in ours(root / "served", options.turns).items() if "hook" in n
        }
        hung = hanging(root / "hung")
        if not options.no_peer:
            commands |= theirs(root / "theirs")
        with server(root / "served" / "clawback"), server(root / "hung" / "clawback", stopped=True):
            wall, figures = measure(commands | served | hung, options.runs)
    for mine, other in PAIRS.items() if not options.no_peer else ():
        _page.compare(
            mine, peer=other, unit="ms, cold start", ours=wall[mine], theirs=wall[other], more=False
        )
    print(json.dumps(figures, indent=2) if options.json else table(figures))
    return 0


@contextmanager
def server(home: Path, *, stopped: bool = False) -> Iterator[None]:
    """``clawback serve`` for that home; an upstream that nobody asks keeps it from loading a model.

    ``stopped``: it listens, and answers nothing (SIGSTOP), as where a machine swaps.
    """
    command = [sys.executable, "-m", "clawback", "serve", "--port", "0", "--upstream", "http://127.0.0.1:9"]
    process = subprocess.Popen(
        command, env=os.environ | {"CLAWBACK_HOME": str(home)}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        process.stdout.readline()
        while not (home / script.SERVER).exists():
            time.sleep(0.05)
        if stopped:
            time.sleep(1.0)
            process.send_signal(signal.SIGSTOP)
        yield
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(timeout=30)


Command = tuple[list[str], dict[str, str], bytes]
"""What to run, its environment, and what it reads."""


def environment(home: Path, **more: str) -> dict[str, str]:
    home.mkdir(parents=True, exist_ok=True)
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **more}


def ours(folder: Path, turns: int) -> dict[str, Command]:
    """Our commands, with a full store. The hook is run as ``clawback init`` installs it."""
    env = environment(folder, CLAWBACK_HOME=str(folder / "clawback"))
    home = Home(folder / "clawback")
    home.create()
    home.config.write_text("[training]\nbackground = false\n")
    fill(home, turns)
    hook = [str(script.write(home)), "claude-code"]
    return {
        "python -c pass": ([sys.executable, "-c", "pass"], env, b""),
        "clawback good": ([str(Path(sys.executable).with_name("clawback")), "good"], env, b""),
        "clawback status": ([str(Path(sys.executable).with_name("clawback")), "status"], env, b""),
        "our prompt hook": (
            hook,
            env,
            event("UserPromptSubmit", prompt="Tell me about the otter.", prompt_id="p"),
        ),
        "our stop hook": (hook, env, event("Stop", last_assistant_message="It is a mammal.", prompt_id="p")),
    }


def hanging(folder: Path) -> dict[str, Command]:
    """The hooks before a server that hangs, each time as if it were the first: else they would leave it alone for a minute."""
    forget = ["sh", "-c", 'rm -f "$1"; shift; exec "$@"', "_", str(folder / "clawback" / script.HUNG)]
    made = ours(folder, 0)
    return {
        f"{name}, server hung": ([*forget, *command], env, payload)
        for name, (command, env, payload) in made.items()
        if "hook" in name
    }


def fill(home: Home, turns: int) -> None:
    """Rows straight into the tables: 100,000 synced transactions would only take time."""
    db = open_database(home.database)
    said = json.dumps([{"role": "user", "content": "Tell me about the otter. " * 8}])
    db.execute("BEGIN")
    db.execute("INSERT INTO sessions (name, agent, created_at) VALUES ('old', 'bench', 0)")
    session = db.execute("SELECT id FROM sessions").fetchone()[0]
    db.executemany(
        "INSERT INTO turns (id, session_id, agent, kind, created_at) VALUES (?, ?, 'bench', 'main', ?)",
        ((n, session, n) for n in range(1, turns + 1)),
    )
    db.executemany(
        "INSERT INTO bodies (turn_id, messages, prompt, response) VALUES (?, ?, 'p', ?)",
        ((n, said, "It is a mammal. " * 16) for n in range(1, turns + 1)),
    )
    db.executemany(
        "INSERT INTO feedback (turn_id, kind, value, source, created_at) VALUES (?, 'rating', ?, 'bench', 0)",
        ((n, 1 if n % 3 else -1) for n in range(1, turns + 1, 10)),
    )
    db.execute("COMMIT")
    db.close()


def theirs(folder: Path) -> dict[str, Command]:
    """The peer's commands, after a captured turn, so that there is something to rate."""
    from benchmarks.peers.venvs import cache_folder, python_of

    python = python_of("reinforceclaw", cache_folder())
    env = environment(folder)
    transcript = folder / "transcript.jsonl"
    user = {"type": "user", "message": {"role": "user", "content": "Tell me about the otter."}}
    answer = {
        "type": "assistant",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "A mammal."}]},
    }
    transcript.write_text("".join(json.dumps(x) + "\n" for x in (user, answer) * 20))
    hook = peer_hook(python)
    command = str(python.with_name("reinforceclaw"))
    stop = event("Stop", last_assistant_message="It is a mammal.", transcript_path=str(transcript))
    prompt = event("UserPromptSubmit", prompt="Tell me about the otter.", transcript_path=str(transcript))
    state = folder / ".reinforceclaw"
    state.mkdir(exist_ok=True)
    (state / "config.json").write_text(
        json.dumps({"model": "bench", "agents": ["claude_code"], "panel_enabled": False})
    )
    subprocess.run([*hook, "stop"], env=env, input=stop, capture_output=True, check=False)
    return {
        "reinforceclaw good": ([command, "good"], env, b""),
        "reinforceclaw status": ([command, "status"], env, b""),
        "its prompt hook": ([*hook, "prompt"], env, prompt),
        "its stop hook": ([*hook, "stop"], env, stop),
    }


def peer_hook(python: Path) -> list[str]:
    """How the peer's installer has Claude Code call its hook."""
    return [str(python), "-m", "reinforceclaw.hooks.claude_code"]


def event(name: str, **more: str) -> bytes:
    return json.dumps({"hook_event_name": name, "session_id": SESSION, "cwd": "/", **more}).encode()


def measure(commands: dict[str, Command], runs: int) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Every command in turn, ``runs`` times, the first round not counted. Milliseconds of each, and what is to be quoted of them."""
    wall: dict[str, list[float]] = {name: [] for name in commands}
    cpu: dict[str, list[float]] = {name: [] for name in commands}
    codes: dict[str, set[int]] = {name: set() for name in commands}
    for round_ in range(runs + 1):
        for name, (command, env, payload) in commands.items():
            began, used = time.perf_counter(), processor()
            done = subprocess.run(command, env=env, input=payload, capture_output=True, cwd="/")
            if round_:
                wall[name].append(1000 * (time.perf_counter() - began))
                cpu[name].append(1000 * (processor() - used))
                codes[name].add(done.returncode)
        print(f"\rround {round_} of {runs}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return wall, {
        name: {
            "median_ms": round(statistics.median(times), 1),
            "min_ms": round(min(times), 1),
            "p90_ms": round(statistics.quantiles(times, n=10)[-1], 1),
            "cpu_ms": round(statistics.median(cpu[name]), 1),
            "exit_codes": sorted(codes[name]),
        }
        for name, times in wall.items()
    }


def processor() -> float:
    """Seconds that processes which have ended have had of a processor."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(figures: dict[str, Any]) -> str:
    rows = ["| command | median ms | min ms | p90 ms | processor ms | exit |", "|" + " --- |" * 6]
    for name, f in figures.items():
        codes = ",".join(map(str, f["exit_codes"]))
        rows.append(
            f"| {name} | {f['median_ms']} | {f['min_ms']} | {f['p90_ms']} | {f['cpu_ms']} | {codes} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
