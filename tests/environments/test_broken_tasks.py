"""One task that breaks or hangs is one task that failed: the others are played, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from clawback.environments import play, policies, registry
from clawback.environments.core import Observation, Split, Step, Task
from clawback.environments.episode_loop import Order
from clawback.environments.validate import validate
from clawback.errors import ClawbackError, NotFound
from clawback.rollouts.concurrent import Play, Rollouts

FOREVER = threading.Event()
"""Never set."""


class Broken:
    """Tasks by the way in which they break; `good` ones say 1."""

    name = "broken"

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds
        self.making = iter(kinds)

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{n}-{kind}", {"kind": kind}, split) for n, kind in enumerate(self.kinds)]

    def make(self) -> World:
        return World()

    def solution(self, task: Task) -> Sequence[Any]:
        if task.data["kind"] == "no solution":
            raise KeyError("answer")
        return [{"role": "assistant", "content": "42"}]


class World:
    kind = ""

    async def reset(self, task: Task, seed: int) -> Observation:
        self.kind = task.data["kind"]
        if self.kind == "raises at reset":
            raise KeyError("field")
        if self.kind == "hangs at reset":
            await asyncio.sleep(3600)
        return Observation(({"role": "user", "content": "?"},))

    async def step(self, message: Any) -> Step:
        match self.kind:
            case "raises":
                raise ZeroDivisionError("division by zero")
            case "refuses":
                raise NotFound("There is no such row.")
            case "hangs":
                await asyncio.sleep(3600)
            case "hangs in a thread":
                await asyncio.to_thread(FOREVER.wait)
            case "blocks":
                FOREVER.wait()
            case "no step":
                return None  # type: ignore[return-value]
        return Step((), float(message["content"] == "42"), True)

    async def close(self) -> None:
        if self.kind == "raises at close":
            raise OSError("gone")


KINDS = ("raises", "refuses", "raises at reset", "hangs", "hangs at reset", "hangs in a thread", "no step", "no solution")  # fmt: skip


def played(*kinds: str) -> dict[str, play.PlayedEpisode]:
    found = Broken(*kinds)
    episodes = asyncio.run(
        play.play(
            found, found.tasks("test"), policies.Reference(found), play.PlaySettings(seconds=0.3, together=4)
        )
    )
    return {one.task.data["kind"]: one for one in episodes}


def test_one_broken_task_is_one_failed_task() -> None:
    """The others are played; a failure has no reward, and says why."""
    episodes = played("good", *KINDS, "raises at close")
    assert {kind for kind, one in episodes.items() if one.reward == 1.0} == {"good", "raises at close"}
    assert {kind for kind, one in episodes.items() if one.stop == "failed" and one.reward is None} == set(
        KINDS
    )
    assert all(episodes[kind].error for kind in KINDS)
    assert "ZeroDivisionError" in episodes["raises"].error
    assert "did not answer within" in episodes["hangs"].error


def test_one_that_blocks_its_loop_does_not_take_the_others_along() -> None:
    episodes = played("blocks", *["good"] * 1, "raises")
    assert episodes["blocks"].stop == "failed"
    assert episodes["good"].reward == 1.0


def test_validate_goes_on() -> None:
    found = Broken("good", *KINDS)
    checks = asyncio.run(validate(found, found.tasks("test"), seconds=0.3))
    assert [check.problem == "" for check in checks] == [True] + [False] * len(KINDS)


def test_a_run_goes_on(policy: Any) -> None:
    """Episodes of a training run, too: failed ones have no reward, and the run is not held up."""
    found = Broken(*["good"] * 9, "raises", "hangs", "blocks")
    tasks = found.tasks("train")
    how = Play(together=12, max_turns=1, max_tokens=2, retries=0, patience=0.05, timeout=0.5)
    with Rollouts(policy, found, how) as rollouts:
        episodes = rollouts.play([Order(n, task, 0, 0, n) for n, task in enumerate(tasks)])
    status = {episode.task.partition("-")[2]: episode.status for episode in episodes}
    assert (status["raises"], status["hangs"], status["blocks"]) == ("failed", "failed", "failed")
    assert all(not episode.steps for episode in episodes if episode.status == "failed")


def test_a_function_of_ones_own_that_fails_is_a_sentence() -> None:
    found = Broken("good")

    def bot(messages: Any, tools: Any) -> str:
        raise ValueError("no idea")

    with pytest.raises(ClawbackError, match="function failed on 0-good: ValueError: no idea"):
        asyncio.run(play.play(found, found.tasks("test"), policies.Script(bot)))


def test_a_thread_that_hangs_does_not_keep_the_process(tmp_path: Path) -> None:
    """`env eval` on an environment of one's own whose function never returns comes to its end."""
    (tmp_path / "mine.py").write_text(
        "import threading\n"
        "def hang() -> str:\n"
        '    """Hang."""\n'
        "    threading.Event().wait()\n"
        "    return ''\n"
    )
    (tmp_path / "mine.toml").write_text(
        'functions = ["mine.py:hang"]\nreward = "end-state"\n'
        '[[tasks]]\nprompt = "Hang."\nactions = [{name = "hang", arguments = {}}]\n'
        '[[tasks]]\nprompt = "Do nothing."\nactions = []\n'
    )
    command = [sys.executable, "-m", "clawback", "env", "eval", "tools:mine.toml", "--policy", "reference",
               "--answer-seconds", "0.5", "--split", "train", "--json"]  # fmt: skip
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        env={"HOME": str(tmp_path), "CLAWBACK_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stdout, done.stderr
    assert json.loads(done.stdout)["name"] == "tools:mine"


# ---- splits


@pytest.mark.parametrize("count", range(1, 30))
@pytest.mark.parametrize("start", ["a", "task-", "x/"])
def test_no_split_is_empty(count: int, start: str) -> None:
    from clawback.environments.world_helpers import share_out

    names = [f"{start}{n}" for n in range(count)]
    shared = share_out(dict.fromkeys(names, ""))
    assert shared["train"]
    assert shared["test"]
    if count > 1:
        assert sorted(shared["train"] + shared["test"]) == sorted(names)
    again = share_out(dict.fromkeys(reversed(names), ""))
    assert {split: set(ids) for split, ids in again.items()} == {s: set(ids) for s, ids in shared.items()}


def test_what_tasks_say_of_their_split_counts() -> None:
    from clawback.environments.world_helpers import share_out, split_rows

    assert share_out({"a": "test", "b": "test"}) == {"train": [], "test": ["a", "b"]}
    assert share_out({"a": "test", "b": ""}) == {"train": ["b"], "test": ["a"]}
    assert share_out({"a": "train", "b": ""}) == {"train": ["a"], "test": ["b"]}
    assert share_out({"a": "", "b": ""}, held_out=0) == {"train": ["a", "b"], "test": []}
    by_split = split_rows("x", [{"id": 1, "split": "train"}, {"id": 1, "split": "test"}])
    assert [len(by_split[split]) for split in ("train", "test")] == [1, 1]


def test_ones_own_first_task_is_validated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The documented first command, on a folder with one task."""
    from clawback.cli import main
    from tests.environments.terminal.test_terminal import folder

    folder(tmp_path / "tasks" / "first")
    solution = tmp_path / "tasks" / "first" / "solution" / "solve.sh"
    solution.parent.mkdir()
    solution.write_text("true\n")
    found = registry.find(f"terminal:{tmp_path / 'tasks'}")
    assert [t.id for t in found.tasks("test")] == [t.id for t in found.tasks("train")] == ["first"]
    monkeypatch.setenv("CLAWBACK_HOME", str(tmp_path / "home"))
    assert (
        main(["env", "validate", f"terminal:{tmp_path / 'tasks'}", "--json"]) == 1
    )  # its check asks for nothing
    output = capsys.readouterr()
    assert "one task, which is in both splits" in output.err
    assert "saying nothing scores 1 as well" in output.out


# ---- a few episodes to look at


def test_samples_of_a_set_without_training_tasks_are_a_sentence(tmp_path: Path) -> None:
    from clawback.episode_jobs import episode_runs
    from clawback.errors import UsageError
    from clawback.paths import Home

    (tmp_path / "held.toml").write_text('[[tasks]]\nprompt = "x"\nanswer = "1"\nsplit = "test"\n')
    wish = episode_runs.Wish(f"tools:{tmp_path}/held.toml")
    with pytest.raises(UsageError, match="no tasks to learn from"):
        episode_runs.samples(Home(tmp_path / "home"), wish, 2)


def test_samples_that_all_failed_are_summed_up() -> None:
    from clawback.records import Episode
    from clawback.training_commands.gym import _samples

    failed = Episode(
        environment="e",
        task="t",
        seed=0,
        messages=(),
        branches=(),
        steps=(),
        status="failed",
        stop_reason="gone",
    )
    assert "1 failed: their environments broke" in _samples([failed])
    assert "none played to its end" in _samples([failed])
    assert "0 episodes" in _samples([])
