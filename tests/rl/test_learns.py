"""Each algorithm learns: what ``python -m benchmarks algorithms`` shows over five seeds, here on two."""

import pytest

from benchmarks.algorithms import p_value, run
from clawback.rl import algorithms


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*algorithms.names(), *algorithms.ENVIRONMENT}))
def test_it_is_better_afterwards(name):
    rows = [run(name, seed) for seed in (0, 1)]
    for row in rows:
        assert row["after"] > row["before"] + 0.15
        assert row.get("well_formed", 1.0) > 0.8


def test_the_p_value_is_of_a_paired_test():
    assert p_value([0.2, 0.3, 0.25], [0.6, 0.72, 0.66]) < 0.01
    assert p_value([0.2, 0.3, 0.25], [0.3, 0.2, 0.26]) > 0.3
    assert p_value([0.6, 0.7, 0.66], [0.2, 0.32, 0.25]) > 0.99
    assert p_value([0.1], [0.9]) == 1.0
