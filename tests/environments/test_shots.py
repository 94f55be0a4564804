"""Worked examples before each task: solved by the environment itself, or from a file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from clawback.environments.core import Task
from clawback.environments.play import episode
from clawback.environments.policies import Solution
from clawback.environments.registry import find
from clawback.environments.shots import FewShot
from clawback.environments.tools.environment import EpisodeRules, ToolSet
from clawback.environments.tools.task_rewards import Finished
from clawback.environments.tools.toolbox import DefinedTools
from clawback.errors import NotFound, UsageError


def opening(worlds: Any, task: Task) -> Any:
    async def first() -> Any:
        world = worlds.make()
        try:
            return await world.reset(task, 0)
        finally:
            await world.close()

    return asyncio.run(first())


def named(number: int) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    return {
        "type": "function",
        "function": {"name": f"f{number}", "description": "", "parameters": parameters},
    }


class CallsIt:
    async def __call__(self, done: Finished) -> float:
        return float([call.name for call in done.calls] == [done.task.data["tools"][0]["function"]["name"]])


def with_own_tools() -> ToolSet:
    """Each task has a tool of its own, and asks for it."""
    tasks = [
        Task(f"t{n}", {"prompt": f"Call f{n}.", "tools": [named(n)], "actions": [{"name": f"f{n}", "arguments": {"x": n}}]}, split)
        for n, split in enumerate(["train"] * 6 + ["test"] * 2)
    ]  # fmt: skip
    by_split = {split: [t for t in tasks if t.split == split] for split in ("train", "test")}
    return ToolSet(
        "own",
        by_split,
        lambda task: DefinedTools(task.data["tools"]),
        CallsIt(),
        EpisodeRules(turns=1, one_reply=True),
    )


def test_training_tasks_are_solved_before_each_task_and_no_longer_learned_from() -> None:
    plain, worlds = find("tools:shop"), find("tools:shop", shots="3")
    assert isinstance(worlds, FewShot)
    shown = [one.task for one in worlds.examples]
    assert len(set(shown)) == 3
    assert set(shown) <= {t.id for t in plain.tasks("train")}
    assert [t.id for t in worlds.tasks("train")] == [t.id for t in plain.tasks("train") if t.id not in shown]
    assert list(worlds.tasks("test")) == list(plain.tasks("test"))
    task = plain.tasks("test")[0]
    bare, with_them = opening(plain, task), opening(worlds, task)
    earlier = with_them.messages[1:-1]
    assert (with_them.messages[0], with_them.messages[-1], with_them.tools) == (
        bare.messages[0],
        bare.messages[1],
        bare.tools,
    )
    assert list(earlier) == [m for one in worlds.examples for m in one.messages]
    assert {m["role"] for m in earlier} == {"user", "assistant", "tool"}
    assert [one.messages[-1]["role"] for one in worlds.examples] == ["assistant"] * 3


def test_the_episode_is_the_same_behind_them() -> None:
    worlds = find("tools:shop", shots="2")
    task = worlds.tasks("test")[0]
    known = find("tools:shop").solution(task)  # type: ignore[attr-defined]
    played = asyncio.run(episode(worlds, task, Solution(known)))
    assert played.solved


def test_the_seed_chooses_them() -> None:
    def chosen(seed: int) -> list[str]:
        worlds = find("tools:shop", shots="4", seed=seed)
        assert isinstance(worlds, FewShot)
        return [one.task for one in worlds.examples]

    assert chosen(1) == chosen(1)
    assert chosen(1) != chosen(2)


def test_tools_of_ones_own_stand_before_each_question() -> None:
    worlds = FewShot(with_own_tools(), "2")
    task = worlds.tasks("test")[0]
    opened = opening(worlds, task)
    questions = [m["content"] for m in opened.messages if m["role"] == "user"]
    assert len(questions) == 3
    for question in questions:
        listed, _, asked = question.rpartition("\n\n")
        assert listed.partition("(")[0] == asked.removeprefix("Call ").removesuffix(".")
    assert "<tool_call>" in opened.messages[0]["content"]
    assert opened.tools == ()
    call = {
        "role": "assistant",
        "content": f'<tool_call>{{"name": "f{task.id[1:]}", "arguments": {{"x": 1}}}}</tool_call>',
    }
    assert asyncio.run(episode(worlds, task, Solution([call]))).reward == 1


def test_conversations_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "shots.jsonl"
    said = [{"role": "user", "content": "Which?"}, {"role": "assistant", "content": "Action: 1"}]
    path.write_text(json.dumps({"messages": said}) + "\n")
    worlds = find("gymnasium:FrozenLake-v1", shots=str(path))
    opened = opening(worlds, worlds.tasks("test")[0])
    assert list(opened.messages[1:3]) == said
    assert len(worlds.tasks("train")) == len(find("gymnasium:FrozenLake-v1").tasks("train"))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "has 0 examples"),
        ("nonsense", "neither JSON nor JSON lines"),
        ('{"messages": []}', "example 1"),
        ('{"messages": [{"role": "assistant", "content": "x"}]}', "example 1"),
        ('{"messages": ["x", "y"]}', "example 1"),
        ('{"messages": [{"role": "user", "content": "x"}]}', "example 1"),
    ],
)
def test_a_file_that_holds_none(tmp_path: Path, written: str, said: str) -> None:
    path = tmp_path / "shots.jsonl"
    path.write_text(written)
    with pytest.raises(UsageError, match=said):
        find("tools:shop", shots=str(path))


def test_what_cannot_be_shown_is_said() -> None:
    with pytest.raises(UsageError, match="1 to 32"):
        find("tools:shop", shots="0")
    with pytest.raises(NotFound, match="no file"):
        find("tools:shop", shots="nowhere.jsonl")
    with pytest.raises(UsageError, match="knows no solutions"):
        FewShot(Unsolved(), "2")
    with pytest.raises(UsageError, match="solves 6 of"):
        FewShot(with_own_tools(), "7").tasks("train")


class Unsolved:
    name = "unsolved"

    def tasks(self, split: str) -> list[Task]:
        return []

    def make(self) -> Any:
        raise NotImplementedError
