"""`clawback env train` and `clawback env episodes`, as they are typed."""

from __future__ import annotations

import json
import time
from pathlib import Path

from clawback import store
from clawback.cli import main
from clawback.records import Branch, Episode, EpisodeStep
from clawback.rollouts.rounds import HeldOutVerdict

AGENTS = Path(__file__).parents[2] / "examples" / "agents"
SMALL = ["--episodes", "4", "--batch", "2", "--held-out", "2", "--max-tokens", "3", "--seed", "1"]


def test_gym_plays_learns_and_says_what_came_of_it(home, monkeypatch, capsys):
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    monkeypatch.chdir(AGENTS)
    assert main(["gym", "colours", "--agent", "colours:ColoursAgent", *SMALL, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["episodes"] == {"completed": 8}
    assert data["verdict"]["environment"] == "colours"
    assert data["run"]["recipe"]["conditions"]["gym"]["agent"] == "colours:ColoursAgent"
    assert not data["live"]
    assert main(["versions", "--report", "1"]) == 0
    assert "held-out tasks of colours" in capsys.readouterr().out
    assert main(["episodes", "list", "--split", "test", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 4
    assert main(["episodes", "show", str(rows[0]["id"])]) == 0
    out = capsys.readouterr().out
    assert "assistant:" in out
    assert "reward" in out
    assert main(["episodes", "show", str(rows[0]["id"]), "--json", "--tokens"]) == 0
    assert json.loads(capsys.readouterr().out)["branches"][0]["ids"]
    assert main(["gym", "--resume", "1"]) == 2
    assert "Run 1 is done" in capsys.readouterr().err


ONE = """
from clawback.environments.core import Observation, Step, Task

class One:
    name = "one"
    def tasks(self, split):
        return [Task("one/1", {}, split)]
    def make(self):
        return World()

class World:
    async def reset(self, task, seed):
        return Observation(({"role": "user", "content": "?"},))
    async def step(self, message):
        return Step((), 1.0, True)
    async def close(self):
        pass
"""


def test_a_single_task_is_not_held_out_and_that_is_said(home, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    (tmp_path / "one.py").write_text(ONE)
    name = f"{tmp_path / 'one.py'}:One"
    notice = "one has one task, which is in both splits: what is measured on it is not held out."
    assert main(["gym", name, "--num-samples", "1", "--max-tokens", "3"]) == 0
    assert notice in " ".join(capsys.readouterr().err.split())
    assert main(["gym", name, *SMALL]) == 0
    assert notice in " ".join(capsys.readouterr().err.split())


def test_lists_and_empty_stores(home, monkeypatch, capsys):
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    assert main(["episodes"]) == 0
    assert "No episodes yet" in capsys.readouterr().out
    with store.connect(home.database) as db:
        branch = Branch((1, 2), (False, True), (0.0, -1.0))
        step = EpisodeStep(0, 1, 2, 0.0, -0.5, True)
        db.add_episodes(
            [Episode("lake", "lake/3", 3, ({"role": "assistant", "content": "Hm"},), (branch,), (step,), "truncated", "40 turns", created_at=time.time())]
        )  # fmt: skip
    assert main(["episodes", "list"]) == 0
    out = capsys.readouterr().out
    assert "1 unread" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert main(["episodes", "show", "1"]) == 0
    assert "unparsable -0.5" in capsys.readouterr().out
    with store.connect(home.database) as db:  # a worked example before the task has a reply of its own
        texts = ({"role": "assistant", "content": text} for text in ("an example", "Hm"))
        db.add_episodes(
            [Episode("lake", "lake/3", 3, tuple(texts), (branch,), (step,), "truncated", "40 turns", created_at=time.time())]
        )  # fmt: skip
    assert main(["episodes", "show", "2"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("an example") < shown.index("Hm") < shown.index("unparsable -0.5")


def test_wrong_usage_is_told(home, monkeypatch, capsys):
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    for arguments, said in (
        (["gym"], "Name what is to be played"),
        (["gym", "x", "--set", "kl"], "NAME=VALUE"),
        (["gym", "nowhere"], "There is no environment"),
        (["gym", "--resume", "9"], "no run 9"),
        (["episodes", "show", "9"], "no episode 9"),
    ):
        assert main(arguments) == 2, arguments
        assert said in capsys.readouterr().err


def test_without_held_out_tasks_no_table_of_nothing_is_shown() -> None:
    reason = "only 0 held-out tasks were played to their ends; 16 are needed to decide"
    verdict = HeldOutVerdict(1, 0, False, 0.5, (reason,), "", 0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert {"before", "after"} < verdict.to_dict().keys(), "the words of verdicts that are stored"
    assert HeldOutVerdict.from_dict(verdict.to_dict()) == verdict
    assert verdict.text() == f"Not accepted: {reason}."
