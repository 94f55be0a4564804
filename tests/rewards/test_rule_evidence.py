"""How well rules explain and predict many ratings at once, against one fit after another."""

import math

import numpy as np
import pytest
from scipy.special import beta

from clawback.rewards.rule_evidence import RuleEvidenceOverTime, evidence, explained
from clawback.rewards.rule_posterior import JUDGED_SIGN, MANNER, SignLayout, Space, fit


def world(judged, seed=0, count=14):
    """A space of rules on six signs, two of which may be judged; answers, and ratings in columns."""
    rng = np.random.default_rng(seed)
    kinds = np.array([MANNER] * 4 + [JUDGED_SIGN if judged else MANNER] * 2)
    space = Space.of(rng.random((300, 6)) < 0.5, SignLayout(kinds, np.full(6, -1)))
    signs = rng.random((count, 6)) < 0.5
    taste = np.where(signs[:, 4] ^ (rng.random(count) < 0.1), 1.0, -1.0)
    return (
        space,
        signs,
        np.array([taste, rng.permutation(taste), np.where(rng.random(count) < 0.3, 1.0, -1.0)]).T,
    )


@pytest.mark.parametrize("judged", [True, False])
def test_left_out_ratings_are_predicted_as_if_they_had_never_been_given(judged):
    space, signs, ratings = world(judged)
    found = explained(space, signs, ratings)[1]
    for column in range(ratings.shape[1]):
        for i in range(len(signs)):
            rest = np.arange(len(signs)) != i
            alone = fit(space, signs[rest], ratings[rest, column])
            assert found[i, column] == pytest.approx(alone.predict(signs[[i]])[0][0], abs=1e-4)


@pytest.mark.parametrize("judged", [True, False])
def test_evidence_of_many_ratings_is_that_of_each(judged):
    space, signs, ratings = world(judged)
    each = [evidence(space, signs, column) for column in ratings.T]
    np.testing.assert_allclose(explained(space, signs, ratings)[0], each, atol=1e-4)


def coin(ratings):
    return math.log(beta((ratings > 0).sum() + 1, (ratings < 0).sum() + 1))


@pytest.mark.parametrize("judged", [True, False])
def test_evidence_over_time_is_that_of_the_part_alone(judged):
    space, signs, ratings = world(judged)
    y = ratings[:, 0]
    over_time = RuleEvidenceOverTime(space, signs, y)
    assert over_time.of_part(3, 11) == pytest.approx(evidence(space, signs[3:11], y[3:11]), abs=1e-4)
    turned = np.concatenate([y[2:8], -y[8:13]])
    expected = evidence(space, signs[2:13], turned) + coin(turned) - coin(y[2:8]) - coin(y[8:13])
    assert over_time.turned(2, 8, 13) == pytest.approx(expected, abs=1e-4)


def test_ratings_between_good_and_bad_count_in_parts():
    space, signs, ratings = world(judged=True)
    whole, parts = explained(space, signs, ratings), explained(space, signs, 0.4 * ratings)
    assert (np.abs(parts[1]) <= 1).all()
    assert parts[0][0] < whole[0][0]


def test_where_nothing_varies_nothing_is_explained():
    space = Space.of(np.ones((5, 2), dtype=bool), 2)
    found = explained(space, np.ones((4, 2), dtype=bool), np.ones((4, 3)))
    assert not found[0].any()
    assert found[1].shape == (4, 3)
