"""Bayes over conjunctions, against a slow count of the same thing."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import beta, betainc

from clawback.rewards import rule_posterior
from clawback.rewards.rating_likelihood import WrongTaps
from clawback.rewards.rule_evidence import evidence
from clawback.rewards.rule_posterior import (
    LITERAL,
    RARE,
    TOKEN,
    WRONG_REMARK,
    Space,
    fit,
)


def answers(count=300, columns=6, seed=0):
    return np.random.default_rng(seed).random((count, columns)) < 0.5


def integral(agreement, count):
    """Of the likelihood over the share of wrong taps, uniform between 0 and ½."""
    wrong = count - agreement
    return 2 * beta(wrong + 1, agreement + 1) * betainc(wrong + 1, agreement + 1, 0.5)


def slow(base, manners, signs, ratings, asked, remark=None):
    """Every conjunction in turn, in plain loops: what is expected of the answers that are asked about."""
    columns = base.shape[1]
    literals = [(c, wanted) for c in range(columns) for wanted in (True, False)]
    total, expected = 0.0, np.zeros(len(asked))
    for size in (1, 2, 3):
        for parts in itertools.combinations(literals, size):
            tokens = sum(c >= manners for c, _ in parts)
            if len({c for c, _ in parts}) < size or tokens > 1 or (tokens and size == 3):
                continue

            def holds(row, parts=parts):
                return all(row[c] == wanted for c, wanted in parts)

            if not RARE < np.mean([holds(row) for row in base]) < 1 - RARE:
                continue
            agreement = sum(
                (1 + rating) / 2 if holds(row) else (1 - rating) / 2
                for row, rating in zip(signs, ratings, strict=True)
            )
            weight = LITERAL**-size * TOKEN**-tokens * integral(agreement, len(ratings))
            if remark:
                meant, about = remark
                lacks = {part for part in meant.items() if about[part[0]] != part[1]} or set(meant.items())
                weight *= 1 - WRONG_REMARK if lacks & set(parts) else WRONG_REMARK
            total += weight
            expected += weight * np.array([holds(row) for row in asked])
    return 2 * expected / total - 1


@pytest.mark.parametrize("remark", [None, {1: True, 4: False}])
def test_what_is_expected_equals_a_slow_count(monkeypatch, remark):
    monkeypatch.setattr(rule_posterior, "KEPT", 10_000)
    base, rng = answers(), np.random.default_rng(1)
    signs, asked = answers(9, seed=2), answers(20, seed=3)
    ratings = np.round(rng.uniform(-1, 1, 9), 1)
    space = Space.of(base, 4)
    said = space.remarked(remark, signs[0]) if remark else None
    mean, sd = fit(space, signs, ratings, said).predict(asked)
    about = (remark, signs[0]) if remark else None
    np.testing.assert_allclose(
        mean, slow(base, 4, signs, ratings, asked, about), atol=1e-3
    )  # agreements in parts are interpolated
    np.testing.assert_allclose(sd, np.sqrt(1 - mean**2))


def test_a_taste_of_three_parts_is_found_in_few_noisy_ratings():
    """And in a sixth of them with a remark on each answer that was not liked."""
    base, asked = answers(seed=4, columns=12), answers(400, seed=5, columns=12)
    wanted = {0: True, 5: False, 7: True}

    def likes(rows):
        return np.all([rows[:, c] == w for c, w in wanted.items()], axis=0)

    rng = np.random.default_rng(6)
    space = Space.of(base, 12)
    right = {}
    for count, talks in ((100, False), (16, False), (16, True)):
        scores = []
        for _ in range(5):
            signs = rng.random((count, 12)) < 0.5
            ratings = np.where(likes(signs) ^ (rng.random(count) < 0.1), 1.0, -1.0)
            said = np.zeros(len(space.literals))
            for row in signs if talks else ():
                missing = [(c, w) for c, w in wanted.items() if row[c] != w]
                if missing:
                    said += space.remarked(dict([missing[rng.integers(len(missing))]]), row)
            mean, _ = fit(space, signs, ratings, said).predict(asked)
            scores.append(np.mean((mean > 0) == likes(asked)))
        right[count, talks] = np.mean(scores)
    assert right[100, False] > 0.98
    assert right[16, True] > 0.98
    assert right[16, True] > right[16, False]


def test_a_remark_about_what_never_varies_says_nothing():
    base = answers()
    base[:, 2] = True
    space = Space.of(base, 6)
    assert 2 not in space.columns
    assert not space.remarked({2: False}, base[0]).any()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 40), st.integers(0, 5), st.integers(0, 2**31))
def test_expectations_are_ratings_and_repeat(count, columns, seed):
    base = answers(60, columns, seed)
    space = Space.of(base, columns // 2)
    ratings = np.random.default_rng(seed).uniform(-1, 1, count)
    if not len(space.literals):
        return
    signs = answers(count, columns, seed + 1)
    one, other = (fit(space, signs, ratings).predict(base) for _ in range(2))
    assert np.array_equal(one[0], other[0])
    assert (np.abs(one[0]) <= 1 + 1e-12).all()


def test_what_one_rating_says_about_another_answer():
    """Mean and covariance as those of many persons drawn from the hypotheses."""
    base, signs = answers(), answers(8, seed=2)
    taste = fit(Space.of(base, 4), signs, np.where(signs[:, 1], 1.0, -1.0))
    asked = answers(5, seed=3)
    mean, covariance = taste.joint(asked)
    np.testing.assert_allclose(mean, taste.predict(asked)[0])
    rng = np.random.default_rng(0)
    drawn = rng.choice(len(taste.weights), size=40_000, p=taste.weights)
    literals = taste.space.literals_of(asked)
    likes = 2.0 * literals[:, taste.literals[drawn]].all(axis=2) - 1  # [asked, persons]
    np.testing.assert_allclose(covariance, np.cov(likes, bias=True), atol=0.02)


def test_the_bayes_factor_is_one_of_two_distributions_over_all_ratings():
    """Under either hypothesis the probabilities of all 2⁷ ways to rate seven answers add up to one."""
    space, signs = Space.of(answers(), 4), answers(7, seed=5)
    total = mean = 0.0
    for taps in itertools.product((1.0, -1.0), repeat=7):
        good = taps.count(1.0)
        coin = math.factorial(good) * math.factorial(7 - good) / math.factorial(8)
        total += coin
        mean += coin * math.exp(evidence(space, signs, taps))
    assert (total, mean) == (pytest.approx(1), pytest.approx(1))


def test_the_bayes_factor_tells_a_taste_from_tosses():
    rng = np.random.default_rng(0)
    space, signs = Space.of(answers(), 4), answers(28, seed=6)
    wanted = signs[:, 0] & ~signs[:, 2]
    taste = [evidence(space, signs, np.where(wanted ^ (rng.random(28) < 0.1), 1, -1)) for _ in range(40)]
    tosses = [evidence(space, signs, rng.permutation(np.where(wanted, 1, -1))) for _ in range(40)]
    assert np.median(taste) > 3
    assert np.median(tosses) < 0
    assert evidence(Space.of(np.ones((5, 2), dtype=bool), 2), np.ones((3, 2), dtype=bool), [1, 1, -1]) == 0


@pytest.mark.parametrize("count", [1, 28, 200])
def test_the_share_of_wrong_taps_is_integrated_over(count):
    share = WrongTaps(count)
    agreements = np.arange(count + 1)
    expected = [integral(a, count) for a in agreements]
    np.testing.assert_allclose(np.exp(share.likelihoods(agreements)), expected, rtol=1e-6)
    # ∫ ε (1 − ε)^a ε^(n − a) dε is the same integral of one rating more, which disagrees.
    wrong = [integral(a, count + 1) / integral(a, count) for a in agreements]
    np.testing.assert_allclose(share.means(agreements), wrong, rtol=1e-6)


def test_more_ratings_never_speak_against_a_rule_that_three_in_ten_taps_contradict():
    """With a fixed share of wrong taps, its evidence falls with every rating."""
    base, rng = answers(columns=8, seed=3), np.random.default_rng(4)
    space = Space.of(base, 8)
    found = []
    for count in (40, 160, 640):
        signs = answers(count, seed=count, columns=8)
        ratings = np.where(signs[:, 2] ^ (rng.random(count) < 0.3), 1.0, -1.0)
        found.append(evidence(space, signs, ratings))
        posterior = fit(space, signs, ratings)
    assert found == sorted(found)
    assert found[-1] > 20
    assert posterior.wrong == pytest.approx(0.3, abs=0.05)
