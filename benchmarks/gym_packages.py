"""Environments of other packages, as they come from PyPI, played and learned from by ``clawback env train``: held-out tasks before and after.

    pip install popgym random-walk-env mazegym mazelib                      # what is to be tried
    python -m benchmarks gym_packages guesses walk maze --seeds 3

Each is one command in a home of its own, on the embedded model. Tasks are paired for the test of significance (Wilcoxon's signed ranks, one-sided).
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gym import RESULTS, signed_rank

PACKAGES: dict[str, tuple[str, ...]] = {
    "guesses": ("gymnasium:popgym:popgym-HigherLowerEasy-v0", "--episodes", "384", "--max-turns", "12", "--max-tokens", "8"),
    "walk": ("gymnasium:random_walk_env:random_walk_env/RandomWalk-v0", "--episodes", "256", "--max-turns", "20", "--max-tokens", "8"),
    "maze": ("gymnasium:mazegym:Maze5x5Fixed-v0", "--episodes", "512", "--max-turns", "16", "--max-tokens", "8"),
    "room": ("gymnasium:minigrid:MiniGrid-Empty-5x5-v0", "--episodes", "512", "--max-turns", "16", "--max-tokens", "8"),
    "cliff": ("gymnasium:CliffWalking-v1", "--episodes", "512", "--max-turns", "20", "--max-tokens", "8"),
    "gridworld": ("gymnasium:gym_classics2:ClassicGridworld-v1", "--episodes", "768", "--max-turns", "20", "--max-tokens", "8"),
    "kraken": ("gymnasium:kraken_crossing:KrakenCrossing-v0", "--episodes", "768", "--max-turns", "20", "--max-tokens", "8"),
    "secretary": ("textarena:Secretary-v0?replies=Action: [accept]|Action: [continue]", "--episodes", "512", "--max-turns", "6", "--max-tokens", "12"),
    "ice": ("textarena:FrozenLake-v0?replies=[ up ]|[ down ]|[ left ]|[ right ]", "--episodes", "512", "--max-turns", "16", "--max-tokens", "12"),
    "syllogism": ("reasoning-gym:syllogism?tags=false&replies=Yes|No", "--episodes", "1024", "--max-tokens", "16"),
}  # fmt: skip
"""Name → the words of ``clawback env train``."""


def returns(home: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Task → return of its held-out episode before and after; before under the same rule, where replies were held to actions."""
    from clawback.episode_jobs.playing import AFTER, BEFORE, HELD

    with sqlite3.connect(home / "clawback.db") as db:
        rows = db.execute("SELECT number, total FROM episodes WHERE split = 'test' AND status != 'failed'")
        totals = dict(rows.fetchall())
    after = {str(n - AFTER): total for n, total in totals.items() if n >= AFTER}
    held = {str(n - HELD): total for n, total in totals.items() if HELD <= n < AFTER}
    free = {str(n - BEFORE): total for n, total in totals.items() if BEFORE <= n < HELD}
    return held or free, after


def learn(name: str, seed: int, extra: Sequence[str]) -> dict[str, Any]:
    words = [sys.executable, "-m", "clawback", "env", "train", *PACKAGES[name], "--seed", str(seed), *extra]
    with tempfile.TemporaryDirectory(prefix="gym-packages-") as folder:
        home = Path(folder)
        environment = os.environ | {"CLAWBACK_HOME": folder, "HOME": folder, "OMP_NUM_THREADS": "1"}
        began = sum(os.times()[2:4])
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
        print(done.stdout, file=sys.stderr, flush=True)
        before, after = returns(home)
    shared = sorted(before.keys() & after.keys())
    return {
        "name": name,
        "seed": seed,
        "before": statistics.mean(before[task] for task in shared),
        "after": statistics.mean(after[task] for task in shared),
        "success": [sum(each[task] > 0 for task in shared) / len(shared) for each in (before, after)],
        "held_out": len(shared),
        "p": signed_rank([after[task] - before[task] for task in shared]),
        "cpu_seconds": sum(os.times()[2:4]) - began,
    }


def table(runs: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| name | seed | held-out tasks | return before → after | success before → after | p | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        lines.append(
            f"| {run['name']} | {run['seed']} | {run['held_out']} | {run['before']:.3f} → {run['after']:.3f} "
            f"| {run['success'][0]:.2f} → {run['success'][1]:.2f} | {run['p']:.1g} | {run['cpu_seconds']:.0f} |"
        )
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks gym_packages", description=__doc__)
    parser.add_argument("names", nargs="+", choices=[*PACKAGES], metavar="NAME", help=", ".join(PACKAGES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of the seeds")
    parser.add_argument("--more", default="", help="further words of the command, as in '--held-out 32'")
    options = parser.parse_args(argv)
    runs = []
    for name in options.names:
        for seed in range(options.first, options.first + options.seeds):
            runs.append(learn(name, seed, options.more.split()))
            print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "gym-packages.json").write_text(json.dumps(runs, indent=2))
    print(table(runs))
    return 0
