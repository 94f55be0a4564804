"""Spearman, isotonic regression, calibration and intervals against SciPy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.isotonic import IsotonicRegression

from clawback.extensions.reward import measures


@pytest.mark.parametrize("levels", [1000, 5])
def test_spearman_and_ranks_as_scipy_has_them(levels: int) -> None:
    rng = np.random.default_rng(levels)
    a, b = rng.integers(levels, size=200), rng.integers(levels, size=200)
    assert measures.spearman(a, a + b) == pytest.approx(stats.spearmanr(a, a + b)[0], abs=1e-12)
    np.testing.assert_allclose(measures.ranks(a), stats.rankdata(a))
    np.testing.assert_allclose(measures.shares(a), (stats.rankdata(a) - 0.5) / 200)


def test_spearman_of_something_constant_is_zero() -> None:
    assert measures.spearman([1, 1, 1], [1, 2, 3]) == 0.0


@pytest.mark.parametrize("levels", [10_000, 7])
def test_isotonic_as_scikit_learn_has_it(levels: int) -> None:
    rng = np.random.default_rng(levels)
    x = rng.integers(levels, size=300) / levels
    y = np.clip(x + rng.normal(0, 0.4, 300), 0, 1)
    asked = np.linspace(-0.2, 1.2, 57)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(x, y).predict(asked)
    np.testing.assert_allclose(measures.isotonic(x, y)(asked), theirs, atol=1e-9)


def test_a_reliability_table_by_hand() -> None:
    table = measures.reliability([0.1, 0.2, 0.8, 0.9], [0.0, 0.0, 1.0, 0.5], bins=2)
    assert [(b.count, round(b.predicted, 9), b.true) for b in table] == [(2, 0.15, 0.0), (2, 0.85, 0.75)]
    assert measures.calibration_error(table) == pytest.approx(0.5 * 0.15 + 0.5 * 0.10)


def test_intervals_draw_whole_prompts() -> None:
    """Ten copies of each row tell no more than one: the interval must not shrink by √10, as that over rows would."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=40)
    y = x + rng.normal(size=40)
    once = measures.interval(x, y, range(40))
    tenfold = measures.interval(np.repeat(x, 10), np.repeat(y, 10), np.repeat(np.arange(40), 10).tolist())
    assert once.low < once.value < once.high
    assert tenfold.high - tenfold.low == pytest.approx(once.high - once.low, rel=0.15)


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(4)
    truth = 6 / np.pi * np.arcsin(0.5 / 2)  # Spearman's ρ of a normal pair with correlation ½
    inside = 0
    for _ in range(50):
        x = rng.normal(size=80)
        y = 0.5 * x + np.sqrt(0.75) * rng.normal(size=80)
        found = measures.interval(x, y, range(80), count=100)
        inside += found.low <= truth <= found.high
    assert 41 <= inside <= 50


def test_being_ahead_is_paired() -> None:
    rng = np.random.default_rng(5)
    true = rng.normal(size=150)
    shared = rng.normal(size=150)
    ours, theirs = true + shared, true + shared + rng.normal(size=150)
    ahead = measures.ahead(ours, theirs, true, range(150))
    assert ahead.low > 0
    assert ahead.value == pytest.approx(measures.spearman(ours, true) - measures.spearman(theirs, true))
    same = measures.ahead(ours, ours, true, range(150))
    assert (same.low, same.value, same.high) == (0.0, 0.0, 0.0)
