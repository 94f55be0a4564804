"""Kill -9 at random instants over rollouts and their training: no finished episode is lost, and the run comes to its end.

A process plays and learns (``clawback env train``, FrozenLake, the tiny model of ``benchmarks gym``), and is killed with SIGKILL a random moment after it began. After each kill the
store is whole and has every episode that it had before, unchanged. Then the next process goes on with the same run, until it ends, and another run begins. Processes are forked
from one that has imported torch, and write checkpoints every half second in place of every 20 s: a hundred kills in minutes.
Beside it two runs of the same seed without kills: their adapters must be the same to the last bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "agents"))
RESULTS = Path("bench-results")
CHECKPOINT_SECONDS = 0.5


def victim(home: Path, seed: int) -> int:
    """A child that plays a run to its end; its process id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        from clawback.engine.torch.loop import trainer
        from clawback.jobs import playing
        from clawback.paths import Home

        trainer.CHECKPOINT_SECONDS = CHECKPOINT_SECONDS
        wish = playing.Wish(
            "FrozenLake-v1", "benchmarks._gym_lake:SquareAgent", episodes=96, groups=16, held_out=16, max_tokens=3, max_turns=12, together=16
        )  # fmt: skip
        playing.learn(Home(home), wish, seed=seed)
        status = 0
    finally:
        os._exit(status)


def kept(home: Path) -> dict[tuple[int, int], str]:
    """(run, number) → a hash of all of the episode. Raises where the store is not whole."""
    path = home / "clawback.db"
    if not path.exists():
        return {}
    db = sqlite3.connect(path)
    try:
        [(said,)] = db.execute("PRAGMA integrity_check").fetchall()
        if said != "ok":
            raise SystemExit(f"the store is damaged: {said}")
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'episodes'").fetchall():
            return {}
        cursor = db.execute("SELECT * FROM episodes")
        names = [column[0] for column in cursor.description]
        run, number = names.index("run_id"), names.index("number")
        return {(row[run], row[number]): hashlib.sha256(repr(row).encode()).hexdigest() for row in cursor}
    finally:
        db.close()


def made(base: str) -> Path:
    home = Path(tempfile.mkdtemp(prefix="gym-kills-"))
    (home / "config.toml").write_text(f'[model]\nbase = "{base}"\n[training]\nbackground = false\n')
    return home


def adapters(home: Path) -> list[str]:
    return [hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(home.glob("versions/*/adapter_model.safetensors"))]  # fmt: skip


def to_the_end(home: Path, seed: int) -> float:
    began = time.monotonic()
    _, status = os.waitpid(victim(home, seed), 0)
    if status:
        raise SystemExit("a run without kills failed")
    return time.monotonic() - began


def killed(base: str, kills: int, longest: float, until: float, rng: random.Random) -> dict[str, Any]:
    home, seed, done, found = made(base), 0, 0, {"kills": 0, "runs": 0, "lost": 0, "changed": 0, "failed": 0}
    before: dict[tuple[int, int], str] = {}
    while done < kills and time.monotonic() < until:
        pid, deadline = victim(home, seed), time.monotonic() + rng.uniform(0.02, longest)
        status: int | None = None
        while time.monotonic() < deadline and status is None:
            ended, code = os.waitpid(pid, os.WNOHANG)
            status = code if ended else None
            time.sleep(0.005)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            if os.WIFSIGNALED(status):
                done += 1
        after = kept(home)
        found["lost"] += len(before.keys() - after.keys())
        found["changed"] += sum(after[key] != value for key, value in before.items() if key in after)
        before = after
        if not os.WIFSIGNALED(status):
            found["failed"] += status != 0
            found["runs"] += status == 0
            seed += 1
        print(f"{done} kills, {len(after)} episodes, {found}", file=sys.stderr, flush=True)
    before = kept(home)
    to_the_end(home, seed)  # what the last kill left comes to its end too
    after = kept(home)
    found["lost"] += len(before.keys() - after.keys())
    return {
        **found,
        "kills": done,
        "runs": found["runs"] + 1,
        "episodes": len(after),
        "adapters": adapters(home),
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks gym_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60.0, help="no further kill after this long")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    import torch

    torch.set_num_threads(1)
    from benchmarks.gym import model
    from clawback import engine
    from clawback.jobs import playing  # noqa: F401

    base = str(Path(model("lake")).resolve())
    engine.load(base)  # imported here once, for every child
    homes = [made(base), made(base)]
    seconds = [to_the_end(home, 0) for home in homes]
    same = adapters(homes[0]) == adapters(homes[1])
    until = time.monotonic() + 60 * options.minutes
    found = killed(base, options.kills, max(seconds), until, random.Random(options.seed))
    found |= {"same_seed_same_bits": same, "seconds": seconds}
    found["as_without_kills"] = found.pop("adapters")[:1] == adapters(homes[0])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "gym-kills.json").write_text(json.dumps(found, indent=2))
    print(json.dumps(found))
    return int(bool(found["lost"] or found["changed"] or found["failed"] or not same))
