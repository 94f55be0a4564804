"""The Bayes factor of two shares: against an integral by SciPy, and what must hold of it whatever the counts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from scipy.special import beta

from clawback.release.proportions import larger

COUNTS = st.tuples(st.integers(0, 40), st.integers(0, 40))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [((8, 2), (5.5, 8.5)), ((9, 1), (1, 5)), ((3, 7), (3, 7)), ((1, 9), (8, 2)), ((19, 1), (12, 18)), ((10, 0), (0, 0))],
)  # fmt: skip
def test_it_is_the_ratio_of_two_integrals(ours: tuple[float, float], theirs: tuple[float, float]) -> None:
    def chance(counts: tuple[float, float], share: float) -> float:
        return share ** counts[0] * (1 - share) ** counts[1]

    same = integrate.quad(lambda t: chance(ours, t) * chance(theirs, t), 0, 1)[0]
    more = integrate.dblquad(lambda c, t: chance(ours, c) * chance(theirs, t) / (1 - t), 0, 1, lambda t: t, 1)[0]  # fmt: skip
    assert math.log(larger(ours, theirs)) == pytest.approx(math.log(more / same), abs=0.03)


def test_without_a_rating_it_says_nothing() -> None:
    assert larger((0, 0), (7, 3)) == 1.0


@given(COUNTS, COUNTS)
def test_it_is_a_number_and_one_more_good_rating_never_speaks_against_it(
    ours: tuple[int, int], theirs: tuple[int, int]
) -> None:
    before = larger(ours, theirs)
    assert math.isfinite(before)
    assert before >= 0
    if sum(ours):
        assert larger((ours[0] + 1, ours[1]), theirs) >= before * 0.999 or ours[0] >= ours[1]


def test_whoever_rates_at_random_is_believed_as_seldom_as_a_bayes_factor_may() -> None:
    """Its mean is 1 where both shares are the same, so it is over 13.3, which makes 0.93 of a coin toss, at most once in 13.3 (Markov); in truth far more seldom."""
    n = 10
    chance = {
        (a, b): math.comb(n, a) * math.comb(n, b) * beta(a + b + 1, 2 * n - a - b + 1)
        for a in range(n + 1)
        for b in range(n + 1)
    }
    factors = {(a, b): larger((a, n - a), (b, n - b)) for a, b in chance}
    assert sum(chance.values()) == pytest.approx(1)
    assert sum(chance[one] * factors[one] for one in chance) == pytest.approx(1, abs=0.03)
    assert sum(chance[one] for one in chance if factors[one] > 13.3) < 0.01
