"""Hidden features: what they are made of."""

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from clawback import engine
from clawback.scoring.pooling import features, pooled, read
from clawback.templates.chat_tokens import Encoded


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


def test_middle_layers_are_read_of_answer_and_prompt(policy):
    ids = policy.tokenizer.encode("- Weight: 9 kg", add_special_tokens=False)
    encoded = [Encoded((4, 7, 9), tuple(ids)), Encoded((5,), tuple(ids[:3])), Encoded((5, 6), ())]
    got = read(policy.scorer, encoded, (0.5, 1.0))
    layers = policy.model.config.num_hidden_layers
    for i, one in enumerate(encoded[:2]):
        with torch.no_grad():
            every = policy.model.model(
                torch.tensor([[*one.prompt, *one.response]]), output_hidden_states=True
            ).hidden_states
        half = every[round(layers / 2)][0].double().numpy()
        start, size = len(one.prompt), half.shape[1]
        for name, expected in (
            ("mean of the answer", half[start:].mean(0)),
            ("end of the answer", half[-1]),
            ("end of the prompt", half[start - 1]),
        ):
            np.testing.assert_allclose(got[name][i, :size], expected, atol=1e-4)
            assert got[name].shape == (3, 2 * size)
    assert not got["mean of the answer"][2].any()


def test_reading_leaves_nothing_on_the_model(policy):
    def hooks():
        return [len(module._forward_hooks) for module in policy.model.modules()]

    before = hooks()
    read(policy.scorer, [Encoded((4, 7), (9,))])
    assert hooks() == before
    assert read(policy.scorer, []) == {}
