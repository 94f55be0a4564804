"""An environment as the verifier of somebody's own turns."""

from __future__ import annotations

import pytest

from clawback.environments.verifying import EnvironmentVerifier
from clawback.errors import NotFound, UsageError
from clawback.rewards import verifiers

PARITY = """
from clawback.environments.core import EnvironmentFailure, Observation, Step, Task

class Parity:
    name = "parity"
    def tasks(self, split):
        numbers = range(0, 8) if split == "train" else range(8, 10)
        return [Task(f"parity/{n}", {"n": n}, split) for n in numbers]
    def make(self):
        return Question()

class Question:
    async def reset(self, task, seed):
        self.n = task.data["n"]
        return Observation(({"role": "system", "content": "Be brief."}, {"role": "user", "content": f"Is {self.n}  odd or even?"}))
    async def step(self, message):
        said = message["content"]
        if said == "crash":
            raise EnvironmentFailure("gone")
        if said == "more":
            return Step(({"role": "user", "content": "Go on."},))
        return Step((), 3.0 if said == "much" else -1.0 if said == "none" else float(said == ("odd" if self.n % 2 else "even")), True)
    async def close(self):
        pass
"""


@pytest.fixture
def parity(tmp_path):
    (tmp_path / "parity.py").write_text(PARITY)
    return f"{tmp_path / 'parity.py'}:Parity"


@pytest.mark.parametrize(
    ("prompt", "response", "score"),
    [
        ("Is 3 odd or even?", "odd", 1.0),
        (" Is 3 odd\nor even? ", "even", 0.0),
        ("Is 9 odd or even?", "odd", 1.0),  # held-out tasks are known too
        ("Is 3 odd or even?", "much", 1.0),
        ("Is 3 odd or even?", "none", 0.0),
        ("Is 3 odd or even?", "more", 0.25),
        ("Is 3 odd or even?", "crash", 0.25),
        ("What is jazz?", "odd", 0.25),
    ],
)
def test_a_prompt_that_is_a_task_has_its_reward_and_others_have_no_say(parity, prompt, response, score):
    assert EnvironmentVerifier(parity, otherwise=0.25)(prompt, response) == score


def test_it_is_found_by_its_name(parity):
    one = verifiers.make("environment", {"task": parity})
    assert one("Is 2 odd or even?", "even") == 1.0
    assert one("anything", "even") == 0.5
    assert repr(one) == repr(verifiers.make("environment", {"task": parity}))
    with pytest.raises(UsageError, match="no setting 'tusk'"):
        verifiers.make("environment", {"tusk": parity})
    with pytest.raises(UsageError, match="0 to 1"):
        EnvironmentVerifier(parity, otherwise=2)
    with pytest.raises((NotFound, UsageError)):
        EnvironmentVerifier("no_such_thing")("a", "b")
