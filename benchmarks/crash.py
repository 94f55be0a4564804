"""Kill -9 at random instants over capture, rating, training, gate and promotion: what was acknowledged must be there.

A victim process captures, rates and trains without end, and says on stdout what it has been told is stored and which
phase it is in. It is killed a random moment after a random phase began. After each kill: the database is whole, every acknowledged
row is there, exactly one version is live, and its files are what was trained. Then the next victim starts on the same home,
and has to take up or close whatever the one before it left. At the end a run from start to finish must work.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from clawback import jobs, release, store
from clawback.paths import Home

PHASES = ("ack", "load", "prepare", "train", "save", "gate", "done")
LONGEST_DELAY = 0.6
"""Seconds after the beginning of a phase; most phases are shorter."""
SETTINGS = """
[training]
algorithm = "reinforce"
background = false
[training.overrides]
steps = 4
rank = 4
[generation]
max_tokens = 40
"""

VICTIM = """
import sys, random
from pathlib import Path
from clawback import feedback, jobs, store
from clawback.extensions.demo import corpus
from clawback.paths import Home
from clawback.records import Turn
home, rng = Home(Path(sys.argv[1])), random.Random(sys.argv[2])

def say(*words):
    print(*words, flush=True)

while True:
    with store.connect(home.database) as db:
        for prompt in corpus.prompts("rated", 6, rng.randrange(10**9)):
            text = corpus.answer(corpus.BY_NAME[prompt.topic], corpus.random_style(rng), rng)
            turn = db.add_turn(Turn(session="crash", messages=tuple(prompt.messages), response=text))
            say("ack turn", turn.id)
            say("ack feedback", feedback.rate(db, turn.id, 1 if "- " in text else -1).id)
    seen = set()
    def tell(progress):
        phase = progress["phase"]
        if phase not in seen:
            seen.add(phase)
            say("phase", phase)
    jobs.train_once(home, on_progress=tell)
    say("phase done")
"""


class Victim:
    """A process to kill, and what it has said so far."""

    def __init__(self, home: Home, seed: int) -> None:
        command = [sys.executable, "-c", VICTIM, str(home.root), str(seed)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.turns: set[int] = set()
        self.feedback: set[int] = set()
        self.phases: Counter[str] = Counter()
        self.ended = False
        self.news = threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            if not line.endswith("\n"):
                break  # cut off in the middle: not acknowledged
            words = line.split()
            with self.news:
                if words[0] == "ack":
                    (self.turns if words[1] == "turn" else self.feedback).add(int(words[2]))
                self.phases["ack" if words[0] == "ack" else words[1]] += 1
                self.news.notify_all()
        with self.news:
            self.ended = True
            self.news.notify_all()

    def kill_after(self, phase: str, delay: float) -> None:
        """Wait until it is in that phase, a moment more, and kill it."""
        with self.news:
            reached = self.news.wait_for(lambda: self.phases[phase] or self.ended, timeout=120)
        if not reached or self.process.poll() is not None:
            assert self.process.stderr
            raise AssertionError(f"the victim never came to {phase}: {self.process.stderr.read()[-3000:]}")
        time.sleep(delay)
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()


def check(home: Home, turns: set[int], feedback: set[int]) -> None:
    """What must hold after every kill. Raises ``AssertionError``."""
    with store.connect(home.database) as db:
        assert db.integrity() == [], "the database is damaged"
        lost = turns - {t.id for t in db.turns(limit=10**9)}
        assert not lost, f"acknowledged turns are gone: {lost}"
        lost = feedback - {f.id for f in db.feedback()}
        assert not lost, f"acknowledged feedback is gone: {lost}"
        live = [v for v in db.versions() if v.status == "live"]
        assert len(live) == 1, "not exactly one version is live"
        release.check(live[0])


def run(home: Home, kills: int, seed: int) -> dict[str, Any]:
    """Kill that many victims; returns what was seen."""
    rng = random.Random(seed)
    home.create()
    home.config.write_text(SETTINGS)
    turns: set[int] = set()
    feedback: set[int] = set()
    killed: Counter[str] = Counter()
    for number in range(kills):
        victim = Victim(home, seed * 1000 + number)
        phase = rng.choice(PHASES)
        victim.kill_after(phase, rng.uniform(0, LONGEST_DELAY))
        killed[phase] += 1
        turns |= victim.turns
        feedback |= victim.feedback
        check(home, turns, feedback)
        print(f"\r{number + 1} of {kills} killed", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    outcome = jobs.train_once(home)
    with store.connect(home.database) as db:
        policy = release.load(home, db.live())
        assert policy.generate([[{"role": "user", "content": "Tell me about the otter."}]], max_tokens=8)
        runs = Counter(r.status for r in db.runs(limit=10**6))
        versions = Counter(v.status for v in db.versions())
        strays = release.clear_strays(db, home)
    return {
        "kills": kills,
        "killed_after": dict(killed),
        "acknowledged_turns": len(turns),
        "acknowledged_feedback": len(feedback),
        "lost": 0,
        "runs": dict(runs),
        "versions": dict(versions),
        "stray_folders": len(strays),
        "last_run": outcome.run.status,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(Home(Path(folder)), options.kills, options.seed), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
