"""Votes that a cluster draws are those that one process draws, asked for by many threads, whoever dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from clawback import engine
from clawback.errors import TrainingError
from clawback.extensions.scale.asking import SharedDraw
from clawback.extensions.scale.model_worker import DrawingWorker
from clawback.extensions.scale.process_group import description_of
from clawback.feedback.endpoint import CallBudget
from clawback.jobs.judge_pass import SelfJudge
from clawback.policy.policy import Policy
from tests.scale.crews import Here
from tests.scale.test_episodes import loaded

ASKED = [("Is it good?", f"Answer {number}: - one - two") for number in range(6)]


def crew(policy: Policy, workers: int, dies: int | None = None) -> Here:
    about = description_of(policy, engine.recipe(policy.info))
    return Here(lambda: DrawingWorker(about, 1), workers, dies)


def votes(policy: Policy, draw: SharedDraw | None, threads: int) -> list[list[str]]:
    """Three votes on each text; those of one text are asked for in turn."""
    judge = SelfJudge(policy, CallBudget(1000, 1000.0, 10**6), 12)
    if draw is not None:
        judge.draw = draw
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda asked: [judge(*asked).text for _ in range(3)], ASKED))


@pytest.mark.parametrize(
    "adapter",
    [pytest.param(False, id="the base", marks=pytest.mark.slow), pytest.param(True, id="an adapter")],
)
@pytest.mark.parametrize(
    ("workers", "dies"),
    [
        pytest.param(2, None, id="all live", marks=pytest.mark.slow),
        pytest.param(2, 2, id="one dies"),
        pytest.param(1, 1, id="none left", marks=pytest.mark.slow),
    ],
)
def test_the_votes_are_those_of_one_process(adapter: bool, workers: int, dies: int | None) -> None:
    policy = loaded(adapter)
    alone = votes(policy, None, 1)
    assert len({vote for some in alone for vote in some}) > len(ASKED)
    told: list[Any] = []
    with SharedDraw(crew(policy, workers, dies), policy, told.append) as draw:
        assert votes(policy, draw, 4) == alone
    assert bool(told) == (dies is not None)
    assert bool(draw.here) == (workers == 1)


def test_a_worker_with_another_model_is_heard_by_nobody() -> None:
    policy = loaded(True)
    others = crew(policy, 1)
    with SharedDraw(others, policy) as draw:
        for weights in others.objects.values():
            for name, value in weights.items():
                if "lora_B" in name:
                    value.mul_(-40)
        with pytest.raises(TrainingError, match="log-probs differ"):
            draw(policy.chat.prompt([{"role": "user", "content": "Well?"}]), 12, 1)
