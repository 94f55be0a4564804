"""Likelihoods of ratings under a rule, against integrals worked out by a library."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betainc, betaln

from clawback.rewards.rating_likelihood import Likelihood, TwoShares, WrongTaps


def integral(liked, kept, total, count):
    """2 ∫∫ of the likelihood over p₁ > p₀."""
    other = total - liked
    inner = betaln(other + 1, count - kept - other + 1)

    def of(p):
        below = betainc(other + 1, count - kept - other + 1, p)
        return math.exp(inner) * below * p**liked * (1 - p) ** (kept - liked)

    return 2 * quad(of, 0, 1, epsabs=0, points=[min(max(liked / max(kept, 1), 0.01), 0.99)])[0]


@pytest.mark.parametrize(
    ("liked", "kept", "total", "count"), [(8, 10, 12, 30), (5, 10, 12, 30), (0, 4, 3, 12), (40, 60, 50, 128)]
)
def test_two_shares_are_integrated_over(liked, kept, total, count):
    found = TwoShares.of(count).likelihoods(liked, kept, total)
    assert found == pytest.approx(math.log(integral(liked, kept, total, count)), abs=0.25)


def test_a_rare_attribute_is_seen_where_a_judge_is_often_wrong_about_it():
    """Of 64 answers 12 are said to have it; 6 of those are liked, and 6 of the 52 others: by agreement alone it is nearly a coin."""
    likelihood = Likelihood(64)
    counts = likelihood.counts(
        np.arange(64)[:, None] < 12, ((np.arange(64) % 64 < 6) | (np.arange(64) > 57))[:, None] * 1.0
    )
    coin = math.lgamma(13) + math.lgamma(53) - math.lgamma(66)
    one, other = (float(likelihood(counts, np.array([judged]))[0, 0]) - coin for judged in (False, True))
    assert other > 2 > one


@pytest.mark.parametrize("judged", [True, False])
def test_one_rating_fewer_is_what_is_counted_without_it(judged):
    rng = np.random.default_rng(0)
    meets, good = rng.random((20, 5)) < 0.5, (rng.random((20, 1)) < 0.5) * 1.0
    which = np.full(5, judged)
    every, fewer = Likelihood(20), Likelihood(19)
    counts = every.counts(meets, good)
    for i in range(20):
        rest = np.arange(20) != i
        expected = fewer(fewer.counts(meets[rest], good[rest]), which)
        for rule in range(5):
            found = fewer.without(counts, which, bool(meets[i, rule]), bool(good[i, 0]))
            assert found[rule, 0] == pytest.approx(expected[rule, 0], abs=1e-9)


def test_the_quick_table_is_the_same_where_ratings_are_whole():
    agreements = np.arange(33, dtype=np.float32)
    np.testing.assert_allclose(
        WrongTaps(32).nearest(agreements), WrongTaps(32).likelihoods(agreements), rtol=1e-6
    )
