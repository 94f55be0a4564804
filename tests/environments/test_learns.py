"""It learns: with which word an answer should begin, by the embedded model as it ships."""

from __future__ import annotations

import pytest

from benchmarks import gym

pytestmark = pytest.mark.slow


def test_the_embedded_model_learns_with_which_word_to_begin():
    found = gym.learn("openings", 0, None, {})
    assert found["before"] < 0.35
    assert found["after"] > 0.8
    assert found["curve"][-1] > found["curve"][0]
