"""`clawback env train TASK --harness COMMAND`, as a process that is killed: it learns, and loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clawback import release, store
from clawback.episode_jobs import playing
from clawback.learning.episode_examples import sequences
from clawback.models.types import Sampling
from tests.harness.boxes import boxes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not boxes(), reason="no box with a network of its own can be made here"),
]
AGENT = Path(__file__).with_name("tool_agent.py")
CHECK = 'if grep -q "^S" answer.txt; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n'
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
ROUNDS, GROUPS, HELD_OUT = 6, 16, 16
KILLS = 3


@pytest.fixture
def tasks(tmp_path):
    """What the model says first is to begin with S; a third of the questions is held out."""
    for number, name in enumerate(NAMES):
        folder = tmp_path / "tasks" / f"q{number}"
        (folder / "tests").mkdir(parents=True)
        split = "test" if number % 3 == 2 else "train"
        (folder / "task.toml").write_text(f'version = "1.0"\n[metadata]\nsplit = "{split}"\n')
        (folder / "instruction.md").write_text(f"What is {name}?\n")
        (folder / "tests" / "test.sh").write_text(CHECK)
    return tmp_path / "tasks"


def command(home, tasks):
    words = [sys.executable, "-m", "clawback", "env", "train", f"terminal:{tasks}", "--json", "--seed", "1"]
    words += [
        "--harness",
        f"python3 {AGENT} {{task}}",
        "--episodes",
        str(ROUNDS * GROUPS),
        "--batch",
        str(GROUPS),
    ]
    words += ["--held-out", str(HELD_OUT), "--max-tokens", "6"]
    return words, {**os.environ, "CLAWBACK_HOME": str(home.root)}


def stored(home):
    """Number → episode with its tokens."""
    if not home.database.exists():
        return {}
    with store.connect(home.database) as db:
        return {e.number: db.episode(e.id) for e in db.episodes(10_000)}


def test_killed_again_and_again_a_run_accounts_for_every_token_and_loses_nothing(home, tasks):
    home.config.write_text("[training]\nbackground = false\n")
    words, environment = command(home, tasks)
    known = {}
    for kill in range(KILLS):
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        wanted = len(known) + 20 + 9 * kill
        while len(stored(home)) < wanted:
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            pytest.fail(process.stderr.read().decode())
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        episodes = stored(home)
        assert all(episodes[number] == episode for number, episode in known.items())
        known = episodes
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    episodes = stored(home)
    assert all(episodes[number] == episode for number, episode in known.items())
    assert len(episodes) == ROUNDS * GROUPS + 2 * HELD_OUT
    with store.connect(home.database) as db:
        [run] = db.runs()
        gaps = [step["gap"] for step in db.steps(run.id) if "gap" in step]
        versions = [db.version(run.parent), db.version(run.version)]
    assert max(gaps) < 1e-4
    for episode in episodes.values():
        assert (episode.status, len(episode.steps)) == ("completed", 2)
        written = [
            (b, i)
            for b, branch in enumerate(episode.branches)
            for i, wrote in enumerate(branch.mask)
            if wrote
        ]
        assert written == sorted((s.branch, i) for s in episode.steps for i in range(s.start, s.end))
    for version, first in zip(versions, (playing.BEFORE, playing.AFTER), strict=True):
        policy = release.load(home, version)
        policy.sampling = Sampling(policy.sampling.temperature)
        parts = sequences([e for number, e in episodes.items() if first <= number < first + HELD_OUT])
        learned = policy.scorer([part.encoded for part in parts]).split()
        apart = [
            (one.cpu() - part.old)[part.mask].abs().max() for one, part in zip(learned, parts, strict=True)
        ]
        assert max(apart) < 1e-3


def test_a_version_begins_as_its_reward_wants(home, tasks):
    """Held-out success before and after, on more episodes than the test above plays."""
    home.config.write_text("[training]\nbackground = false\n")
    words, environment = command(home, tasks)
    words[words.index("--episodes") + 1] = "384"
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with store.connect(home.database) as db:
        report = db.version(1).report
    assert report["after"] > report["before"] + 0.2
