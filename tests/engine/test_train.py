"""A run from samples to a PEFT folder: it learns, it stops when it must, and it ends in the same bits."""

import hashlib
import json
from pathlib import Path

import pytest
import torch

from clawback import engine
from clawback.errors import TrainingError
from clawback.learning.training import plan_for
from clawback.records import Sample
from clawback.trainer.run import TrainingRun


def make_samples(count=12, good=lambda i: i % 2 == 0):
    likes, dislikes = (
        ("Sure! Otters live in rivers.", "- a list\n- of points"),
        ("I am sorry, but I cannot.", "No."),
    )
    return [
        Sample(
            turn_id=i + 1,
            messages=({"role": "user", "content": f"Tell me about otter number {i}."},),
            response=(likes if good(i) else dislikes)[i // 2 % 2],
            reward=1.0 if good(i) else -1.0,
        )
        for i in range(count)
    ]


def recipe(policy, algorithm="mis-po", **overrides):
    overrides = {"steps": 6, "batch": 4, "rank": 4, "alpha": 4, **overrides}
    return engine.recipe(policy.info, algorithm=algorithm, overrides=overrides)


def digest(path):
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(Path(path).iterdir())}


def means(policy, samples):
    values = policy.logprobs([s.messages for s in samples], [s.response for s in samples])
    return torch.stack([v.mean() for v in values])


@pytest.mark.parametrize("algorithm", [pytest.param("reinforce", marks=pytest.mark.slow), "mis-po", "grpo"])
def test_liked_answers_become_more_likely_than_disliked_ones(folders, tmp_path, algorithm):
    policy = engine.load(str(folders("llama")))
    # Two answers to each prompt, so that groups have something to compare.
    samples = []
    for i, sample in enumerate(make_samples(16)):
        messages = ({"role": "user", "content": f"Tell me about otter number {i // 2}."},)
        samples.append(Sample(i + 1, messages, sample.response, sample.reward))
    good = torch.tensor([s.reward > 0 for s in samples])
    before = means(policy, samples)
    settings = recipe(policy, algorithm, steps=24, learning_rate=3e-3, max_drift=5.0)
    result = engine.train(policy, samples, settings, seed=1, out=tmp_path)
    moved = means(policy, samples) - before
    assert result.steps == 24
    assert not result.stopped
    assert moved[good].mean() > 0.1
    assert moved[~good].mean() < -0.02
    assert {"loss", "kl_loss", "clip_fraction", "grad_norm", "tokens_per_second", "reward"} <= set(
        result.metrics
    )


def test_every_rating_is_used(folders, tmp_path):
    policy = engine.load(str(folders("llama")))
    samples = make_samples(21)
    settings = recipe(policy, steps=2, batch=4)
    policy.attach(rank=4, alpha=4, seed=0)
    source = plan_for(TrainingRun(policy, samples, settings)).source
    seen = [id(example) for step in range(source.steps) for example in source.examples(step)]
    assert source.steps == 6
    assert len(set(seen)) == 21
    assert max(map(seen.count, seen)) <= 2


@pytest.mark.parametrize("family", [pytest.param("llama", marks=pytest.mark.slow), "qwen3_moe"])
def test_the_same_ratings_and_seed_give_the_same_bytes(folders, tmp_path, family):
    hashes = []
    for attempt in range(2):
        torch.manual_seed(attempt)  # what the process drew before must not matter
        policy = engine.load(str(folders(family)))
        result = engine.train(policy, make_samples(), recipe(policy), seed=3, out=tmp_path / str(attempt))
        hashes.append(digest(result.path))
    assert hashes[0] == hashes[1]
    policy = engine.load(str(folders(family)))
    other = engine.train(policy, make_samples(), recipe(policy), seed=4, out=tmp_path / "other")
    assert digest(other.path) != hashes[0]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("algorithm", [pytest.param("mis-po", marks=pytest.mark.slow), "grpo"])
def test_a_run_killed_at_any_step_ends_in_the_same_bytes(folders, tmp_path, monkeypatch, algorithm):
    import clawback.trainer.training_loop as trainer

    real = trainer.LoopSettings
    monkeypatch.setattr(trainer, "LoopSettings", lambda **kw: real(**{**kw, "checkpoint_seconds": 0.0}))
    samples = make_samples()
    policy = engine.load(str(folders("llama")))
    settings = recipe(policy, algorithm)
    whole = engine.train(policy, samples, settings, seed=3, out=tmp_path / "whole")
    for last in range(1, 7):

        def die(progress, last=last):
            if progress["phase"] == "train" and progress["step"] == last:
                raise Killed

        out = tmp_path / f"killed-{last}"
        policy = engine.load(str(folders("llama")))
        with pytest.raises(Killed):
            engine.train(policy, samples, settings, seed=3, out=out, on_progress=die)
        assert not (out / "adapter").exists()
        policy = engine.load(str(folders("llama")))
        steps = []
        result = engine.train(
            policy,
            samples,
            settings,
            seed=3,
            out=out,
            on_progress=lambda p, steps=steps: steps.append(p.get("step")),
        )
        assert digest(result.path) == digest(whole.path), f"killed at step {last}"
        assert len(result.history) == 6
        if last > 1:
            # The checkpoint of the step before was there, and was gone on from.
            assert min(s for s in steps if s) == last
        assert not (out / "checkpoint.pt").exists()


def test_a_run_killed_after_it_was_written_is_not_made_again(folders, tmp_path):
    policy = engine.load(str(folders("llama")))
    first = engine.train(policy, make_samples(), recipe(policy), seed=3, out=tmp_path)
    again = engine.load(str(folders("llama")))
    phases = []
    second = engine.train(
        again, make_samples(), recipe(again), seed=3, out=tmp_path, on_progress=lambda p: phases.append(p)
    )
    assert phases == []
    assert second == first
    assert torch.equal(means(again, make_samples()), means(policy, make_samples()))


def test_a_checkpoint_of_another_run_or_a_torn_one_is_not_gone_on_with(folders, tmp_path):
    policy = engine.load(str(folders("llama")))
    clean = engine.train(policy, make_samples(), recipe(policy), seed=3, out=tmp_path / "clean")
    for name, content in (("torn", b"PK\x03\x04 torn"), ("other", None)):
        out = tmp_path / name
        out.mkdir()
        if content is None:
            torch.save({"fingerprint": "another", "step": 4}, out / "checkpoint.pt")
        else:
            (out / "checkpoint.pt").write_bytes(content)
        policy = engine.load(str(folders("llama")))
        result = engine.train(policy, make_samples(), recipe(policy), seed=3, out=out)
        assert digest(result.path) == digest(clean.path)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("algorithm", ["mis-po", "reinforce"])
def test_ratings_of_one_sign_never_run_away(folders, tmp_path, sign, algorithm):
    policy = engine.load(str(folders("llama")))
    samples = [Sample(s.turn_id, s.messages, s.response, sign) for s in make_samples()]
    settings = recipe(
        policy,
        algorithm,
        steps=200,
        learning_rate=1e-2,
        kl=0.0,
        baseline="ema",
        importance_cap=0,
        max_drift=0.5,
    )
    result = engine.train(policy, samples, settings, seed=0, out=tmp_path)
    assert "drifted" in result.stopped
    assert result.steps < 200
    with torch.no_grad():
        encoded = [policy.encode(s) for s in samples]
        with policy.base():
            ref = policy.scorer(encoded).logprobs
        moved = (policy.scorer(encoded).logprobs - ref).abs().mean()
    assert 0 < moved < 1.5  # 0.5 nats of drift are about 1.2 nats of difference


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_what_was_good(folders, tmp_path, monkeypatch):
    from clawback.rl.algorithms.mis_po import MisPo

    real, calls = MisPo.loss, []

    def loss(self, batch):
        calls.append(1)
        value, metrics = real(self, batch)
        if len(calls) == 4:
            return value * float("nan"), {**metrics, "loss": float("nan")}
        return value, metrics

    monkeypatch.setattr(MisPo, "loss", loss)
    policy = engine.load(str(folders("llama")))
    result = engine.train(policy, make_samples(), recipe(policy), seed=0, out=tmp_path / "a")
    assert "finite" in result.stopped
    assert result.steps == 2
    monkeypatch.setattr(MisPo, "loss", real)
    policy = engine.load(str(folders("llama")))
    two = engine.train(policy, make_samples(8), recipe(policy, steps=2), seed=0, out=tmp_path / "b")
    assert two.steps == 2


def test_nothing_to_learn_from(folders, tmp_path):
    policy = engine.load(str(folders("llama")))
    with pytest.raises(TrainingError, match="nothing to learn from"):
        engine.train(policy, [], recipe(policy), out=tmp_path)


def test_the_folder_is_plain_peft(folders, tmp_path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    policy = engine.load(str(folders("qwen3")))
    samples = make_samples()
    result = engine.train(policy, samples, recipe(policy, learning_rate=1e-2, max_drift=9.0), out=tmp_path)
    plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folders("qwen3")), result.path)
    ids = torch.tensor([policy.encode(samples[0]).prompt])
    with torch.no_grad():
        torch.testing.assert_close(plain(ids).logits, policy.model(ids).logits)
        with policy.base():
            assert not torch.allclose(plain(ids).logits, policy.model(ids).logits)
    assert (
        json.loads((Path(result.path) / "clawback.json").read_text())["base_revision"] == policy.info.revision
    )


def test_training_goes_on_from_an_adapter(folders, tmp_path):
    policy = engine.load(str(folders("llama")))
    first = engine.train(policy, make_samples(), recipe(policy), out=tmp_path / "1")
    policy = engine.load(str(folders("llama")), adapter=Path(first.path))
    assert policy.moved
    second = engine.train(policy, make_samples(), recipe(policy), out=tmp_path / "2", baseline=first.baseline)
    assert digest(second.path) != digest(first.path)
    assert second.history[0]["drift"] > 0


def test_tensorboard_takes_what_the_run_tells(folders, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from clawback.jobs import tracking

    policy = engine.load(str(folders("llama")))
    with tracking.track(("tensorboard",), tmp_path, "tb", {}) as scalars:
        engine.train(policy, make_samples(), recipe(policy), out=tmp_path / "r", on_progress=scalars)
    events = EventAccumulator(str(tmp_path / "tensorboard" / "tb")).Reload()
    names = set(events.Tags()["scalars"])
    assert {"train/loss", "train/kl", "train/reward", "train/clip_fraction", "train/grad_norm"} <= names
    assert "speed/tokens_per_second" in names
    assert len(events.Scalars("train/loss")) == 6


def test_figures_of_a_run_that_another_version_began_are_added_up():
    from clawback.trainer.run import last

    assert last([]) == {}
    assert last([{"loss": 1.0}, {"loss": 3.0, "margin": 0.5}]) == {"loss": 2.0, "margin": 0.5}
