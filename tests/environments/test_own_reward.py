"""Rewards that no environment gives: a judge's comparison of tries, a person's rules, a function."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback import store
from clawback.environments.core import EnvironmentFailure
from clawback.environments.play import episode
from clawback.environments.policies import Script
from clawback.episode_jobs import playing
from clawback.errors import JudgeError, UsageError
from clawback.feedback import endpoint
from clawback.feedback.endpoint import JudgeAnswer, NoAnswer
from clawback.records import Episode, EpisodeStep, Rule
from clawback.rollouts import group_judge
from clawback.rollouts.group_judge import COMPARE, GroupJudge, read_scores
from clawback.rollouts.own_reward import OwnReward, RulesKept, with_reward
from tests.environments.worlds import Worlds


def attempt(number, reply, reward=None):
    messages = ({"role": "user", "content": "Name a colour."}, {"role": "assistant", "content": reply})
    return Episode("e", "t", 0, messages, (), (EpisodeStep(0, 0, 1, reward),), "completed", number=number)


def by_length(system, material):
    """A judge that gives each try its reply's length as its score."""
    assert system == COMPARE
    tries = re.findall(r"<<TRY (\d+) \w+>>\nassistant: (.*?)\n<<end", material, re.DOTALL)
    return JudgeAnswer(json.dumps({number: min(len(reply), 10) for number, reply in tries}), 1)


def test_worked_examples_are_of_the_task_and_of_no_try():
    example = ({"role": "user", "content": "Name a dish."}, {"role": "assistant", "content": "x" * 9})
    tries = [attempt(n, "x" * n) for n in range(1, 4)]
    tries = [replace(one, messages=(*example, *one.messages)) for one in tries]
    assert GroupJudge(by_length).scores(tries) == [0.1, 0.2, 0.3]


def test_each_try_gets_its_own_score_wherever_it_stood():
    tries = [attempt(n, "x" * n) for n in range(1, 7)]
    assert GroupJudge(by_length).scores(tries) == [n / 10 for n in range(1, 7)]
    places = []

    def watch(system, material):
        places.append(re.findall(r"assistant: (x+)", material))
        return by_length(system, material)

    for first in (10, 20, 30):
        GroupJudge(watch).scores([attempt(first + n, "x" * n) for n in range(1, 7)])
    assert len({tuple(map(len, place)) for place in places}) > 1  # none always stands first


def test_groups_without_a_verdict_are_left_out_and_graded_ones_are_not_asked_about_again():
    asked = []

    def once(system, material):
        asked.append(material)
        return by_length(system, material)

    groups = [
        [attempt(1, "ab"), attempt(2, "abc")],
        [attempt(3, "a", 0.5), attempt(4, "b", 0.1)],
        [attempt(5, "a")],
    ]
    graded = list(GroupJudge(once).grade(groups))
    assert [[e.total for e in group] for group in graded] == [[0.2, 0.3], [0.5, 0.1], []]
    assert len(asked) == 1
    assert list(GroupJudge(lambda *_: JudgeAnswer("All are nice.", 1)).grade(groups[:1])) == [[]]

    def nothing(system, material):
        raise NoAnswer("busy")

    assert GroupJudge(nothing).scores(groups[0]) is None

    def gone(system, material):
        raise JudgeError("no such host")

    with pytest.raises(EnvironmentFailure, match="cannot be asked: no such host"):
        GroupJudge(gone).scores(groups[0])


@given(st.lists(st.floats(0, 10), min_size=1, max_size=6))
def test_scores_are_read_only_where_each_try_has_one(values):
    count = len(values)
    written = {str(n): value for n, value in enumerate(values, 1)}
    assert read_scores(f"So: {json.dumps(written)}", count) == [value / 10 for value in values]
    assert read_scores(json.dumps(written), count + 1) is None
    assert read_scores(json.dumps(written | {"1": 10.5}), count) is None
    assert read_scores(json.dumps(written | {"1": True}), count) is None
    assert read_scores(json.dumps(values), count) is None


def played(environments, reply):
    return asyncio.run(episode(environments, environments.tasks("train")[0], Script(lambda *_: reply)))


def test_rules_reward_the_share_that_is_kept():
    rules = RulesKept((Rule("Be brief.", "words <= 3"), Rule("No questions.", "ends with question = no")))
    worlds = OwnReward(Worlds(turns=1, pay=lambda *_: 7.0), rules)
    assert [played(worlds, reply).reward for reply in ("Red.", "Is it red?", "Is it red or blue?", "")] == [
        1.0,
        0.5,
        0.0,
        0.0,
    ]


def test_a_function_of_ones_own_is_the_reward_and_the_environments_is_left_out(tmp_path):
    (tmp_path / "score.py").write_text(
        "def score(answer, task):\n    return answer.startswith('S')\n\n\ndef odd(answer, wish):\n    return 1\n"
    )
    worlds = with_reward(Worlds(turns=2, pay=lambda *_: 7.0), f"{tmp_path}/score.py:score")
    assert (played(worlds, "Sure").reward, played(worlds, "No").reward) == (1.0, 0.0)
    with pytest.raises(UsageError, match="wants `wish`"):
        with_reward(Worlds(), f"{tmp_path}/score.py:odd")
    with pytest.raises(UsageError, match="Choose judge, rules"):
        with_reward(Worlds(), "best")


def test_rules_without_a_check_reward_nothing_and_say_so(home, monkeypatch):
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    with pytest.raises(UsageError, match="nothing to reward"):
        with_reward(Worlds(), "rules")
    with store.connect(home.database) as db:
        db.add_rule(Rule("Be brief.", "words <= 3", status="believed"))
    assert played(with_reward(Worlds(turns=1), "rules"), "one two three four").reward == 0.0


class Killed(BaseException):
    """As kill -9: nothing tidies up after it."""


def test_a_run_learns_from_comparisons_is_killed_and_asks_about_no_group_twice(home, monkeypatch):
    """Held-out tasks are compared in pairs: before with after."""
    home.config.write_text("[training]\nbackground = false\n")
    asked = []

    def ask(system, material):
        asked.append(material)
        if len(asked) == 3:
            raise Killed
        return by_length(system, material)

    monkeypatch.setattr(endpoint, "configured_judge", lambda: ask)
    monkeypatch.setattr(group_judge, "PARALLEL", 1)
    wish = playing.Wish("rows", episodes=16, groups=4, size=2, held_out=4, max_tokens=3, reward="judge")
    worlds = OwnReward(Worlds(turns=1, pay=lambda *_: 7.0), None)
    with pytest.raises(Killed):
        playing.learn(home, wish, seed=1, worlds=worlds)
    interrupted = len(asked)
    done = playing.learn(home, wish, seed=1, worlds=worlds)
    with store.connect(home.database) as db:
        rewards = [e.steps[-1].reward for e in db.episodes(100)]
    assert len(rewards) == 16 + 2 * 4
    assert all(reward is not None and 0 <= reward <= 1 for reward in rewards)
    assert done.run.recipe["extra"]["estimator"] == "group"
    assert done.verdict.tasks == 4
    assert (
        len(asked) - interrupted == (4 - 2) + 4 + 4
    )  # two groups had their rewards, held-out tasks come in pairs


def test_a_judge_needs_tries_to_compare(home):
    with pytest.raises(UsageError, match="--group 4"):
        playing.learn(home, playing.Wish("rows", reward="judge"), worlds=Worlds())
