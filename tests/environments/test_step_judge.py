"""A judge's votes on single replies: added in training, never to what held-out tasks return."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from clawback.environments.core import EnvironmentFailure
from clawback.environments.play import PlayedEpisode, episode
from clawback.environments.policies import Script
from clawback.episode_jobs.episode_runs import Wish
from clawback.errors import JudgeError, UsageError
from clawback.feedback.endpoint import JudgeAnswer, NoAnswer
from clawback.rollouts.step_judge import StepJudged
from tests.environments.worlds import Worlds

TURNS = 3


def reply(messages: list[Any], tools: Any) -> str:
    return {1: "good", 2: "bad", 3: "unclear"}[sum(m["role"] == "user" for m in messages)]


def judge(system: str, user: str) -> JudgeAnswer:
    """Likes replies of "good", dislikes "bad", and does not keep to its form where a reply is "unclear"."""
    assert "next state" in system
    said = user.split("<<ANSWER")[1].split("<<end")[0].splitlines()[1]
    return JudgeAnswer({"good": r"\boxed{1}", "bad": r"\boxed{-1}"}.get(said, "Who knows."), 10)


def played(ask: Any, split: Any = "train", weight: float = 0.5) -> PlayedEpisode:
    worlds = StepJudged(Worlds(turns=TURNS, pay=lambda said, _: float(said == "unclear")), ask, weight)
    return asyncio.run(episode(worlds, worlds.tasks(split)[0], Script(reply)))


def steps(ask: Any) -> list[Any]:
    async def walk() -> list[Any]:
        worlds = StepJudged(Worlds(turns=TURNS, pay=lambda said, _: float(said == "unclear")), ask, 0.5)
        world = worlds.make()
        await world.reset(worlds.tasks("train")[0], 0)
        return [
            await world.step({"role": "assistant", "content": said}) for said in ("good", "bad", "unclear")
        ]

    return asyncio.run(walk())


def test_votes_are_added_step_by_step_and_what_cannot_be_read_adds_nothing() -> None:
    found = steps(judge)

    assert [step.reward for step in found] == [0.5, -0.5, 1.0]
    assert [step.info for step in found] == [{"judge": 1.0}, {"judge": -1.0}, {"unjudged": True}]


def test_the_judge_sees_the_task_what_led_here_the_reply_and_what_came_back() -> None:
    seen: list[str] = []

    def watch(system: str, user: str) -> JudgeAnswer:
        seen.append(user)
        return judge(system, user)

    steps(watch)

    for part in ("system: Play.", "user: Begin", "assistant: good", "user: Row 1"):
        assert part in seen[1].split("<<ANSWER")[0]
    assert "user: Row 2" in seen[1].split("<<NEXT STATE")[1]
    assert "The episode is over." in seen[2].split("<<NEXT STATE")[1]


def test_held_out_tasks_return_what_the_environment_says_and_nobody_is_asked() -> None:
    def never(system: str, user: str) -> JudgeAnswer:
        raise AssertionError("asked")

    assert played(never, "test").reward == 1.0


def test_a_judge_that_fails_once_is_no_vote_and_one_that_cannot_be_asked_is_no_reward() -> None:
    def silent(system: str, user: str) -> JudgeAnswer:
        raise NoAnswer("timed out")

    def away(system: str, user: str) -> JudgeAnswer:
        raise JudgeError("the judge answers with 401")

    assert played(silent).reward == 1.0
    broken = played(away)
    assert broken.reward is None
    assert "cannot be asked: the judge answers with 401" in broken.error
    with pytest.raises(EnvironmentFailure):
        steps(away)


def test_a_run_that_wants_one_needs_one(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"set \[judge\] api"):
        Wish("tools:shop", judge_steps=0.5).worlds(0)
