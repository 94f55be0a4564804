"""What a reward model gets to see of a causal model: the mean of its hidden states over the answer, after one layer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clawback import engine
from clawback.learning.reading import BaseModelReader

PAIRS = [
    ("Tell me about otters.", "Otters live in rivers."),
    ("And?", "- a list\n- of short points"),
    ("Why?", "I am sorry."),
]


@pytest.mark.parametrize(("family", "layer"), [("llama", 2), ("deep", 6)])
def test_the_states_are_those_after_a_layer_averaged_over_the_answer(folders, family, layer):
    """One answer at a time, without padding, straight through transformers. A shallow model is read after its last layer, a deep one at two thirds."""
    seen = BaseModelReader(str(folders(family)))(PAIRS)
    policy = engine.load(str(folders(family)))
    for row, (prompt, response) in enumerate(PAIRS):
        one = policy.chat.encode([{"role": "user", "content": prompt}], response, None, limits=(128, 512))
        with torch.no_grad(), policy.base():
            ids = torch.tensor([[*one.prompt, *one.response]])
            hidden = policy.model(input_ids=ids, output_hidden_states=True).hidden_states[layer]
        expected = hidden[0, len(one.prompt) :].mean(0).double().numpy()
        np.testing.assert_allclose(seen.states[row], expected, atol=1e-5)
        assert list(seen.tokens[row]) == list(one.response)
