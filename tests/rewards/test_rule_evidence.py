"""How well rules explain and predict many ratings at once, against one fit after another."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import beta

from clawback.rewards.rating_likelihood import COMPARED, GUESSED, RATED
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


KINDS = np.array([RATED] * 5 + [GUESSED] * 5 + [COMPARED] * 4)


@pytest.mark.parametrize("kinds", [None, KINDS], ids=["of one kind", "of three kinds"])
@pytest.mark.parametrize("judged", [True, False])
def test_left_out_ratings_are_predicted_as_if_they_had_never_been_given(judged, kinds):
    space, signs, ratings = world(judged)
    found = explained(space, signs, ratings, kinds)[1]
    for column in range(ratings.shape[1]):
        for i in range(len(signs)):
            rest = np.arange(len(signs)) != i
            alone = fit(
                space, signs[rest], ratings[rest, column], kinds=None if kinds is None else kinds[rest]
            )
            assert found[i, column] == pytest.approx(alone.predict(signs[[i]])[0][0], abs=1e-4)


@pytest.mark.parametrize("kinds", [None, KINDS], ids=["of one kind", "of three kinds"])
@pytest.mark.parametrize("judged", [True, False])
def test_evidence_of_many_ratings_is_that_of_each(judged, kinds):
    space, signs, ratings = world(judged)
    each = [evidence(space, signs, column, kinds=kinds) for column in ratings.T]
    np.testing.assert_allclose(explained(space, signs, ratings, kinds)[0], each, atol=1e-4)


def test_the_evidence_of_a_rule_is_the_product_of_each_kinds_own():
    """By quadrature: of one rule, ``Π_k 2 ∫₀^½ (1 − ε)^a ε^(n − a) dε`` against a coin for each kind."""
    signs = np.array([[True], [True], [True], [False], [False], [True], [False], [False]])
    values = np.array([1.0, 1.0, -1.0, -1.0, 0.125, 0.125, -0.125, -0.125])
    kinds = np.array([RATED] * 4 + [GUESSED] * 4)
    space = Space.of(np.array([[True], [False]]), 1)

    def of(agreements, count):
        return 2 * quad(lambda e: (1 - e) ** agreements * e ** (count - agreements), 0, 0.5)[0]

    # One of the four ratings breaks the rule, and of the guesses one: their size does not count.
    rules = 0.5 * of(3, 4) * of(3, 4) + 0.5 * of(1, 4) * of(1, 4)  # the sign, or that it is not there
    expected = math.log(rules / (beta(3, 3) * beta(3, 3)))
    assert evidence(space, signs, values, kinds=kinds) == pytest.approx(expected, abs=1e-4)


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


@pytest.mark.parametrize("judged", [True, False])
def test_a_kind_may_have_one_word_alone(judged):
    space, signs, ratings = world(judged)
    kinds = np.array([RATED] * 13 + [GUESSED])
    found = explained(space, signs, ratings, kinds)
    assert np.isfinite(found[0]).all()
    alone = fit(space, signs[:13], ratings[:13, 0], kinds=kinds[:13])
    assert found[1][13, 0] == pytest.approx(alone.predict(signs[[13]])[0][0], abs=1e-4)


def guesses(rng, taste, count, right):
    """Signs of ``count`` answers, and the small values of guesses about them: each is as ``taste(signs)`` with probability ``right``."""
    signs = rng.random((count, 6)) < 0.5
    return signs, np.where(taste(signs) ^ (rng.random(count) < 1 - right), 0.125, -0.125)


def test_many_guesses_say_what_is_wanted_and_few_say_little():
    rng = np.random.default_rng(0)
    space = Space.of(rng.random((300, 6)) < 0.5, 6)

    def apart(count, of):
        signs, values = guesses(np.random.default_rng(1), lambda s: s[:, 2], count, 0.65)
        fitted = fit(space, signs, values, kinds=np.full(count, of))
        return float(
            np.diff(fitted.predict(np.array([[False] * 6, [False, False, True] + [False] * 3]))[0])[0]
        )

    assert apart(300, GUESSED) > 1.5
    assert apart(300, RATED) < 0.3, "as ratings near the middle they would say next to nothing"
    assert abs(apart(6, GUESSED)) < 0.5


@pytest.mark.parametrize("seed", range(3))
def test_guesses_that_are_noise_take_nothing_from_ratings(seed):
    rng = np.random.default_rng(seed)
    space = Space.of(rng.random((300, 6)) < 0.5, 6)
    noise, guessed = guesses(rng, lambda s: s[:, 4], 200, 0.5)
    signs, rated = guesses(rng, lambda s: s[:, 2], 32, 0.9)
    values, kinds = np.concatenate([np.sign(rated), guessed]), np.array([RATED] * 32 + [GUESSED] * 200)
    fitted = fit(space, np.vstack([signs, noise]), values, kinds=kinds)
    unseen = rng.random((400, 6)) < 0.5
    assert np.mean((fitted.predict(unseen)[0] > 0) == unseen[:, 2]) > 0.9
    assert fitted.wrong < 0.2, "the share of wrong taps is that of the ratings"


def test_where_nothing_varies_nothing_is_explained():
    space = Space.of(np.ones((5, 2), dtype=bool), 2)
    found = explained(space, np.ones((4, 2), dtype=bool), np.ones((4, 3)))
    assert not found[0].any()
    assert found[1].shape == (4, 3)
