"""reasoning-gym: questions that are the same by their number, held out ones that training has not, answers scored."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("reasoning_gym")

from clawback.environments import registry
from clawback.environments.validate import validate
from clawback.errors import UsageError
from tests.environments.playing import walk

LEGS = "reasoning-gym:leg_counting"


def test_known_answers_score_one_and_silence_does_not() -> None:
    legs = registry.find(LEGS)
    checks = asyncio.run(validate(legs, legs.tasks("test")[:10]))
    assert [(c.solved, c.problem) for c in checks] == [(True, "")] * 10


def test_no_held_out_question_is_learned_from() -> None:
    small = registry.find("reasoning-gym:basic_arithmetic?tasks=200&held_out=100&max_terms=2&max_digits=1")

    def asked(split: str) -> set[str]:
        found = set()
        for task in small.tasks(split):  # type: ignore[arg-type]
            opened, _ = asyncio.run(walk(small, task, []))
            found.add(opened.messages[-1]["content"])
        return found

    assert asked("test")
    assert not asked("test") & asked("train")


def test_an_answer_without_tags_counts_and_is_marked() -> None:
    legs = registry.find(LEGS)
    task = legs.tasks("train")[0]
    right = legs.solution(task)[0]["content"]  # type: ignore[attr-defined]
    bare = right.removeprefix("<answer>").removesuffix("</answer>")
    for reply, reward, marked in (
        (right, 1.0, None),
        (bare, 1.0, True),
        ("<answer>7</answer> or " + right, 1.0, None),
    ):
        _, [step] = asyncio.run(walk(legs, task, [reply]))
        assert (step.reward, step.info.get("unparsable"), step.done) == (reward, marked, True)
    _, [step] = asyncio.run(walk(legs, task, ["<answer>-1</answer>"]))
    assert step.reward is not None
    assert step.reward < 0.5


def test_wrong_settings_are_a_sentence() -> None:
    with pytest.raises(UsageError, match="cannot make leg_counting"):
        registry.find(f"{LEGS}?wings=2")
