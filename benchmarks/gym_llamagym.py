"""LlamaGym 0.1.1 beside Clawback: its Blackjack example, the same agent, model and machine; episodes played and learned from a CPU second.

LlamaGym runs in a venv of its own, with the versions that it was written for (Python 3.11). Both play and learn in turns, several rounds.

Models have random weights: their replies name no action, which both agents take as standing. So a hand is a reply or two, and what is compared is what
drawing them and learning from them costs. CPU seconds are of the loop alone, without imports and loading.

``--learn``: in place of that, what both learn on FrozenLake (``lake`` of ``gym.py``), from the same model and as many episodes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import _page
from benchmarks.peers import venvs
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
    from clawback.environments.registry import find
    from clawback.models.types import Sampling
    from clawback.rollouts.concurrent import Play, Rollouts
    from clawback.rollouts.rounds import Collector, Dealing
    from clawback.trainer import TrainingRun
    from clawback.trainer.run import attach_weights

    policy = engine.load(str(folder))
    policy.sampling = Sampling(1.0)
    worlds = find("Blackjack-v1", "benchmarks.gym_llamagym:BlackjackAgent", seed=0)
    rounds = -(-episodes // TOGETHER)
    recipe = engine.episode_recipe(policy.info, "balanced", {"rank": 16}, rounds=rounds)
    attach_weights(policy, recipe, 0)  # the other side's adapter, too, is put on before its loop begins
    played: list[Any] = []
    begun = time.process_time()
    with (
        tempfile.TemporaryDirectory() as out,
        Rollouts(policy, worlds, Play(TOGETHER, 12, TOKENS), on_episodes=played.extend) as rollouts,
    ):
        collector = Collector(rollouts, Dealing(worlds.tasks("train"), 0, TOGETHER))
        engine.train_episodes(TrainingRun(policy, (), recipe, out=Path(out)), collector, about={})
    cpu = time.process_time() - begun
    return {
        "episodes": len(played),
        "turns": sum(len(e.steps) for e in played),
        "updates": rounds * 4,
        "cpu_seconds": cpu,
    }


def theirs(python: str, what: str, folder: Path, *numbers: float) -> dict[str, Any]:
    env = {"PATH": os.environ["PATH"], "HOME": tempfile.gettempdir(), "HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip
    script = str(Path(__file__).with_name("_llamagym.py"))
    done = subprocess.run([python, "-W", "ignore", script, what, str(folder), *map(str, numbers)], env=env, check=True, stdout=subprocess.PIPE, text=True)  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks gym_llamagym", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--episodes", type=int, default=25, help="LlamaGym's of a round")
    parser.add_argument("--ours", type=int, default=256, help="Clawback's of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", nargs="*", metavar="SIZE", help="0.14M 2.8M")
    parser.add_argument("--learn", action="store_true", help="learning curves on FrozenLake")
    parser.add_argument("--seeds", type=int, default=3, help="of --learn")
    parser.add_argument("--rates", type=float, nargs="*", default=[1.41e-5, 1e-3], help="LlamaGym's learning rates, the first trl's default")  # fmt: skip
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    import torch

    from benchmarks._llamagym import SIZES

    torch.set_num_threads(1)
    RESULTS.mkdir(exist_ok=True)
    python = str(venvs.python_of("llamagym", venvs.cache_folder()))
    if options.learn:
        curves = learned(python, options.seeds, options.rates)
        (RESULTS / "gym-llamagym-learned.json").write_text(json.dumps(curves, indent=2))
        print(json.dumps(curves) if options.json else curve_table(curves))
        return 0
    rows: list[dict[str, Any]] = []
    for size in (one for one in SIZES if not options.sizes or one.replace(" ", "") in options.sizes):
        folder = (RESULTS / f"gym-llamagym-{size.replace(' ', '')}").resolve()
        if not (folder / "config.json").exists():
            script = str(Path(__file__).with_name("_llamagym.py"))
            subprocess.run([python, "-W", "ignore", script, "make", str(folder), size], check=True)
        sides: dict[str, list[dict[str, Any]]] = {"Clawback": [], "LlamaGym": []}
        for _ in range(options.rounds):
            sides["Clawback"].append(ours(folder, options.ours))
            sides["LlamaGym"].append(theirs(python, "play", folder, options.episodes))
            print({name: each(done[-1]) for name, done in sides.items()}, file=sys.stderr, flush=True)
        rows += [{"model": size, "who": name, **summed(done)} for name, done in sides.items()]
        mine, other = ([1000 * each(one) for one in done] for done in sides.values())
        what = f"Blackjack played and learned, {size}"
        _page.compare(what, peer="LlamaGym 0.1.1", unit="CPU ms an episode", ours=mine, theirs=other, more=False)  # fmt: skip
    (RESULTS / "gym-llamagym.json").write_text(json.dumps(rows, indent=2))
    print(json.dumps(rows) if options.json else table(rows))
    return 0


def learned(python: str, seeds: int, rates: list[float]) -> list[dict[str, Any]]:
    """Mean returns of the episodes of each round, as they were played, of both."""
    from benchmarks import gym

    folder, lake = Path(gym.model("lake")).resolve(), gym.GAMES["lake"]
    rows = []
    for seed in range(seeds):
        run = gym.learn("lake", seed, None, {})
        rows.append({"who": "Clawback", "seed": seed, "curve": run["curve"], "cpu_seconds": run["cpu_seconds"]})  # fmt: skip
        for rate in rates:
            run = theirs(python, "learn", folder, lake["rounds"] * lake["groups"], seed, rate)
            rounds = zip(*[iter(run["returns"])] * lake["groups"], strict=True)
            rows.append({"who": f"LlamaGym, learning rate {rate:g}", "seed": seed, "curve": list(map(statistics.mean, rounds)), "cpu_seconds": run["cpu_seconds"]})  # fmt: skip
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def curve_table(rows: list[dict[str, Any]]) -> str:
    """Mean returns of sixths of the rounds over the seeds."""
    sixth = len(rows[0]["curve"]) // 6
    lines = [
        f"| | seeds | {' | '.join(f'rounds {i * sixth + 1} to {(i + 1) * sixth}' for i in range(6))} | last, each seed | CPU s a seed |",
        "|---|---|" + "---|" * 8,
    ]
    for who in dict.fromkeys(row["who"] for row in rows):
        some = [row for row in rows if row["who"] == who]
        parts = [[statistics.mean(row["curve"][i * sixth : (i + 1) * sixth]) for row in some] for i in range(6)]  # fmt: skip
        last = " ".join(f"{value:.2f}" for value in parts[-1])
        cpu = statistics.mean(row["cpu_seconds"] for row in some)
        lines.append(f"| {who} | {len(some)} | {' | '.join(f'{statistics.mean(part):.3f}' for part in parts)} | {last} | {cpu:.0f} |")  # fmt: skip
    return "\n".join(lines)


def each(round_: dict[str, Any]) -> float:
    """CPU seconds an episode."""
    return float(round_["cpu_seconds"] / round_["episodes"])


def summed(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    counts = {name: sum(one[name] for one in rounds) for name in ("episodes", "turns", "updates")}
    return counts | {"each": statistics.median(map(each, rounds))}


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| model | | episodes (turns) | CPU ms an episode | times LlamaGym's |", "|---|---|---|---|---|"]
    for row in rows:
        other = next(r["each"] for r in rows if r["model"] == row["model"] and r["who"] == "LlamaGym")
        lines.append(f"| {row['model']} | {row['who']} | {row['episodes']} ({row['turns']}) | {1000 * row['each']:.1f} | {other / row['each']:.1f} |")  # fmt: skip
    return "\n".join(lines)
