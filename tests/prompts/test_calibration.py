"""Expectations become probabilities that can be believed."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit

from clawback.extensions.rlprompt.calibration import AS_IT_STANDS, calibrated

RNG = np.random.default_rng(0)


def test_slope_and_offset_are_those_of_the_penalised_likelihood():
    means, ratings = RNG.normal(0, 0.5, 40), RNG.choice([-1.0, 0.0, 1.0], 40)
    x, t = 2 * np.tanh(1.5 * means), (ratings + 1) / 2

    def loss(w):
        p = expit(w[0] * x + w[1])
        return -(t * np.log(p) + (1 - t) * np.log(1 - p)).sum() + ((w[0] - 1) ** 2 + w[1] ** 2) / 2

    found, expected = calibrated(means, ratings), minimize(loss, [1.0, 0.0], method="BFGS", tol=1e-10)
    assert (found.slope, found.offset) == pytest.approx(expected.x, abs=1e-4)
    hessian = [
        approx_fprime(expected.x, lambda w, i=i: approx_fprime(w, loss, 1e-5)[i], 1e-4) for i in range(2)
    ]
    np.testing.assert_allclose(found.covariance, np.linalg.inv(hessian), rtol=0.01, atol=1e-4)


def test_many_ratings_are_met_and_few_are_not_sure():
    means = RNG.uniform(-1, 1, 4000)
    liked = np.where(RNG.random(4000) < np.where(means > 0, 0.9, 0.1), 1.0, -1.0)
    sure, unsure = calibrated(means, liked), calibrated(means[:8], liked[:8])
    for low, high in ((-1, -0.3), (0.3, 1)):
        there = (means > low) & (means < high)
        assert sure(means[there]).mean() == pytest.approx((liked[there].mean() + 1) / 2, abs=0.03)
    assert abs(unsure([1.0]) - 0.5) < abs(AS_IT_STANDS([1.0]) - 0.5)


def test_a_model_that_is_wrong_is_not_turned_round():
    means = np.linspace(-1, 1, 200)
    liked = np.where(RNG.random(200) < 0.2, np.sign(means), -np.sign(means))
    liked[:30] = 1.0
    share = (liked.mean() + 1) / 2
    assert calibrated(means - 0.5, liked)([-0.9, 0.9]) == pytest.approx([share, share], abs=0.02)
