"""Features: what they are made of, that they do not see one topic's words, and that they come back from JSON."""

import json

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from clawback import engine
from clawback.engine.torch.chat import Encoded
from clawback.engine.torch.features import Lens, features, pooled


@pytest.fixture(scope="module")
def policy():
    return engine.load("embedded")


def test_hidden_features_are_means_over_the_response_alone(policy):
    ids = policy.tokenizer.encode("- Weight: 9 kg", add_special_tokens=False)
    encoded = [Encoded((4, 7, 9), tuple(ids)), Encoded((5,), tuple(ids[:3])), Encoded((5,), ())]
    got = features(policy.scorer, encoded)
    for one, row in zip(encoded[:2], got[:2], strict=True):
        with torch.no_grad():
            states = policy.model.model(torch.tensor([[*one.prompt, *one.response]])).last_hidden_state[0]
        expected = states[len(one.prompt) :].mean(0).double().numpy()
        np.testing.assert_allclose(row[:-1], expected, atol=1e-5)
        assert row[-1] == pytest.approx(np.log(1 + len(one.response)))
    assert not got[2].any()


def test_pooling_does_not_mix_answers():
    states = torch.tensor([[1.0, 2.0], [3.0, 4.0], [10.0, 10.0]])
    np.testing.assert_allclose(pooled(states, [2, 1])[:, :2], [[2.0, 3.0], [10.0, 10.0]])


def test_only_everyday_tokens_count():
    rng = np.random.default_rng(0)
    # 1 is in every answer, 2 in half of them, each of 100 … 149 in one: the topic's own word
    answers = [[1, 100 + i, *([2] if i % 2 else [])] for i in range(50)]
    lens = Lens.ground(answers, rng.normal(size=(50, 4)))
    assert lens.tokens.tolist() == [2]
    seen = lens(answers, rng.normal(size=(50, 4)))
    assert seen.shape == (50, 5)
    assert np.mean(np.sum(seen**2, 1)) == pytest.approx(1, abs=0.15)
    same = lens([[2, 100], [2, 149]], np.zeros((2, 4)))
    assert np.array_equal(same[0], same[1])


def test_answers_without_everyday_tokens_leave_the_hidden_states():
    lens = Lens.ground([[1, i + 5] for i in range(30)], np.random.default_rng(0).normal(size=(30, 3)))
    assert len(lens.tokens) == 0
    assert np.isfinite(lens([[9], []], np.zeros((2, 3)))).all()


def test_a_lens_written_as_json_sees_the_same():
    answers = [[1, 2], [2, 3], [1, 3], [3]] * 5
    hidden = np.random.default_rng(1).normal(size=(20, 3))
    lens = Lens.ground(answers, hidden)
    back = Lens.from_dict(json.loads(json.dumps(lens.to_dict())))
    assert np.array_equal(lens(answers, hidden), back(answers, hidden))
