"""LlamaGym 0.1.1 beside Clawback: its Blackjack example, the same agent, model and machine; episodes played and learned from a CPU second.

LlamaGym needs a Python of its own:

    python3.11 -m venv lg
    lg/bin/pip install torch==2.13.0 transformers==4.37.2 tokenizers==0.15.2 trl==0.7.11 peft==0.7.1 accelerate==0.21.0 gymnasium==0.29.1 \\
        numpy==1.26.4 datasets==2.21.0 pandas==2.3.3 pyarrow==19.0.1
    lg/bin/pip install --no-deps llamagym==0.1.1
    python -m benchmarks gym_llamagym --python lg/bin/python

Models have random weights: their replies name no action, which both agents take as standing. So a hand is a reply or two, and what is compared is what
drawing them and learning from them costs. CPU seconds are of the loop alone, without imports and loading.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from clawback import Agent

RESULTS = Path("bench-results")
TOGETHER, TOKENS = 128, 32


class BlackjackAgent(Agent):
    """As the other side's (``_llamagym.py``)."""

    env_options = {"natural": False, "sab": False}
    retries = 0

    def get_system_prompt(self) -> str:
        from benchmarks._llamagym import SYSTEM

        return SYSTEM

    def format_observation(self, observation: Any) -> str:
        total, dealer, ace = observation
        return f"You: {total}. Dealer: {dealer}. You have {'an' if ace else 'no'} ace."

    def extract_action(self, response: str) -> int:
        found = re.search(r"Action: ([01])\b", response)
        return int(found.group(1)) if found else 0


def ours(folder: Path, episodes: int) -> dict[str, Any]:
    """Rounds of ``TOGETHER`` hands at once, each learned from, with our defaults but LoRA's rank."""
    from clawback import engine
    from clawback.engine.types import Sampling
    from clawback.environments.collecting import Collector, Dealing
    from clawback.environments.find import find
    from clawback.environments.rollouts import Play, Rollouts

    policy = engine.load(str(folder))
    policy.sampling = Sampling(1.0)
    worlds = find("Blackjack-v1", "benchmarks.gym_llamagym:BlackjackAgent", seed=0)
    rounds = -(-episodes // TOGETHER)
    recipe = engine.episode_recipe(policy.info, "balanced", {"rank": 16}, rounds=rounds)
    played: list[Any] = []
    begun = time.process_time()
    with (
        tempfile.TemporaryDirectory() as out,
        Rollouts(policy, worlds, Play(TOGETHER, 12, TOKENS), on_episodes=played.extend) as rollouts,
    ):
        collector = Collector(rollouts, Dealing(worlds.tasks("train"), 0, TOGETHER))
        engine.train_episodes(policy, collector, recipe, seed=0, out=Path(out), about={})
    cpu = time.process_time() - begun
    return {
        "episodes": len(played),
        "turns": sum(len(e.steps) for e in played),
        "updates": rounds * 4,
        "cpu_seconds": cpu,
    }


def theirs(python: str, folder: Path, episodes: int) -> dict[str, Any]:
    env = {"PATH": os.environ["PATH"], "HOME": tempfile.gettempdir(), "HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip
    script = str(Path(__file__).with_name("_llamagym.py"))
    done = subprocess.run([python, "-W", "ignore", script, "play", str(folder), str(episodes)], env=env, check=True, stdout=subprocess.PIPE, text=True)  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks gym_llamagym", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--python", default="", help="the Python that has LlamaGym")
    parser.add_argument("--episodes", type=int, default=50, help="LlamaGym's")
    parser.add_argument("--ours", type=int, default=256, help="Clawback's")
    parser.add_argument("--sizes", nargs="*", metavar="SIZE", help="0.14M 2.8M")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    if not options.python:
        print("Left out: no Python with LlamaGym is named (--python).")
        return 0
    import torch

    from benchmarks._llamagym import SIZES

    torch.set_num_threads(1)
    RESULTS.mkdir(exist_ok=True)
    rows = []
    for size in (one for one in SIZES if not options.sizes or one.replace(" ", "") in options.sizes):
        folder = (RESULTS / f"gym-llamagym-{size.replace(' ', '')}").resolve()
        if not (folder / "config.json").exists():
            script = str(Path(__file__).with_name("_llamagym.py"))
            subprocess.run([options.python, "-W", "ignore", script, "make", str(folder), size], check=True)
        for name, one in (("Clawback", ours(folder, options.ours)), ("LlamaGym", theirs(options.python, folder, options.episodes))):  # fmt: skip
            rows.append({"model": size, "who": name, **one, "each": one["cpu_seconds"] / one["episodes"]})
            print(rows[-1], file=sys.stderr, flush=True)
    (RESULTS / "gym-llamagym.json").write_text(json.dumps(rows, indent=2))
    print(json.dumps(rows) if options.json else table(rows))
    return 0


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| model | | episodes (turns) | CPU ms an episode | times LlamaGym's |", "|---|---|---|---|---|"]
    for row in rows:
        other = next(r["each"] for r in rows if r["model"] == row["model"] and r["who"] == "LlamaGym")
        lines.append(f"| {row['model']} | {row['who']} | {row['episodes']} ({row['turns']}) | {1000 * row['each']:.1f} | {other / row['each']:.1f} |")  # fmt: skip
    return "\n".join(lines)
