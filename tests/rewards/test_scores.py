"""The reader takes scores by rank; taps, edits and comparisons stay what they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

pytest.importorskip("numpy")

from clawback.records import Part, Sample
from clawback.rewards.rating_likelihood import (
    COMPARED,
    GUESSED,
    RATED,
    by_rank,
    feedback_kinds,
    reader_values,
)
from clawback.scales import MANY, value_of

scores = st.lists(st.integers(1, 10), min_size=MANY, max_size=40).filter(lambda some: len(set(some)) > 1)


def rated(values, kind="rating"):
    return [
        Sample(i, (), "Otters.", value, (Part(i, kind, value, 1.0),)) for i, value in enumerate(values, 1)
    ]


@given(scores)
def test_scores_are_their_ranks_with_the_ends_held_and_the_mean_at_zero(some):
    values = [value_of(score, "1-10") for score in some]
    found = reader_values(rated(values))
    assert (found.min(), found.max()) == (-1, 1)
    ranks = rankdata(values)
    assert (rankdata(found) == ranks).all()
    middle = np.abs(found) < 1
    if middle.any():  # linear in the rank on each side of the mean
        above, mean = ranks > ranks.mean(), ranks.mean()
        assert found[above] == pytest.approx((ranks[above] - mean) / (ranks.max() - mean))
        assert found[~above] == pytest.approx((ranks[~above] - mean) / (mean - ranks.min()))


@given(scores, st.floats(0.2, 5))
def test_only_the_order_of_scores_counts(some, power):
    values = np.array([value_of(score, "1-10") for score in some])
    bent = 2 * ((values + 1) / 2) ** power - 1
    assert by_rank(values) == pytest.approx(by_rank(bent))


def test_most_tens_beside_two_ones_stay_good_and_bad():
    values = [1.0] * 30 + [-1.0] * 2
    assert reader_values(rated(values)).tolist() == values
    nines = [1.0] * 30 + [0.8] * 2
    assert reader_values(rated(nines)).tolist() == values, "who else gives tens means something by a nine"


def test_what_is_no_score_stays_as_it_is():
    taps = [1.0, -1.0] * 10
    assert reader_values(rated(taps)).tolist() == taps
    compared = [0.5, -0.5] * 10
    assert reader_values(rated(compared, "preference")).tolist() == compared
    late = [Sample(1, (), "x", 0.5, (Part(9, "rating", 0.5, 1.0),)), Sample(2, (), "y", 1.0, (Part(9, "rating", 1.0, 1.0),))]  # fmt: skip
    assert reader_values(late).tolist() == [0.5, 1.0], "credit of a late rating is no score"


def test_few_scores_count_as_they_are_centred():
    assert reader_values(rated([0.2, 0.4, 0.6])).tolist() == [0.2, 0.4, 0.6]


def test_a_samples_kind_is_that_of_the_most_direct_word_about_it():
    kinds = ("rating", "reward", "judge", "preference", "edit", "implicit")
    samples = [sample for kind in kinds for sample in rated([0.5], kind)]
    assert feedback_kinds(samples).tolist() == [RATED] * 3 + [COMPARED] * 2 + [GUESSED]
    both = Sample(1, (), "Otters.", 0.5, (*samples[3].parts, *samples[0].parts))
    assert feedback_kinds([both]).tolist() == [RATED]
    assert feedback_kinds([]).shape == (0,)
