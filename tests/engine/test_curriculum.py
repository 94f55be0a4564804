"""Easy ratings first: what each stage deals, that nothing is left out, and that a killed run ends in the same bytes."""

import pytest

from clawback import engine
from clawback.errors import UsageError
from clawback.learning.training import plan_for
from clawback.records import Part, Sample
from clawback.trainer.run import TrainingRun
from tests.engine.test_train import digest, recipe


def make_samples(count=18):
    """The later, the clearer; those of odd numbers are short."""
    made = []
    for i in range(count):
        text = "No." if i % 2 else "Otters live in rivers, along coasts, and in lakes." * 2
        reward = (i + 1) / count * (1 if i % 3 else -1)
        asked = ({"role": "user", "content": f"Tell me about otter number {i}."},)
        made.append(Sample(i + 1, asked, text, reward, (Part(i + 1, "rating", reward, 1.0),)))
    return made


def dealt(policy, samples, algorithm="reinforce", **overrides):
    """The examples of each step."""
    source = plan_for(TrainingRun(policy, samples, recipe(policy, algorithm, **overrides))).source
    return [source.examples(step) for step in range(source.steps)]


@pytest.fixture
def policy(folders):
    fresh = engine.load(str(folders("llama")))
    fresh.attach(rank=4, alpha=4, seed=0)
    return fresh


@pytest.mark.parametrize("algorithm", ["reinforce", "opd", "ppo"])
def test_the_clearest_come_first_and_all_in_the_end(policy, algorithm):
    samples = [
        Sample(s.turn_id, s.messages, s.response, s.reward, s.parts, hints=("Be brief.",))
        for s in make_samples()
    ]
    steps = dealt(policy, samples, algorithm, steps=12, batch=6, curriculum="reward")
    clearest = sorted((abs(s.reward) for s in samples), reverse=True)
    rewards = [[abs(e.reward) for e in step] for step in steps]
    assert all(r >= clearest[5] for step in rewards[:2] for r in step)
    assert all(r >= clearest[11] for step in rewards[2:6] for r in step)
    assert {r for step in rewards[6:] for r in step} == set(clearest)
    assert any(r < clearest[5] for step in rewards[2:6] for r in step)
    # Within a stage each is used as often as every other.
    counted = [sum(step.count(r) for step in rewards[6:]) for r in clearest]
    assert max(counted) - min(counted) <= 1


def test_short_ones_first(policy):
    first = dealt(policy, make_samples(), steps=12, batch=6, curriculum="length")[:2]
    assert {len(e.encoded.response) for step in first for e in step} == {
        min(len(policy.encode(s).response) for s in make_samples())
    }


def test_a_small_stage_deals_no_answer_twice_in_a_step(policy):
    first, *rest = dealt(policy, make_samples(9), steps=2, batch=8, curriculum="both")
    assert len(first) == len({id(e) for e in first}) == 6
    assert len({id(e) for step in rest for e in step}) == 9


def test_advantages_do_not_depend_on_the_order(policy):
    """mis-po's baseline moves with the ratings as they were given, whatever is gone through first."""
    off, on = (
        {
            e.encoded.prompt: e.advantage
            for step in dealt(policy, make_samples(), "mis-po", steps=12, batch=6, curriculum=c)
            for e in step
        }
        for c in ("off", "both")
    )
    assert on == off


def test_pairs_stay_together(policy):
    samples = []
    for i in range(12):
        asked = ({"role": "user", "content": f"Otter {i // 2}?"},)
        reward = (1 if i % 2 else -1) * (i // 2 + 1) / 6
        samples.append(Sample(i + 1, asked, "Yes." if i % 2 else "- no", reward))
    steps = dealt(policy, samples, "dpo", steps=6, batch=4, curriculum="reward")
    assert sorted({abs(e.reward) for e in steps[0]}) == pytest.approx([5 / 6, 1.0])
    for step in steps:
        for better, worse in zip(step[::2], step[1::2], strict=True):
            assert better.encoded.prompt == worse.encoded.prompt
            assert better.reward > 0 > worse.reward
    assert len({abs(e.reward) for step in steps for e in step}) == 6


class Killed(BaseException):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["reinforce", pytest.param("ppo", marks=pytest.mark.slow)])
def test_a_run_killed_in_any_stage_ends_in_the_same_bytes(folders, tmp_path, monkeypatch, algorithm):
    import clawback.trainer.training_loop as trainer

    real = trainer.LoopSettings
    monkeypatch.setattr(trainer, "LoopSettings", lambda **kw: real(**{**kw, "checkpoint_seconds": 0.0}))
    samples, policy = make_samples(12), engine.load(str(folders("llama")))
    settings = recipe(policy, algorithm, curriculum="both")
    whole = engine.train(policy, samples, settings, seed=3, out=tmp_path / "whole")
    for last in (1, 3, 5):

        def die(progress, last=last):
            if progress["phase"] == "train" and progress["step"] == last:
                raise Killed

        policy = engine.load(str(folders("llama")))
        with pytest.raises(Killed):
            engine.train(policy, samples, settings, seed=3, out=tmp_path / str(last), on_progress=die)
        policy = engine.load(str(folders("llama")))
        again = engine.train(policy, samples, settings, seed=3, out=tmp_path / str(last))
        assert digest(again.path) == digest(whole.path)
    policy = engine.load(str(folders("llama")))
    off = engine.train(policy, samples, recipe(policy, algorithm), seed=3, out=tmp_path / "off")
    assert digest(off.path) != digest(whole.path)


def test_a_curriculum_that_there_is_not(policy):
    with pytest.raises(UsageError, match="curriculum"):
        recipe(policy, curriculum="hard")
