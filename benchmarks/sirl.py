"""The walk-through of docs/coming-from/sirl.md on real models, command by command, with what each took.

The blocks of the page that are marked ``run`` are run as they stand: SmolLM2-135M is policy and teacher, MiniLM the encoder of the reward model. A program
rates from 1 to 10 (8 to 10 what its taste likes, 2 to 4 what it does not; one rating in ten is turned round). Afterwards the base and the new version answer prompts
that no step has seen, and the taste says how many it likes. Wall and CPU seconds are those of each command and its children.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import _minilm, _real_tastes
from clawback import feedback, store
from clawback.paths import Home

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/coming-from/sirl.md"
DATA = Path("alpaca-eval-rated.jsonl")
LONGEST = 200
"""Characters of a prompt."""


@dataclass(frozen=True, slots=True)
class Took:
    command: str
    wall: float
    cpu: float


def commands() -> list[list[str]]:
    """The lines of each block that is run."""
    blocks = re.findall(r"```bash run\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return [[line for line in block.splitlines() if line.strip()] for block in blocks]


def prompts(data: Path, count: int, seed: int) -> list[str]:
    found = sorted({json.loads(line)["prompt"] for line in data.read_text("utf-8").splitlines()})
    short = [" ".join(p.split()) for p in found if len(p) < LONGEST]
    return random.Random(seed).sample(short, count)


class Walk:
    """One folder, one home, and what each command in it took."""

    def __init__(self, folder: Path, encoder: Path) -> None:
        self.folder, self.took = folder, list[Took]()
        self.home = Home(folder / "home")
        self.environment = os.environ | {
            "CLAWBACK_HOME": str(self.home.root),
            "HOME": str(folder),
            "MODEL": "smollm2",
            "ENCODER": str(encoder),
            "TEACHER": "--api local",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def run(self, line: str) -> str:
        print(f"$ {line}", file=sys.stderr)
        started, before = time.monotonic(), _cpu()
        done = subprocess.run(["bash", "-euc", line], cwd=self.folder, env=self.environment, capture_output=True, text=True)  # fmt: skip
        self.took.append(Took(line, time.monotonic() - started, _cpu() - before))
        print(f"{self.took[-1].wall:.0f} s, {self.took[-1].cpu:.0f} CPU s\n{done.stdout[-2000:]}", file=sys.stderr)  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{line} failed:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def liked(self, version: str, taste: _real_tastes.Taste) -> list[bool]:
        self.run(f"clawback versions generate --prompts unseen.txt --output v{version}.jsonl --version {version} --max-tokens 128 --seed 1")  # fmt: skip
        lines = (self.folder / f"v{version}.jsonl").read_text("utf-8").splitlines()
        return [taste.likes(json.loads(line)["response"]) for line in lines]

    def reward(self, version: str) -> float:
        """The mean of what the reward model of this home gives to those answers."""
        self.run(f"clawback lab reward score v{version}.jsonl --output scored-v{version}.jsonl")
        lines = (self.folder / f"scored-v{version}.jsonl").read_text("utf-8").splitlines()
        scores = [float(json.loads(line)["reward"]) for line in lines]
        return sum(scores) / len(scores)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def rate(home: Home, taste: _real_tastes.Taste, seed: int) -> int:
    rng = random.Random(seed)
    liked = 0
    with store.connect(home.database) as db:
        for turn in db.turns(limit=1000):
            likes = taste.likes(turn.response) != (rng.random() < 0.1)
            feedback.score(db, turn.id, rng.randint(8, 10) if likes else rng.randint(2, 4), source="web")
            liked += likes
    return liked


def walk(data: Path, folder: Path, taste: str, count: int, unseen: int, seed: int) -> dict[str, Any]:
    here = Walk(folder, _minilm.unpacked(folder / "minilm"))
    asked = prompts(data, count + unseen, seed)
    (folder / "prompts.txt").write_text("\n".join(asked[:count]) + "\n")
    (folder / "unseen.txt").write_text("\n".join(asked[count:]) + "\n")
    likes, started = _real_tastes.TEST[taste], time.monotonic()
    before, after = commands()
    here.run(before[0])
    here.run("clawback config set training.background false")  # what is measured is what was typed
    for line in before[1:]:
        here.run(line)
    good = rate(here.home, likes, seed)
    for line in after:
        here.run(line)
    walked = time.monotonic() - started
    steps = list(here.took)
    with store.connect(here.home.database) as db:
        made = [one for one in db.versions() if one.number]
        algorithms = {str(one.number): db.run(one.run_id or 0).algorithm for one in made}
    shares = {version: here.liked(version, likes) for version in ("base", *algorithms)}
    rewards = {version: here.reward(version) for version in shares}
    return {
        "taste": taste,
        "prompts": count,
        "liked_of_rated": good,
        "wall_seconds": walked,
        "cpu_seconds": sum(one.cpu for one in steps),
        "steps": [asdict(one) for one in steps],
        "unseen": {
            v: {"algorithm": algorithms.get(v, ""), "liked": sum(of), "of": len(of), "reward": rewards[v]}
            for v, of in shares.items()
        },
        "gate": {str(one.number): [one.status, *(one.report or {}).get("reasons", [])] for one in made},
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks sirl", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="JSONL with prompt")
    parser.add_argument("--taste", choices=_real_tastes.TEST, default="says you")
    parser.add_argument("--prompts", type=int, default=80)
    parser.add_argument("--unseen", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="work in this folder and leave it")
    options = parser.parse_args(argv)
    if not options.data.is_file():
        print(f"Skipped: there is no {options.data}. Name scored answers with --data.", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = walk(
            options.data, folder.resolve(), options.taste, options.prompts, options.unseen, options.seed
        )
    results = ROOT / "bench-results"
    results.mkdir(exist_ok=True)
    (results / "sirl.json").write_text(json.dumps(found, indent=2))
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
