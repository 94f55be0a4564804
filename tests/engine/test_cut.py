"""An answer that was cut is never learned as a complete one, by whatever algorithm, and grades no complete ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_args

import pytest

from clawback import engine
from clawback.gate.fresh import per_token
from clawback.learning.training import plan_for
from clawback.records import Ending, Sample
from clawback.sources import plan as planning
from clawback.sources.graded import Grading
from clawback.trainer.run import TrainingRun
from tests.engine.test_train import make_samples, recipe


@pytest.fixture(scope="module")
def policy(folders: Any) -> Any:
    return engine.load(str(folders("llama")), device="cpu")


def cut_samples() -> list[Sample]:
    """Half of the ratings, good and bad ones, are of answers that were cut, each at a place of its own."""
    made = make_samples()
    return [
        dataclasses.replace(s, response=s.response[: 8 + i], ending="length") if i % 4 < 2 else s
        for i, s in enumerate(made)
    ]


@pytest.mark.parametrize("ending", get_args(Ending))
def test_the_end_token_follows_what_the_model_ended_alone(policy: Any, ending: Ending) -> None:
    [sample] = make_samples(1)
    encoded = policy.encode(dataclasses.replace(sample, ending=ending))
    text = policy.tokenizer.decode(encoded.response, skip_special_tokens=True)
    assert text == sample.response
    assert (policy.chat.end_id in encoded.response) == (ending in ("", "done"))
    # What was sampled here is taken as it was.
    ids = tuple(policy.tokenizer.encode("Sure", add_special_tokens=False))
    assert policy.encode(dataclasses.replace(sample, ending=ending, response_ids=ids)).response == ids


@pytest.mark.parametrize("algorithm", ["mis-po", "reinforce", "grpo", "rloo", "kto", "dpo", "ppo"])
def test_no_algorithm_learns_to_stop_where_an_answer_was_cut(policy: Any, algorithm: str) -> None:
    asked = (
        {"role": "user", "content": "Tell me about otters."},
    )  # the same for all, so that there are pairs
    samples = [dataclasses.replace(s, messages=asked) for s in cut_samples()]
    run = TrainingRun(policy, samples, recipe(policy, algorithm), seed=1)
    beginnings = {s.response for s in samples if s.cut}
    seen: dict[str, bool] = {}
    source = plan_for(run).source
    for step in range(6):
        for example in source.examples(step):
            text = policy.tokenizer.decode(example.encoded.response, skip_special_tokens=True)
            seen[text] = policy.chat.end_id in example.encoded.response
    assert beginnings & set(seen), "cut answers are learned as far as they go"
    assert all(ends == (text not in beginnings) for text, ends in seen.items())


def test_a_taught_answer_is_as_long_as_it_was(policy: Any) -> None:
    samples = [dataclasses.replace(s, hints=("shorter",)) for s in cut_samples()]
    plan = plan_for(TrainingRun(policy, samples, recipe(policy, "opd"), seed=1))
    for example in plan.source.examples(0):
        text = policy.tokenizer.decode(example.encoded.response, skip_special_tokens=True)
        cut = text in {s.response for s in samples if s.cut}
        assert (policy.chat.end_id in example.encoded.response) != cut
        assert example.teacher is None or len(example.teacher) == len(example.encoded.response)


def test_what_grades_answers_is_fitted_on_complete_ones(policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def learn(_: Grading, asked: Any, rated: Any, *more: Any) -> Any:
        seen.extend(rated)
        raise KeyboardInterrupt

    monkeypatch.setattr(Grading, "learn", learn)
    samples = cut_samples()
    with pytest.raises(KeyboardInterrupt):
        planning.plan(TrainingRun(policy, samples, recipe(policy, "auto"), seed=1))
    assert len(seen) == sum(not s.cut for s in samples)
    assert all(policy.chat.end_id in one.response for one in seen)


def test_where_all_were_cut_the_ratings_themselves_are_learned(policy: Any, tmp_path: Path) -> None:
    samples = [dataclasses.replace(s, ending="length") for s in make_samples()]
    result = engine.train(policy, samples, recipe(policy, "auto", steps=2), seed=1, out=tmp_path)
    assert (result.algorithm, "cut off" in result.note) == ("reinforce", True)


def test_the_gate_scores_a_cut_answer_without_an_end(folders: Any) -> None:
    policy = engine.load(str(folders("llama")), device="cpu")
    [sample] = make_samples(1)
    ids = policy.tokenizer.encode(sample.response, add_special_tokens=False)
    [expected] = policy.logprobs([sample.messages], [ids])
    [value] = per_token(policy, [dataclasses.replace(sample, ending="length")])
    assert value == pytest.approx(float(expected.mean()), abs=1e-5)
