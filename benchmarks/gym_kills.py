"""Kill -9 at random instants over rollouts and their training: no finished episode is lost, and the run comes to its end.

    python -m benchmarks gym_kills                                                        # FrozenLake
    python -m benchmarks gym_kills --kills 20 --harness "python3 tests/harness/tool_agent.py {task}"     # inside an agent program
    python -m benchmarks gym_kills --kills 20 --harness claude-code --tasks repository    # with the program in PATH

A process plays and learns (``clawback env train``, FrozenLake, the tiny model of ``benchmarks gym``), and is killed with SIGKILL a random moment after it began. After each kill the
store is whole and has every episode that it had before, unchanged. Then the next process goes on with the same run, until it ends, and another run begins. Processes are forked
from one that has imported torch, and write checkpoints every half second in place of every 20 s: a hundred kills in minutes.
Beside it two runs of the same seed without kills: their adapters must be the same to the last bit. With ``--harness`` an agent program in its box
leads the episodes, on the embedded model: every sampled token must be in one step, and no process of a killed run may be left.
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
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks import _gym_tasks
from benchmarks.harness_agents import unaccounted

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "agents"))
RESULTS = Path("bench-results")
CHECKPOINT_SECONDS = 0.5
SURVIVOR_SECONDS = 1.0
ROUNDING = 1e-6
"""By which weights may differ where requests were drawn together in another order."""


LAKE: dict[str, Any] = {
    "task": "FrozenLake-v1", "agent": "benchmarks._gym_lake:SquareAgent", "episodes": 96, "groups": 16, "held_out": 16, "max_tokens": 3, "max_turns": 12,
    "together": 16,
}  # fmt: skip
INSIDE: dict[str, Any] = {
    "episodes": 24,
    "groups": 8,
    "held_out": 4,
    "max_tokens": 6,
    "max_turns": 4,
    "together": 4,
}
"""Inside an agent program: an episode is a program's start, a thousand times as long as a step on the lake."""
NAMES = (
    "a fox",
    "rice",
    "Paris",
    "a cat",
    "bread",
    "Oslo",
    "a dog",
    "Rome",
    "tea",
    "a tree",
    "snow",
    "the sea",
)
BEGINS_WITH_S = 'if grep -q "^S" answer.txt; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n'


def questions(root: Path) -> Path:
    """Terminal tasks: what is written down is to begin with S. A third of them is held out."""
    for number, name in enumerate(NAMES):
        folder = root / f"q{number}"
        (folder / "tests").mkdir(parents=True)
        split = "test" if number % 3 == 2 else "train"
        (folder / "task.toml").write_text(f'version = "1.0"\n[metadata]\nsplit = "{split}"\n')
        (folder / "instruction.md").write_text(f"What is {name}?\n")
        (folder / "tests" / "test.sh").write_text(BEGINS_WITH_S)
    return root


def descendants(pid: int) -> list[int]:
    """Processes below one, as /proc has them."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = list(parents.get(pid, []))
    for child in found:
        found.extend(parents.get(child, []))
    return found


def runs_still(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet reaped does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def survivors(pids: Sequence[int]) -> int:
    """How many of these run still, a second later at most."""
    until = time.monotonic() + SURVIVOR_SECONDS
    while (left := sum(map(runs_still, pids))) and time.monotonic() < until:
        time.sleep(0.02)
    return left


def victim(home: Path, seed: int, wish: Mapping[str, Any]) -> int:
    """A child that plays a run to its end; its process id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        import torch

        from clawback.episode_jobs import playing
        from clawback.paths import Home
        from clawback.trainer import training_loop

        # A fork's pool of threads is renewed at its first use. Two threads at once (transformers loads weights with several) may find none: "Invalid thread pool!"
        torch.set_num_threads(1)
        training_loop.CHECKPOINT_SECONDS = CHECKPOINT_SECONDS
        playing.learn(Home(home), playing.Wish(**wish), seed=seed)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
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


def to_the_end(home: Path, seed: int, wish: Mapping[str, Any]) -> float:
    began = time.monotonic()
    _, status = os.waitpid(victim(home, seed, wish), 0)
    if status:
        raise SystemExit("a run without kills failed")
    return time.monotonic() - began


def killed(base: str, kills: int, longest: float, until: float, rng: random.Random, wish: Mapping[str, Any]) -> dict[str, Any]:  # fmt: skip
    home, seed, done = made(base), 0, 0
    found = {"kills": 0, "runs": 0, "lost": 0, "changed": 0, "failed": 0, "left_running": 0}
    before: dict[tuple[int, int], str] = {}
    while done < kills and time.monotonic() < until:
        pid, deadline = victim(home, seed, wish), time.monotonic() + rng.uniform(0.02, longest)
        status: int | None = None
        while time.monotonic() < deadline and status is None:
            ended, code = os.waitpid(pid, os.WNOHANG)
            status = code if ended else None
            time.sleep(0.005)
        if status is None:
            below = descendants(pid)
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            found["left_running"] += survivors(below)
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
    to_the_end(home, seed, wish)  # what the last kill left comes to its end too
    after = kept(home)
    found["lost"] += len(before.keys() - after.keys())
    return {
        **found,
        "kills": done,
        "runs": found["runs"] + 1,
        "episodes": len(after),
        "home": home,
        "tokens_unaccounted": unaccounted(stored(home)),
    }


def stored(home: Path) -> list[Any]:
    """All episodes with their tokens."""
    from clawback import store

    with store.connect(home / "clawback.db") as db:
        return [db.episode(row.id) for row in db.episodes(1_000_000)]


def result_of(home: Path) -> tuple[dict[int, list[tuple[int, ...]]], dict[str, Any]]:
    """The token ids of each episode of the first run, and the weights that it came to."""
    from safetensors.torch import load_file

    episodes = [e for e in stored(home) if e.run_id == 1]
    [first, *_] = sorted(home.glob("versions/*/adapter_model.safetensors"))
    return {e.number: [branch.ids for branch in e.branches] for e in episodes}, load_file(first)


def difference(home: Path, other: Path) -> dict[str, Any]:
    """Whether two runs of one seed wrote the same tokens, and how far apart their weights are at most. Programs ask when they like: which
    requests are drawn together depends on time, and so does the last bit of their log-probs."""
    (ids, weights), (other_ids, other_weights) = result_of(home), result_of(other)
    apart = max(float((value - other_weights[name]).abs().max()) for name, value in weights.items())
    return {"same_tokens": ids == other_ids, "weights_apart": apart}


def harness_wish(harness: str, tasks: str) -> dict[str, Any]:
    root = Path(tempfile.mkdtemp(prefix="gym-kills-tasks-"))
    size = INSIDE
    if tasks == "repository":
        size = INSIDE | {"episodes": 4, "groups": 2, "held_out": 1, "max_tokens": 40, "together": 2}
        folder = _gym_tasks.repository(root / "tasks")
        task = f"repository:{folder}/rows.jsonl?repositories={folder}/clones"
    else:
        task = f"terminal:{questions(root)}"
    return {**size, "task": task, "harness": harness}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks gym_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60.0, help="no further kill after this long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--harness", default="", help="an agent program that leads the episodes: a preset, or a command"
    )
    parser.add_argument(
        "--tasks", choices=("questions", "repository"), default="questions", help="of --harness"
    )
    options = parser.parse_args(argv)
    import torch

    torch.set_num_threads(1)
    from benchmarks.gym import model
    from clawback import engine
    from clawback.episode_jobs import playing  # noqa: F401

    inside = bool(options.harness)
    wish = harness_wish(options.harness, options.tasks) if inside else LAKE
    base = "embedded" if inside else str(Path(model("lake")).resolve())
    engine.load(base)  # imported here once, for every child
    homes = [made(base), made(base)]
    seconds = [to_the_end(home, 0, wish) for home in homes]
    same = adapters(homes[0]) == adapters(homes[1])
    until = time.monotonic() + 60 * options.minutes
    found = killed(base, options.kills, max(seconds), until, random.Random(options.seed), wish)
    home = found.pop("home")
    found |= {"same_seed_same_bits": same, "seconds": seconds}
    found["as_without_kills"] = adapters(home)[:1] == adapters(homes[0])
    if inside:
        found["without_kills"] = difference(homes[0], homes[1])
        found["killed"] = difference(homes[0], home)
        same = all(
            d["same_tokens"] and d["weights_apart"] < ROUNDING
            for d in (found["without_kills"], found["killed"])
        )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / ("harness-kills.json" if inside else "gym-kills.json")).write_text(json.dumps(found, indent=2))
    print(json.dumps(found))
    faults = ("lost", "changed", "failed", "left_running", "tokens_unaccounted")
    return int(any(found[name] for name in faults) or not same)
