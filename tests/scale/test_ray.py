"""Two Ray nodes on this machine draw and play what one process would have; one of them is killed, and the version comes out."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from clawback import config, embedded, engine, jobs, store
from clawback.episode_jobs import playing
from clawback.extensions.scale import ray_drawing
from clawback.extensions.scale.ray_sampler import RaySampler
from clawback.feedback.endpoint import CallBudget
from clawback.jobs import judge_pass
from clawback.paths import Home
from clawback.policy import load
from clawback.policy.policy import Policy
from clawback.records import Sample
from tests.conftest import rate_some
from tests.scale.test_asking import ASKED
from tests.scale.test_process_group import samples

pytestmark = pytest.mark.slow
ray = pytest.importorskip("ray", reason="Ray is not installed: make test-ray")
WEIGHT = 2e-3
"""Answers drawn in other batches are the same answers with log-probs that differ by rounding, and Adam's first steps are as large for a small
gradient as for a large one. The largest weights are about 0.2."""


def ports() -> dict[str, int]:
    """Free ones for what a node's agents listen on."""
    names = (
        "metrics_agent_port",
        "metrics_export_port",
        "runtime_env_agent_port",
        "dashboard_agent_listen_port",
    )
    held = [socket.socket() for _ in names]
    for one in held:
        one.bind(("127.0.0.1", 0))
    found = [int(one.getsockname()[1]) for one in held]
    for one in held:
        one.close()
    return dict(zip(names, found, strict=True))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # On a busy machine Ray gives up waiting until its agents say their ports: they are told theirs, and it waits longer.
    monkeypatch.setenv("RAY_agent_register_timeout_ms", "240000")
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "240")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 100 << 20}
    made = Cluster(initialize_head=True, head_node_args={**node, **ports(), "include_dashboard": False})
    made.second = made.add_node(**node, **ports())
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


def recipe(policy: Policy) -> engine.Recipe:
    made = engine.recipe(policy.info, algorithm="rollouts", overrides={"rank": 4})
    small = {"rounds": 3, "prompts": 4, "samples": 4, "round_steps": 2, "grounding": 32}
    return dataclasses.replace(made, extra={**made.extra, **small})


def rated() -> list[Sample]:
    return [dataclasses.replace(one, reward=1.0 if "- " in one.response else -1.0) for one in samples()]


def run(out: Path, sampler: Any = None, tell: Any = None) -> tuple[dict[str, torch.Tensor], Any]:
    policy = load(str(embedded.path()), device="cpu", dtype="float32")
    done = engine.train(policy, rated(), recipe(policy), seed=2, out=out, sampler=sampler, on_progress=tell)
    return load_file(Path(done.path) / "adapter_model.safetensors"), done


def test_one_of_two_nodes_is_killed_and_the_adapter_is_that_of_one_process(
    cluster: Any, tmp_path: Path
) -> None:
    here, alone = run(tmp_path / "here")
    policy = load(str(embedded.path()), device="cpu", dtype="float32")
    told: list[dict[str, Any]] = []
    killed: list[int] = []
    with RaySampler(cluster.address, recipe(policy), tell=told.append) as sampler:

        def kill(progress: Any) -> None:
            if progress["phase"] == "train" and progress["step"] == 2 and not killed:
                assert sampler.crew is not None
                assert sampler.crew.count == 2
                killed.append(2)
                cluster.remove_node(cluster.second, allow_graceful=False)

        there, done = run(tmp_path / "there", sampler, kill)
        assert killed
        assert sampler.crew is not None
        assert sampler.crew.lost >= 1
        assert sampler.here < sampler.drawn  # a worker that was left went on
        assert sampler.gap < 1e-3
    assert any("were lost" in str(one.get("text")) for one in told)
    assert done.steps == alone.steps
    assert [row["reward"] for row in done.history] == pytest.approx(
        [row["reward"] for row in alone.history], abs=1e-3
    )
    assert max(float((here[name] - there[name]).abs().max()) for name in here) < WEIGHT


def test_the_command_makes_a_version_with_a_cluster(cluster: Any, home: Home) -> None:
    rate_some(home, 24)
    config.save(home.config, {"training": {"algorithm": "rollouts", "overrides": {"rank": 4}}})
    outcome = jobs.train_once(home, ray=(cluster.address, 0))
    assert outcome.run.status == "done"
    assert outcome.report.reasons
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_a_node_that_plays_is_killed_and_the_run_learns_from_the_same_episodes(
    cluster: Any, tmp_path: Path
) -> None:
    wish = playing.Wish(
        "tests.environments.worlds:Worlds", episodes=24, groups=8, held_out=8, max_tokens=3, together=8
    )
    homes = Home(tmp_path / "here"), Home(tmp_path / "there")
    for home in homes:
        home.create()
        home.config.write_text('[model]\ndtype = "float32"\n[training]\nbackground = false\n')
    killed: list[str] = []
    told: list[dict[str, Any]] = []

    def kill(progress: Any) -> None:
        told.append(progress)
        if progress["phase"] == "train" and progress["step"] == 1 and not killed:
            killed.append("")
            cluster.remove_node(cluster.second, allow_graceful=False)

    here = playing.learn(homes[0], wish, seed=1)
    there = playing.learn(homes[1], wish, seed=1, ray=(cluster.address, 2), on_progress=kill)
    assert killed
    assert any("were lost" in str(one.get("text")) for one in told)
    assert there.counts == here.counts == {"completed": 24 + 8 + 8}

    def heard(home: Home) -> list[Any]:
        with store.connect(home.database) as db:
            return sorted((e.number, e.task, e.total, str(e.messages)) for e in db.episodes(100))

    # Rounding may tip a draw once weights have been learned; what was played before that is the same word for word.
    rows = list(zip(heard(homes[0]), heard(homes[1]), strict=True))
    first = [(a, b) for a, b in rows if a[0] < 8 or playing.BEFORE <= a[0] < playing.AFTER]
    assert len(first) == 16
    assert all(a == b for a, b in first)
    one, other = (load_file(Path(p.version.path) / "adapter_model.safetensors") for p in (here, there))
    assert max(float((one[name] - other[name]).abs().max()) for name in one) < 5 * WEIGHT


def test_a_node_that_judges_is_killed_and_the_votes_are_those_of_one_process(cluster: Any) -> None:
    def judge() -> judge_pass.SelfJudge:
        policy = load(str(embedded.path()), device="cpu", dtype="float32")
        return judge_pass.SelfJudge(policy, CallBudget(1000, 1000.0, 10**6), 12)

    def vote(on: judge_pass.SelfJudge, asked: tuple[str, str]) -> list[str]:
        return [on(*asked).text for _ in range(4)]

    alone, together = judge(), judge()
    expected = [vote(alone, asked) for asked in ASKED]
    told: list[Any] = []
    with (
        ray_drawing.judging(together, (cluster.address, 0), told.append) as at_once,
        ThreadPoolExecutor(at_once) as pool,
    ):
        assert at_once == 4  # two machines, two answers ahead each
        begun = [pool.submit(vote, together, asked) for asked in ASKED]
        begun[0].result()
        cluster.remove_node(cluster.second, allow_graceful=False)
        assert [one.result() for one in begun] == expected
    assert any("were lost" in str(one.get("text")) for one in told)
