"""The closed forms of the reward head against the slow way and against scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import BayesianRidge, Ridge

from clawback.rewards import fit
from clawback.rewards.reward_head import TRUSTED_BELOW


def data(n=30, d=50, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * rng.uniform(0.5, 3, d) + rng.normal(size=d)
    truth = np.where(np.arange(d) < 3, 1.0, 0.0)
    score = ((x - x.mean(0)) / x.std(0)) @ truth
    return x, np.where(score + noise * rng.normal(size=n) > 0, 1.0, -1.0)


def standardised(x):
    return (x - x.mean(0)) / x.std(0)


@pytest.mark.parametrize(("n", "d"), [(30, 50), (80, 10)])
def test_weights_are_those_of_ridge_regression(n, d):
    x, y = data(n, d)
    head = fit(x, y, ridge=40.0)
    other = Ridge(alpha=40.0).fit(standardised(x), y)
    np.testing.assert_allclose(head.weights, other.coef_, atol=1e-9)
    np.testing.assert_allclose(head.predict(x)[0], other.predict(standardised(x)), atol=1e-9)


@pytest.mark.parametrize(("n", "d"), [(30, 50), (80, 10)])
def test_leave_one_out_equals_the_loop(n, d):
    x, y = data(n, d)
    head = fit(x, y, ridge=7.0)
    z = standardised(x)
    for i in range(n):
        keep = np.arange(n) != i
        alone = Ridge(alpha=7.0).fit(z[keep], y[keep])
        assert head.left_out[i] == pytest.approx(alone.predict(z[i : i + 1])[0], abs=1e-9)


def test_evidence_equals_scikit_learn():
    x, y = data(120, 20)
    head = fit(x, y, ridge=None)
    other = BayesianRidge(max_iter=5000, tol=1e-12, alpha_1=0, alpha_2=0, lambda_1=0, lambda_2=0).fit(
        standardised(x), y
    )
    assert head.ridge == pytest.approx(other.lambda_ / other.alpha_, rel=1e-4)
    assert head.noise == pytest.approx(1 / other.alpha_, rel=1e-4)
    mean, deviation = other.predict(standardised(x), return_std=True)
    ours, variance = head.predict(x)
    np.testing.assert_allclose(ours, mean, atol=1e-5)
    # scikit-learn adds the noise of a single observation and leaves out the variance of the intercept
    np.testing.assert_allclose(variance - head.noise / len(y) + head.noise, deviation**2, rtol=1e-4)


def test_variance_is_that_of_the_posterior_also_where_nothing_was_seen():
    x, y = data(12, 40)
    head = fit(x, y, ridge=5.0)
    z = standardised(x)
    covariance = head.noise * np.linalg.inv(z.T @ z + 5.0 * np.eye(40))
    other = np.random.default_rng(1).normal(size=(9, 40))
    raw = other * x.std(0) + x.mean(0)
    expected = np.einsum("md,de,me->m", other, covariance, other) + head.noise / 12
    np.testing.assert_allclose(head.predict(raw)[1], expected, rtol=1e-8)
    far = 50 * other * x.std(0) + x.mean(0)
    assert (head.reward(far, pessimism=1.0) < head.reward(far)).all()
    assert (head.predict(far)[1] > head.predict(x)[1].max()).all()


def test_a_taste_is_trusted_and_noise_is_not():
    x, y = data(40, 60)
    assert fit(x, y).trust.trusted
    assert fit(x, y).trust.p < 0.05
    rng = np.random.default_rng(0)
    p = np.array([fit(x, rng.permutation(y)).trust.p for _ in range(200)])
    for level in (0.1, 0.5):  # without a signal, p is even between 0 and 1
        assert abs(np.mean(p <= level) - level) < 0.1


def test_it_says_why_it_is_trusted_or_not():
    x, y = data(40, 60)
    assert "predicts ratings it has not seen" in fit(x, y).trust.reason
    against = fit(x, np.random.default_rng(3).permutation(y)).trust
    assert against.trusted == (against.p <= TRUSTED_BELOW)


@pytest.mark.parametrize("ratings", [np.ones(20), -np.ones(20), np.array([1.0, -1.0])])
def test_one_sign_or_too_few_are_never_trusted(ratings):
    x = np.random.default_rng(0).normal(size=(len(ratings), 8))
    for ridge in (40.0, None):
        head = fit(x, ratings, ridge=ridge)
        assert not head.trust.trusted
        assert head.trust.reason
        assert np.isfinite(head.predict(x)).all()


def test_constant_features_and_repeated_answers_do_no_harm():
    x, y = data(20, 6)
    x[:, 2] = 4.0
    x[1] = x[0]
    head = fit(x, y)
    assert np.isfinite(head.predict(x)).all()
    assert head.weights[2] == pytest.approx(0.0, abs=1e-12)


def test_same_input_same_bits():
    x, y = data()
    one, other = fit(x, y), fit(x, y)
    assert np.array_equal(one.weights, other.weights)
    assert np.array_equal(one.left_out, other.left_out)


@pytest.mark.parametrize(
    ("x", "y"), [([[1.0, np.nan]], [1.0]), ([[1.0]], [1.0, 2.0]), (np.empty((0, 3)), [])]
)
def test_what_cannot_be_fitted_is_refused(x, y):
    with pytest.raises(ValueError):
        fit(x, y)
