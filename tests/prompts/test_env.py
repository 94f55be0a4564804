"""A refinement environment that Gymnasium takes for one of its own."""

import subprocess
import sys

import pytest

from clawback.errors import UsageError
from clawback.prompts import Example, Outcome, Prompt, PromptRefinementEnv, ScalarReward


def refine(prompt, action):
    return prompt.with_refinement(action)


def made(**more):
    return PromptRefinementEnv(Prompt("Write a haiku."), refine, ScalarReward(key="score"), **more)


def test_whoever_steps_may_say_what_it_was_worth():
    env = made(max_steps=2)
    assert env.reset(seed=1).observation == "Write a haiku."
    first = env.step("Write a haiku about rain.", info={"score": 0.8})
    observation, reward, terminated, truncated, info = first
    assert (observation, reward, terminated, truncated) == ("Write a haiku about rain.", 0.8, False, False)
    assert info["terms"] == {"score": 0.8}
    assert info["version"] == 1
    last = env.step("Write.", info={"score": 0.1})
    assert last.truncated
    assert last.done
    with pytest.raises(UsageError, match="reset"):
        env.step("More.")
    assert env.reset(options={"prompt": "Other."}).observation == "Other."


def test_or_it_finds_out_by_itself():
    def evaluate(prompt, example):
        return Outcome(float(example.question in prompt.text))

    env = made(evaluate=evaluate, examples=(Example.ask("rain"), Example.ask("snow")), target=1.0)
    env.reset()
    assert env.step("About rain.").reward == 0.5
    ended = env.step("About rain and snow.")
    assert ended.reward == 1.0
    assert ended.terminated


def test_an_action_that_is_void_does_not_end_it():
    def refuses(prompt, action):
        raise UsageError("no")

    env = PromptRefinementEnv(Prompt("A."), refuses, ScalarReward())
    env.reset()
    step = env.step("B.")
    assert (step.observation, step.info["error"]) == ("A.", "no")
    with pytest.raises(UsageError):
        made(max_steps=0)


def test_gymnasium_finds_nothing_wrong_with_it():
    pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    check_env(made(render_mode="ansi"), skip_render_check=True)
    env = made()
    assert env.action_space.sample() in env.action_space
    assert 3 not in env.action_space


def test_without_gymnasium_it_works_by_itself():
    code = """
import sys
sys.modules["gymnasium"] = None
from clawback.prompts import Prompt, PromptRefinementEnv, ScalarReward
env = PromptRefinementEnv(Prompt("A."), lambda p, a: p.with_refinement(a), ScalarReward())
env.reset()
assert env.step("B.", info={"score": 1.0}).reward == 1.0
assert "B" in env.action_space and env.action_space.sample()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_light_parts_need_no_numpy():
    code = """
import sys
sys.modules["numpy"] = None
from clawback.prompts import Prompt, RefinementLoop, PromptHistory, optimize, reflector, evaluator, OpenAIBackend, HybridReward, PromptGenome
from clawback.errors import MissingExtra
import clawback.prompts
for name in ("Critic", "PromptActor", "from_remarks"):
    try:
        getattr(clawback.prompts, name)
    except MissingExtra as error:
        assert "[prompts]'" in str(error)
    else:
        raise SystemExit(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
