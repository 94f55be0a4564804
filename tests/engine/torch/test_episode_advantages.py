"""The unit of the advantages that a round of episodes gets."""

from __future__ import annotations

import pytest

from clawback.learning.episode_examples import Episodes, EpisodeSettings
from clawback.records import Episode, EpisodeStep


def one(number, reward, group):
    steps = (EpisodeStep(0, 0, 1, reward=reward),)
    return Episode("g", "g/0", number, (), (), steps, "completed", group=group)


def episodes(rewards):
    return [one(i, reward, i) for i, reward in enumerate(rewards)]


def test_a_policy_that_nearly_always_wins_does_not_learn_noise_at_full_strength():
    source = Episodes(None, lambda _: (), EpisodeSettings(estimator="returns", calm=0.97), 0)
    first = source._advantages(episodes([0.0, 1.0] * 8), ())
    assert float(first.std(unbiased=False)) == pytest.approx(1.0, abs=1e-4)
    later = source._advantages(episodes([1.0, 0.99] * 8), ())
    assert float(later.abs().max()) == pytest.approx(0.005 / (0.97 * 0.5), rel=1e-3)
    # A larger spread than any before is the unit at once.
    wide = source._advantages(episodes([-5.0, 5.0] * 8), ())
    assert float(wide.std(unbiased=False)) == pytest.approx(1.0, abs=1e-4)


def test_groups_have_a_unit_of_their_own():
    source = Episodes(None, lambda _: (), EpisodeSettings(estimator="step_wise", gamma=0.0), 0)
    rows = [one(0, 0.0, 0), one(1, 0.1, 0)]
    assert source._advantages(rows, ()).tolist() == pytest.approx([-1.0, 1.0], abs=1e-3)
    assert source.spread == 0.0
