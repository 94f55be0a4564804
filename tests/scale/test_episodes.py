"""Episodes that workers play are those that one process plays, whoever dies; nothing is learned from a worker that goes its own way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from clawback import embedded, engine
from clawback.environments.core import EnvironmentFailure
from clawback.errors import TrainingError
from clawback.extensions.scale.player import PlayingWorker, Scene
from clawback.extensions.scale.process_group import description_of
from clawback.extensions.scale.ray_episodes import ClusterRollouts
from clawback.models.types import Sampling
from clawback.policy import load
from clawback.policy.policy import Policy
from clawback.records import Episode
from clawback.rollouts.concurrent import Play, Rollouts
from clawback.rollouts.rounds import Collector, Dealing
from tests.scale.crews import Here

WORLDS = "tests.environments.worlds:Worlds"
PLAY = Play(together=4, max_tokens=3)


class Breaking:
    """A world on another machine that never opens."""

    def __new__(cls) -> Any:
        from tests.environments.worlds import Worlds

        return Worlds(breaks=lambda *_: True)


def loaded(adapter: bool) -> Policy:
    policy = load(str(embedded.path()), device="cpu", dtype="float32")
    policy.sampling = Sampling(1.0)
    if adapter:
        policy.attach(rank=4, alpha=8, seed=0)
        with torch.no_grad():
            for name, p in policy.model.named_parameters():
                if "lora_B" in name:
                    p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())) * 0.05)
    return policy


def scene(policy: Policy, task: str = WORLDS) -> Scene:
    chat = policy.chat
    where = str(Path.cwd())
    return Scene(
        task, None, "", 0, PLAY, policy.sampling, chat.template_args, chat.system, policy.max_prompt, where
    )


def cluster(policy: Policy, task: str = WORLDS, workers: int = 2, dies: int | None = None) -> ClusterRollouts:
    about, seen = (
        description_of(policy, engine.recipe(policy.info, overrides={"rank": 4})),
        scene(policy, task),
    )
    crew = Here(lambda: PlayingWorker(about, seen, 1), workers, dies)
    return ClusterRollouts(lambda: crew, policy, seen.worlds(), seen)


def played(rollouts: ClusterRollouts) -> list[Episode]:
    done: list[Episode] = []
    while not rollouts.idle:
        done += rollouts.wave()
    return done


def same(here: list[Episode], there: list[Episode]) -> None:
    for one, other in zip(here, there, strict=True):
        assert (one.number, one.task, one.seed, one.messages) == (
            other.number, other.task, other.seed, other.messages
        )  # fmt: skip
        assert [s.reward for s in one.steps] == [s.reward for s in other.steps]
        assert [b.ids for b in one.branches] == [b.ids for b in other.branches]
        for a, b in zip(one.branches, other.branches, strict=True):
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)


@pytest.mark.parametrize(
    ("workers", "dies", "adapter"),
    [
        (2, 1, True),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [(2, 1, False), (1, 0, True), (1, 0, False)]
        ),
        *(pytest.param(2, None, adapter, marks=pytest.mark.slow) for adapter in (False, True)),
    ],
)
def test_the_episodes_are_those_of_one_process(adapter: bool, workers: int, dies: int | None) -> None:
    policy = loaded(adapter)
    told: list[Any] = []
    orders = [
        o for group in range(12) for o in Dealing(scene(policy).worlds().tasks("train"), 3).orders(group)
    ]
    with Rollouts(policy, scene(policy).worlds(), PLAY, sampling=policy.sampling) as alone:
        here = alone.play(orders)
    with cluster(policy, workers=workers, dies=dies) as rollouts:
        rollouts.tell = told.append
        rollouts.start(orders)
        there = played(rollouts)
    same(here, sorted(there, key=lambda e: e.number))
    assert bool(told) == (dies is not None)
    assert bool(rollouts.here) == (workers == 1)


@pytest.mark.slow
def test_episodes_say_which_weights_they_began_with_and_workers_have_those() -> None:
    policy = loaded(True)
    with cluster(policy) as rollouts, Rollouts(policy, scene(policy).worlds(), PLAY) as alone:
        collector = Collector(rollouts, Dealing(rollouts.worlds.tasks("train"), groups=4))
        first = collector(0)
        with torch.no_grad():
            for name, p in policy.model.named_parameters():
                if "lora_B" in name:
                    p.mul_(-2)
        second = collector(1)
        alone.update = 1
        orders = [o for group in range(4, 8) for o in collector.dealing.orders(group)]
        same(alone.play(orders), second)
    assert {s.update for e in first for s in e.steps} == {0}
    assert {s.update for e in second for s in e.steps} == {1}


def test_a_worker_with_other_weights_ends_the_run() -> None:
    policy = loaded(True)
    with cluster(policy) as rollouts:
        rollouts.start(Dealing(rollouts.worlds.tasks("train")).orders(0))
        crew = rollouts._make()
        crew.publish = lambda *_: None  # type: ignore[method-assign]
        with pytest.raises(TrainingError, match="other weights"):
            rollouts.wave()


def test_worlds_that_break_everywhere_stop_the_playing_and_are_no_reward_of_zero() -> None:
    policy = loaded(False)
    with cluster(policy, "tests.scale.test_episodes:Breaking") as rollouts:
        kept: list[Episode] = []
        rollouts.on_episodes = kept.extend
        rollouts.start(
            o for group in range(12) for o in Dealing(rollouts.worlds.tasks("train")).orders(group)
        )
        with pytest.raises(EnvironmentFailure, match="the environment failed"):
            played(rollouts)
    assert kept
    assert {e.status for e in kept} == {"failed"}
    assert not any(e.steps for e in kept)
