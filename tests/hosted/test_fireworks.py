"""A run on Fireworks' routes over real HTTP: the adapter of the run in this process, whatever fails, and nothing left behind that costs."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import uvicorn
from safetensors.torch import load_file

from clawback import embedded
from clawback.errors import Stopped
from clawback.extensions.hosted import fireworks, fireworks_machines, hosted_training
from clawback.extensions.hosted.remote_policy import RemotePolicy
from clawback.extensions.hosted.request_journal import Cap
from clawback.extensions.hosted.trainer_http import Wire
from clawback.extensions.hosted.trainer_records import CapReached, HostedError, Prices, ServiceUnanswered
from clawback.extensions.trainer_server.around import Faults
from clawback.extensions.trainer_server.fireworks_app import ACCOUNT, FireworksCloud, FireworksService, make
from clawback.extensions.trainer_server.lora_weights import StandInLearner
from clawback.models.loading import load_tokenizer
from clawback.policy.policy import Policy
from clawback.trainer import TrainingRun, ignore
from tests.hosted.conftest import KEY
from tests.hosted.test_training import WEIGHTS, here, recipe, same, samples

MODEL = "accounts/fireworks/embedded"
SHAPE = "accounts/fireworks/trainingShapes/embedded"


class Running:
    def __init__(self, policy: Policy, folder: Path, faults: Faults | None = None) -> None:
        self.service = FireworksService(StandInLearner(policy), MODEL, folder)
        self.cloud = FireworksCloud(self.service, KEY)
        self.app = make(self.cloud, faults)
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.server = uvicorn.Server(uvicorn.Config(self.app, log_level="critical", access_log=False))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]}, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(30)
        self.service.close()


@pytest.fixture
def cloud(policy: Policy, tmp_path: Path) -> Iterator[Running]:
    running = Running(policy, tmp_path / "cloud")
    yield running
    running.close()


def there(
    server: Running, out: Path, steps: int = 5, rate: float | None = None, tell: Any = None, **how: Any
) -> tuple[dict[str, torch.Tensor], Any]:
    where = hosted_training.Where(server.url, KEY, MODEL, pause=0.001, timeout=60.0, shape=SHAPE, **how)
    remote = RemotePolicy(*load_tokenizer(str(embedded.path())))
    made = recipe(steps=steps, **({"learning_rate": rate} if rate else {}))
    run = TrainingRun(remote, samples(), made, seed=5, out=out, tell=tell or ignore)
    done = hosted_training.train(run, where)
    return load_file(Path(done.path) / WEIGHTS), done


def nothing_left(server: Running) -> bool:
    return not (server.cloud.jobs or server.cloud.deployments or server.cloud.models)


def test_the_adapter_is_that_of_the_run_in_process_and_all_is_deleted(
    cloud: Running, other: Policy, tmp_path: Path
) -> None:
    away, done = there(cloud, tmp_path / "away")
    assert same(away, here(other, recipe(), tmp_path / "here")) == 0.0
    assert done.steps == 5
    trainer, sampler = cloud.cloud.created
    assert trainer == sampler  # the trainer first, the sampler linked to it under the same name
    assert nothing_left(cloud)
    assert cloud.cloud.deleted[-1] == trainer


@pytest.mark.slow
def test_a_third_of_the_answers_fails_and_no_job_is_made_twice(
    cloud: Running, other: Policy, tmp_path: Path
) -> None:
    want, _ = there(cloud, tmp_path / "calm")
    bad = Running(other, tmp_path / "bad-cloud", Faults(0.3, seed=2))
    try:
        got, done = there(bad, tmp_path / "bad", save_every=3)
        assert done.metrics["hosted_repeated"] > 5
        assert same(got, want) == 0.0
        assert len(bad.cloud.created) == 2
        assert nothing_left(bad)
        bill, paid = bad.service.bill, cloud.service.bill
        assert (bill.train, bill.prefill - paid.prefill < 200) == (
            paid.train,
            True,
        )  # a sample may be drawn again
    finally:
        bad.close()


@pytest.mark.slow
def test_killed_it_goes_on_with_the_same_job(
    cloud: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    want, _ = there(cloud, tmp_path / "whole")
    paid = cloud.service.bill.train

    class Killed(BaseException):
        pass

    real = fireworks.FireworksTrainer._future
    left = {f"{phase}:{step}:0": True for phase, step in (("learn", 1), ("step", 2), ("score", 4))}

    def future(self: Any, promised: Any, packed: bool) -> Any:
        reply = real(self, promised, packed)
        newest = list(self.journal.numbers)[-1].split("#")[0] if self.journal.numbers else ""
        if left.pop(newest, False):
            raise Killed
        return reply

    monkeypatch.setattr(fireworks.FireworksTrainer, "_future", future)
    made = len(cloud.cloud.created)
    for _ in range(3):
        with pytest.raises(Killed):
            there(cloud, tmp_path / "killed")
        assert len(cloud.cloud.jobs) == 1
    got, _ = there(cloud, tmp_path / "killed")
    assert same(got, want) == 0.0
    assert cloud.service.bill.train == 2 * paid
    assert len(cloud.cloud.created) == made + 2
    assert nothing_left(cloud)


@pytest.mark.slow
def test_a_trainer_that_ended_by_itself_is_made_anew_from_the_saved_state(
    cloud: Running, tmp_path: Path
) -> None:
    want, _ = there(cloud, tmp_path / "whole", steps=6)
    seen: list[int] = []

    def once(progress: Any) -> None:
        if progress.get("phase") == "train" and progress["step"] == 5 and not seen:
            seen.append(5)
            for name in list(cloud.cloud.jobs):
                cloud.cloud.end(name)

    got, _ = there(cloud, tmp_path / "ended", steps=6, tell=once, save_every=2)
    assert seen
    assert same(got, want) == 0.0
    assert nothing_left(cloud)


@pytest.mark.slow
def test_a_stopped_run_gives_its_machines_back_and_pays_no_step_again(cloud: Running, tmp_path: Path) -> None:
    want, _ = there(cloud, tmp_path / "whole")
    paid = cloud.service.bill.train

    def stop(progress: Any) -> None:
        if progress.get("phase") == "train" and progress["step"] == 3:
            raise Stopped("enough")

    with pytest.raises(Stopped):
        there(cloud, tmp_path / "stopped", tell=stop)
    assert nothing_left(cloud)
    got, _ = there(cloud, tmp_path / "stopped")
    assert same(got, want) == 0.0
    assert cloud.service.bill.train == 2 * paid
    assert nothing_left(cloud)


@pytest.mark.slow
def test_a_sampler_that_answers_by_something_else_is_noticed(cloud: Running, tmp_path: Path) -> None:
    cloud.cloud.lies = True
    with pytest.raises(HostedError, match="not what answers"):
        there(cloud, tmp_path / "away", steps=8, rate=0.01, save_every=2)
    assert nothing_left(cloud)


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_that_costs_and_the_run_goes_on_from_its_saved_state(
    cloud: Running, tmp_path: Path
) -> None:
    want, _ = there(cloud, tmp_path / "whole")

    def interrupt(progress: Any) -> None:
        if progress.get("phase") == "train" and progress["step"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        there(cloud, tmp_path / "left", tell=interrupt, save_every=2)
    assert nothing_left(cloud)
    got, _ = there(cloud, tmp_path / "left", save_every=2)
    assert same(got, want) == 0.0
    assert nothing_left(cloud)


def test_where_nothing_answers_any_more_what_may_go_on_costing_is_said(
    cloud: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def gone(*_: Any) -> Any:
        raise ServiceUnanswered("nobody answers")

    def tell(progress: Any) -> None:
        said.append(str(progress.get("text")))
        if progress.get("phase") == "train" and progress["step"] == 2:
            monkeypatch.setattr(Wire, "post", gone)

    with pytest.raises(ServiceUnanswered):
        there(cloud, tmp_path / "away", tell=tell)
    assert "hosted jobs --delete" in said[-1]


@pytest.mark.slow
def test_time_is_paid_counted_and_capped(
    cloud: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def now() -> float:
        clock[0] += 2.0
        return clock[0]

    monkeypatch.setattr(fireworks_machines.time, "time", now)
    monkeypatch.setattr(fireworks.FireworksTrainer.__init__, "__kwdefaults__", {"now": now})
    free = Cap(prices=Prices(hour=3600.0))
    _, done = there(cloud, tmp_path / "free", cap=free)
    whole = done.metrics["hosted_money"]
    assert whole > 20  # one for each second
    with pytest.raises(CapReached):
        there(cloud, tmp_path / "capped", cap=Cap(money=whole / 2, prices=Prices(hour=3600.0)))
    assert nothing_left(cloud)


def test_jobs_that_were_left_are_found_and_deleted(cloud: Running) -> None:
    wire = Wire(cloud.url, KEY, timeout=20.0, pause=0.001)
    cloud.cloud.jobs |= {f"somebody-elses-{number}": 0 for number in range(201)}  # one page
    cloud.cloud.jobs |= {"clawback-1": 0}
    assert fireworks_machines.account(wire) == ACCOUNT
    assert [name for name, _ in fireworks_machines.jobs(wire, ACCOUNT)] == ["clawback-1"]
    assert fireworks_machines.end(wire, ACCOUNT, "clawback-1")
    assert fireworks_machines.jobs(wire, ACCOUNT) == []
    assert len(cloud.cloud.jobs) == 201
