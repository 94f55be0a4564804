"""What an episode of tool calls was worth."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.environments.core import EnvironmentFailure, Task
from clawback.environments.tools import task_rewards
from clawback.environments.tools.calls import Call
from clawback.environments.tools.toolbox import Functions
from clawback.errors import UsageError
from clawback.feedback.endpoint import JudgeAnswer as Said
from clawback.feedback.endpoint import NoAnswer


@pytest.mark.parametrize(
    ("reply", "expected", "same"),
    [
        ("#### 42", "42", True),
        ("so 6 * 7 = 42.", "42", True),
        ("It costs $1,200.50", "1200.5", True),
        ("\\boxed{-3}", "-3", True),
        ("\\boxed{41} or rather \\boxed{42}, from 17", "42", True),
        ("Answer: 42 apples, as 6 times 7", "42", True),
        ("<answer>42</answer> (not 43)", "42", True),
        ("42 is wrong, it is 43", "42", False),
        ("forty-two", "42", False),
        ("", "42", False),
        ("1e3", "1000", True),
        ("9" * 5000, "42", False),
        ("The answer is Paris.", "paris", True),
        ("  paris ", "Paris", True),
        ("Paris or London", "Paris", False),
    ],
)
def test_answers_are_compared_as_people_mean_them(reply: str, expected: str, same: bool) -> None:
    assert task_rewards.same_answer(reply, expected) is same


@pytest.mark.parametrize(
    ("reply", "outputs", "told"),
    [
        ("It costs 12.", ["12"], True),
        ("It costs 120.", ["12"], False),
        ("1,200 in all", ["1200"], True),
        ("12.5", ["12"], False),
        ("A LAMP for 7", ["lamp", "7"], True),
        ("lamps for 7", ["lamp", "7"], False),
        (" ".join(map(str, range(60))), ["12"], False),
        ("anything", [], True),
    ],
)
def test_what_must_be_told_is_told_in_words_of_its_own(reply: str, outputs: list[str], told: bool) -> None:
    assert task_rewards.tells(reply, outputs) is told


def finished(
    answer: str, data: dict[str, Any], state: Any = None, fresh: Any = None, calls: tuple[Call, ...] = ()
) -> task_rewards.Finished:
    asked = {"role": "user", "content": data.get("prompt", "")}
    said = {"role": "assistant", "content": answer}
    return task_rewards.Finished(
        Task("t", data), (asked, said), calls, answer, state, 0, fresh or (lambda: Functions())
    )


def worth(reward: task_rewards.TaskReward, episode: task_rewards.Finished) -> float:
    return asyncio.run(reward(episode))


class Switch:
    def __init__(self) -> None:
        self.on = False

    def flip(self) -> str:
        self.on = not self.on
        return "ok"

    def stuck(self) -> str:
        raise ValueError("stuck")

    def state(self) -> dict[str, bool]:
        return {"on": self.on}


def test_any_way_to_the_same_end_counts_and_a_broken_reference_is_no_reward() -> None:
    def fresh() -> Functions:
        return Functions(owner=Switch())

    flip = {"actions": [{"name": "flip"}], "outputs": ["on"]}
    assert worth(task_rewards.EndState(), finished("It is on.", flip, {"on": True}, fresh)) == 1.0
    assert worth(task_rewards.EndState(), finished("It is on.", flip, {"on": False}, fresh)) == 0.0
    assert worth(task_rewards.EndState(), finished("Done.", flip, {"on": True}, fresh)) == 0.0
    twice = {"actions": [{"name": "flip"}, {"name": "flip"}]}
    assert worth(task_rewards.EndState(), finished("", twice, {"on": False}, fresh)) == 1.0
    with pytest.raises(EnvironmentFailure, match="reference action stuck fails"):
        worth(task_rewards.EndState(), finished("", {"actions": [{"name": "stuck"}]}, {"on": False}, fresh))


WARM = {"name": "heat", "arguments": {"room": "hall", "degrees": 20}}
BRIGHT = {"name": "light", "arguments": {"room": "hall"}}


@pytest.mark.parametrize(
    ("actions", "calls", "share"),
    [
        ([WARM], [("heat", {"room": "hall", "degrees": 20})], 1),
        ([WARM], [("heat", {"room": "attic", "degrees": 20})], 2 / 3),
        ([WARM], [("heat", {"room": "hall", "degrees": "20"})], 2 / 3),
        ([WARM], [("heat", {})], 1 / 3),
        ([WARM], [("heat", {"room": "hall", "degrees": 20, "fan": True})], 3 / 4),
        ([WARM], [("light", {"room": "hall", "degrees": 20})], 0),
        ([WARM], [], 0),
        ([WARM, BRIGHT], [("light", {"room": "hall"}), ("heat", {"room": "hall", "degrees": 20})], 1),
        ([WARM, BRIGHT], [("light", {"room": "hall"})], 1 / 2),
        ([BRIGHT], [("heat", {}), ("light", {"room": "hall"}), ("light", {"room": "attic"})], 1 / 3),
        ([BRIGHT, BRIGHT], [("light", {"room": "hall"})], 1 / 2),
        ([{"name": "flip"}], [("flip", {})], 1),
        ([], [], 1),
        ([], [("flip", {})], 0),
    ],
)
def test_a_call_that_is_partly_right_is_worth_a_part(
    actions: list[dict[str, Any]], calls: list[tuple[str, dict[str, Any]]], share: float
) -> None:
    made = tuple(Call(name, arguments) for name, arguments in calls)
    episode = finished("", {"actions": actions}, calls=made)
    assert worth(task_rewards.Calls(), episode) == pytest.approx(share)


_arguments = st.dictionaries(st.sampled_from("ab"), st.sampled_from([1, True, "1", None]))
_calls = st.lists(st.tuples(st.sampled_from(["heat", "light"]), _arguments), max_size=4)


@given(_calls, _calls)
def test_only_the_very_calls_are_worth_everything(
    wanted: list[tuple[str, dict[str, Any]]], made: list[tuple[str, dict[str, Any]]]
) -> None:
    actions = [{"name": name, "arguments": arguments} for name, arguments in wanted]
    got = worth(
        task_rewards.Calls(), finished("", {"actions": actions}, calls=tuple(Call(n, a) for n, a in made))
    )
    assert 0 <= got <= 1
    same = sorted(map(task_rewards.digest, wanted)) == sorted(map(task_rewards.digest, made))
    assert (got == pytest.approx(1)) is same


def test_states_are_equal_whatever_the_order_of_their_keys() -> None:
    assert task_rewards.digest({"a": 1, "b": [1, 2]}) == task_rewards.digest({"b": [1, 2], "a": 1})
    assert task_rewards.digest({"a": 1}) != task_rewards.digest({"a": "1"})
    assert task_rewards.digest("\ud800") != task_rewards.digest("")


def test_verifiers_take_fields_of_the_task() -> None:
    reward = task_rewards.Verified("regex", {"pattern": "{wanted}", "full": True})
    assert worth(reward, finished("abc", {"wanted": "a.c"})) == 1.0
    assert worth(reward, finished("abcd", {"wanted": "a.c"})) == 0.0


def test_a_judge_grades_and_silence_is_no_grade() -> None:
    heard: list[str] = []

    def judge(system: str, user: str) -> Said:
        heard.append(user)
        return Said("Fine. \\boxed{10}" if "otter" in user else "\\boxed{1}", 10)

    def mute(system: str, user: str) -> Said:
        raise NoAnswer("the judge's answer holds no verdict")

    assert (
        worth(
            task_rewards.JudgeReward(judge, "names an animal"), finished("An otter.", {"prompt": "Name one."})
        )
        == 1.0
    )
    assert "names an animal" in heard[0]
    assert "Name one." in heard[0]
    assert worth(task_rewards.JudgeReward(judge), finished("No.", {"prompt": "Name one."})) == 0.0
    with pytest.raises(EnvironmentFailure, match="Nobody judged"):
        worth(task_rewards.JudgeReward(mute), finished("No.", {}))


def test_weights() -> None:
    both = task_rewards.Weighted(
        [(task_rewards.AnswerReward(), 3.0), (task_rewards.Verified("regex", {"pattern": "please"}), 1.0)]
    )
    assert worth(both, finished("42", {"answer": "42"})) == 0.75
    with pytest.raises(UsageError):
        worth(task_rewards.Weighted([(task_rewards.AnswerReward(), 0.0)]), finished("42", {"answer": "42"}))
