"""Win rates: the logistic regression against scikit-learn's, order and length against judges whose leanings are known."""

from __future__ import annotations

import math
import random
import statistics

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from clawback.feedback.win_rate import RIDGE, PairJudgement, fit, win_rate


def judged(count: int, better: float, length: float, place: float = 0.0, seed: int = 0, longer: float = 0.0) -> list[PairJudgement]:  # fmt: skip
    """By a judge whose logits are known: how much better A is, what it gives for length (in standard deviations) and for standing first."""
    rng, made = random.Random(seed), []
    for _ in range(count):
        more = rng.gauss(longer, 1)
        logit = better + length * math.tanh(more)
        first = rng.random() < 1 / (1 + math.exp(-(logit + place)))
        second = rng.random() < 1 / (1 + math.exp(-(logit - place)))
        made.append(PairJudgement(first, second, 40 * more))
    return made


def test_the_fit_is_that_of_scikit_learn() -> None:
    found = judged(80, 0.4, 1.2)
    spread = statistics.pstdev([j.longer for j in found])
    x = np.array([[1.0, math.tanh(j.longer / spread)] for j in found])
    # Each verdict of a pair as half a case; the prior on the columns by scaling: λ_i (β_i)² = (β_i √λ_i)².
    scale = 1 / np.sqrt(np.array(RIDGE))
    rows, labels, weights = np.vstack([x, x]) * scale, [j.first for j in found] + [j.second for j in found], [0.5] * 160  # fmt: skip
    theirs = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-12, max_iter=10_000).fit(rows, labels, sample_weight=weights)  # fmt: skip
    assert fit(found) == pytest.approx(tuple(theirs.coef_[0] * scale), abs=1e-4)


def test_what_length_alone_wins_is_taken_out() -> None:
    """A is no better, but much longer: it wins often, and at equal length half."""
    found = win_rate(judged(400, 0.0, 2.0, longer=1.5), draws=100)
    assert found.rate > 0.75
    assert found.controlled_low < 0.5 < found.controlled_high
    assert found.length_effect > 1


def test_what_is_better_stays_better() -> None:
    found = win_rate(judged(300, 1.0, 1.0, longer=-0.5), draws=100)
    assert found.controlled == pytest.approx(1 / (1 + math.exp(-1)), abs=0.08)
    assert found.controlled > found.rate


def test_a_judge_that_only_takes_what_stands_first_says_nothing() -> None:
    found = win_rate([PairJudgement(True, False, float(n)) for n in range(30)], draws=50)
    assert (found.rate, found.ties, found.leans_first) == (0.5, 1.0, 1.0)
    assert found.controlled == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_pairs_that_all_go_one_way_are_no_certainty(count: int) -> None:
    found = win_rate([PairJudgement(True, True, 10.0 * n) for n in range(count)], draws=50)
    assert found.rate == 1.0
    assert 0.5 < found.controlled < 1.0
    assert math.isfinite(found.length_effect)


def test_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing"):
        win_rate([])
