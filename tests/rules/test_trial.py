"""The test of all rules at once: against a reference written out, and how often it believes what is not there."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from clawback.rules.rule_test import LEVEL, rule_tests


def correlated(rules: int, answers: int, seed: int) -> np.ndarray:
    """Verdicts of rules that resemble each other, as bounds on length do; a tenth is missing."""
    generator = np.random.default_rng(seed)
    shared = generator.normal(size=(1, answers))
    verdicts = (0.6 * shared + generator.normal(size=(rules, answers)) > 0).astype(float)
    verdicts[generator.random(verdicts.shape) < 0.1] = np.nan
    return verdicts


def test_the_statistic_is_the_point_biserial_correlation_over_the_answers_with_a_verdict() -> None:
    verdicts = correlated(5, 40, 0)
    ratings = np.random.default_rng(1).choice([-1.0, 1.0], 40)
    for row, test in zip(verdicts, rule_tests(verdicts, ratings, permutations=9), strict=True):
        there = ~np.isnan(row)
        expected = stats.pointbiserialr(row[there], ratings[there]).statistic * np.sqrt(there.sum())
        assert test.statistic == pytest.approx(expected)
        u = stats.mannwhitneyu(ratings[row == 1], ratings[row == 0]).statistic
        assert test.auc == pytest.approx(u / (test.passes * test.broken))
        assert (test.passes, test.broken) == ((row == 1).sum(), (row == 0).sum())


def test_adjusted_p_values_are_those_of_every_permutation_written_out() -> None:
    """Seven answers: all 35 orders of their ratings, and step-down max-T as in the book."""
    verdicts = np.random.default_rng(3).integers(0, 2, (4, 7)).astype(float)
    verdicts[:, :2] = [[1, 0]] * 4
    ratings = np.array([1, -1, 1, 1, -1, -1, 1.0])
    orders = [np.where(np.isin(range(7), liked), 1.0, -1.0) for liked in itertools.combinations(range(7), 4)]
    every = np.array([[np.corrcoef(row, order)[0, 1] * np.sqrt(7) for order in orders] for row in verdicts])
    there = np.array([np.corrcoef(row, ratings)[0, 1] * np.sqrt(7) for row in verdicts])
    rank = np.argsort(-there)
    expected, least = np.empty(4), 0.0
    for place, rule in enumerate(rank):
        least = max(least, (every[rank[place:]].max(axis=0) >= there[rule] - 1e-9).mean())
        expected[rule] = least
    found = [test.p for test in rule_tests(verdicts, ratings, permutations=20_000)]
    assert found == pytest.approx(list(expected), abs=0.02)


@pytest.mark.parametrize("ratings", [10, 32, 128])
def test_ratings_without_a_pattern_make_no_rule_believed(ratings: int) -> None:
    """Forty rules and a hundred people who toss a coin: in at most 5 % (and chance) is any believed."""
    wrong = 0
    for seed in range(100):
        verdicts = correlated(40, ratings, seed)
        taps = np.random.default_rng(1000 + seed).choice([-1.0, 1.0], ratings)
        wrong += any(test.believed for test in rule_tests(verdicts, taps, permutations=99, seed=seed))
    assert wrong <= stats.binom.ppf(0.999, 100, LEVEL)


def test_a_true_rule_is_believed_and_its_opposite_is_against() -> None:
    verdicts = correlated(40, 64, 7)
    verdicts[0] = np.arange(64) % 2
    verdicts[1] = 1 - verdicts[0]
    ratings = np.where(verdicts[0] == 1, 1.0, -1.0)
    ratings[:6] *= -1
    tests = rule_tests(verdicts, ratings)
    assert [i for i, test in enumerate(tests) if test.believed] == [0]
    assert [i for i, test in enumerate(tests) if test.against] == [1]
    assert tests[0].auc > 0.85
    assert tests[0].liked_kept > tests[0].liked_broken


def test_what_adds_nothing_beside_a_stronger_rule_points_to_it() -> None:
    generator = np.random.default_rng(5)
    short = (np.arange(128) % 2).astype(float)
    no_list = np.where(generator.random(128) < 0.2, 1 - short, short)
    polite = generator.integers(0, 2, 128).astype(float)
    ratings = np.where(
        short + polite >= 1.5, 1.0, np.where(short + polite > 0.5, generator.choice([-1.0, 1.0], 128), -1.0)
    )
    tests = rule_tests(np.array([no_list, short, polite]), ratings)
    assert [test.believed for test in tests] == [True, True, True]
    assert [test.explained_by for test in tests] == [1, -1, -1]


def test_scores_count_by_their_size_and_unsure_verdicts_not_at_all() -> None:
    verdicts = np.array([[1.0, 1, 1, 0, 0, 0] * 4, [0.5, 0.52, 0.48, 0.5, 0.5, 0.5] * 4])
    ratings = [1, 0.8, 0.6, 0.2, -0.2, 0.0] * 4
    sure, unsure = rule_tests(verdicts, ratings)
    assert sure.believed
    assert sure.liked_kept == pytest.approx(0.8)
    assert (unsure.passes + unsure.broken, unsure.statistic, unsure.believed) == (0, 0.0, False)


def test_nothing_to_test_is_no_error() -> None:
    assert rule_tests(np.empty((0, 3)), [1, 1, -1]) == []
    assert not rule_tests(np.full((2, 4), np.nan), [1, -1, 1, -1])[0].believed
    assert not rule_tests(np.ones((2, 0)), [])[0].believed
    assert not rule_tests(np.array([[1.0, 0, 1, 0]]), [1, 1, 1, 1])[0].believed
