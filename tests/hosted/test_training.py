"""A run on the stand-in over real HTTP gives the adapter of the run in this process, whatever fails on the way, and pays once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from clawback import embedded, engine
from clawback.errors import Stopped, TrainingError, UsageError
from clawback.extensions.demo import corpus
from clawback.extensions.hosted import hosted_training
from clawback.extensions.hosted.remote_policy import RemotePolicy
from clawback.extensions.hosted.request_journal import Cap
from clawback.extensions.hosted.trainer_records import CapReached, Prices
from clawback.extensions.trainer_server.around import Faults
from clawback.models.loading import load_tokenizer
from clawback.policy.policy import Policy
from clawback.records import Sample
from clawback.trainer import TrainingRun, ignore
from clawback.trainer.recipe import Recipe
from tests.hosted.conftest import KEY, Running, Start

WEIGHTS = "adapter_model.safetensors"


def samples(count: int = 12) -> list[Sample]:
    """Two answers in random styles to each prompt: one was liked."""
    rng = random.Random(0)
    made = []
    for place, prompt in enumerate(corpus.prompts("rated", count // 2, 0)):
        for which, reward in enumerate((1.0, -1.0)):
            text = corpus.answer(corpus.BY_NAME[prompt.topic], corpus.random_style(rng), rng)
            made.append(Sample(2 * place + which, tuple(prompt.messages), text, reward))
    return made


def recipe(algorithm: str = "reinforce", steps: int = 5, **other: Any) -> Recipe:
    changes = {"steps": steps, "batch": 6, "rank": 4, **other}
    _, info = load_tokenizer(str(embedded.path()))
    return hosted_training.recipe_for(engine.recipe(info, algorithm=algorithm, overrides=changes))


@pytest.fixture(scope="module")
def remote() -> RemotePolicy:
    return RemotePolicy(*load_tokenizer(str(embedded.path())))


def here(policy: Policy, made: Recipe, out: Path) -> dict[str, torch.Tensor]:
    """The same run in this process, at the temperature that trainers elsewhere have."""
    from clawback.models.types import Sampling

    policy.sampling = Sampling()
    done = engine.train(policy, samples(), made, seed=5, out=out)
    return load_file(Path(done.path) / WEIGHTS)


def there(
    server: Running, policy: RemotePolicy, made: Recipe, out: Path, tell: Any = None, **how: Any
) -> tuple[dict[str, torch.Tensor], Any]:
    where = hosted_training.Where(server.url, KEY, server.service.base, pause=0.001, timeout=60.0, **how)
    run = TrainingRun(policy, samples(), made, seed=5, out=out, tell=tell or ignore)
    done = hosted_training.train(run, where)
    return load_file(Path(done.path) / WEIGHTS), done


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize(
    "algorithm",
    ["reinforce", *(pytest.param(name, marks=pytest.mark.slow) for name in ("grpo", "dpo", "kto"))],
)
def test_the_adapter_is_that_of_the_run_in_process(
    algorithm: str, start: Start, policy: Policy, other: Policy, remote: RemotePolicy, tmp_path: Path
) -> None:
    made = recipe(algorithm)
    away, done = there(start(policy), remote, made, tmp_path / "away")
    at_home = here(other, made, tmp_path / "here")
    assert done.steps == made.steps_for(12)
    assert any(t.any() for n, t in away.items() if "lora_B" in n)
    # kto also scores answers to other prompts, at home all in one pass, where beginnings that they share are read once: the same up to rounding.
    assert same(away, at_home) <= (1e-5 if algorithm == "kto" else 0.0)


@pytest.mark.slow
def test_a_third_of_the_answers_fails_and_nothing_is_paid_twice(
    start: Start, policy: Policy, other: Policy, remote: RemotePolicy, tmp_path: Path
) -> None:
    made = recipe(steps=10)
    calm = start(policy)
    want, _ = there(calm, remote, made, tmp_path / "calm")
    paid = calm.bill()
    bad = start(other, faults=Faults(0.3, seed=1))
    got, done = there(bad, remote, made, tmp_path / "bad", save_every=3)
    assert bad.app.failed > 20
    assert done.metrics["hosted_repeated"] > 10
    assert same(got, want) == 0.0
    bill = bad.service.bill
    assert (bill.train, bill.prefill, bill.sample) == (paid["train"], paid["prefill"], paid["sample"])
    assert done.metrics["tokens"] == bill.tokens


@pytest.mark.parametrize(
    "phases",
    [
        ("learn", "step", "score"),
        *(pytest.param((phase,) * 3, marks=pytest.mark.slow) for phase in ("learn", "step", "score")),
    ],
    ids="-".join,
)
def test_killed_three_times_it_goes_on_and_nothing_is_paid_twice(
    phases: tuple[str, ...], start: Start, policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a request of each kind: once it was done over there, before anybody here heard of it."""
    made = recipe(steps=7)
    server = start(policy)
    want, _ = there(server, RemotePolicy(*load_tokenizer(str(embedded.path()))), made, tmp_path / "whole")
    before = server.service.bill
    whole = before

    class Killed(BaseException):
        pass

    from clawback.extensions.hosted.tinker import TinkerTrainer

    real = TinkerTrainer._future
    left = {f"{phase}:{step}:0": True for phase, step in zip(phases, (1, 3, 6), strict=True)}

    def future(self: TinkerTrainer, promised: Any, packed: bool) -> Any:
        reply = real(self, promised, packed)
        newest = list(self.journal.numbers)[-1].split("#")[0] if self.journal.numbers else ""
        if left.pop(newest, False):
            raise Killed
        return reply

    monkeypatch.setattr(TinkerTrainer, "_future", future)
    for _ in range(3):
        with pytest.raises(Killed):
            there(server, RemotePolicy(*load_tokenizer(str(embedded.path()))), made, tmp_path / "killed")
    got, _ = there(server, RemotePolicy(*load_tokenizer(str(embedded.path()))), made, tmp_path / "killed")
    assert not left
    assert same(got, want) == 0.0
    after = server.service.bill
    assert (after.train - before.train, after.prefill - before.prefill) == (whole.train, whole.prefill)


@pytest.mark.slow
def test_a_trainer_that_forgot_it_all_goes_on_from_what_was_saved(
    start: Start, policy: Policy, remote: RemotePolicy, tmp_path: Path
) -> None:
    made = recipe(steps=8)
    server = start(policy)
    want, _ = there(server, remote, made, tmp_path / "whole")
    whole = server.service.bill

    seen: list[int] = []

    def once(progress: Any) -> None:
        if progress.get("phase") == "train" and progress["step"] == 5 and not seen:
            seen.append(5)
            server.service.forget_all()

    got, done = there(server, remote, made, tmp_path / "forgot", once, save_every=4)
    assert seen == [5]
    assert done.steps == 8
    assert same(got, want) == 0.0
    again = server.service.bill.train - 2 * whole.train
    assert 0 < again <= whole.train / 8 * 1.5  # the one step after the saved state


def test_a_cap_stops_before_it_is_passed_and_the_run_goes_on_with_a_higher_one(
    start: Start, policy: Policy, remote: RemotePolicy, tmp_path: Path
) -> None:
    made, server = recipe(steps=6), start(policy)
    with pytest.raises(CapReached, match="max_tokens"):
        there(server, remote, made, tmp_path / "run", cap=Cap(tokens=500))
    assert server.service.bill.train == 0
    prices = Prices(train=1000.0, prefill=100.0, sample=300.0)
    _, done = there(server, remote, made, tmp_path / "run", cap=Cap(money=100.0, prices=prices))
    assert 0 < done.metrics["hosted_money"] < 100.0
    bill = server.service.bill
    assert done.metrics["hosted_money"] == pytest.approx(bill.money(prices))


@pytest.mark.slow
def test_drift_beyond_its_limit_ends_it_with_what_was_saved(
    start: Start, policy: Policy, remote: RemotePolicy, tmp_path: Path
) -> None:
    made = recipe(steps=12, learning_rate=0.02, max_drift=0.3)
    _, done = there(start(policy), remote, made, tmp_path / "run", save_every=1)
    assert "drifted" in done.stopped
    assert 0 < done.steps < 12
    # A row is measured before its step: the weights that were kept are within the limit, those of the newest saved state are not.
    assert done.history[done.steps]["drift"] <= 0.3 < done.history[-1]["drift"]


def test_drift_before_anything_was_saved_fails_with_the_reason_and_what_to_set(
    start: Start, policy: Policy, remote: RemotePolicy, tmp_path: Path
) -> None:
    made = recipe(steps=12, learning_rate=0.02, max_drift=0.05)
    with pytest.raises(
        TrainingError, match=r"because at step \d+ the answers had drifted .*hosted\.save_every"
    ):
        there(start(policy), remote, made, tmp_path / "run", save_every=12)


def test_a_sampler_that_is_not_the_trainer_is_refused(
    start: Start, policy: Policy, remote: RemotePolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from clawback.extensions.trainer_server.lora_weights import StandInLearner

    real = StandInLearner.sample

    def other(self: StandInLearner, *how: Any) -> Any:
        made = real(self, *how)
        return tuple(replace(one, logprobs=tuple(v - 0.5 for v in one.logprobs)) for one in made)

    monkeypatch.setattr(StandInLearner, "sample", other)
    server = start(policy)
    with pytest.raises(TrainingError, match="do not hold the same model"):
        there(server, remote, recipe(), tmp_path / "run")
    assert server.service.bill.train == 0


@pytest.mark.slow
def test_stopped_by_a_person_it_goes_on_where_it_was(
    start: Start, policy: Policy, remote: RemotePolicy, tmp_path: Path
) -> None:
    made, server = recipe(steps=5), start(policy)
    want, _ = there(server, remote, made, tmp_path / "whole")
    whole = server.service.bill

    def stop(progress: Any) -> None:
        if progress.get("phase") == "train" and progress["step"] == 3:
            raise Stopped("enough")

    with pytest.raises(Stopped):
        there(server, remote, made, tmp_path / "run", stop)
    got, _ = there(server, remote, made, tmp_path / "run")
    assert same(got, want) == 0.0
    assert server.service.bill.train == 2 * whole.train


@pytest.mark.parametrize("algorithm", ["ppo", "trpo", "opd", "rollouts", "sac"])
def test_what_log_probs_do_not_suffice_for_is_refused_before_anything_is_paid(algorithm: str) -> None:
    with pytest.raises(UsageError):
        recipe(algorithm)
