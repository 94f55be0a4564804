"""Easy before hard, and easy ones stay."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from clawback.rl.curriculum import easy_first, ranks, sizes, stages


def test_by_reward_by_length_and_by_both() -> None:
    rewards, lengths = [0.1, -1.0, 1.0, 0.5], [10, 500, 20, 5]
    assert easy_first(rewards, lengths, "reward") == [1, 2, 3, 0]
    assert easy_first(rewards, lengths, "length") == [3, 0, 2, 1]
    assert easy_first(rewards, lengths) == [3, 2, 1, 0]  # ranks 4+2, 1½+4, 1½+3, 3+1


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), max_size=20))
def test_ranks_are_average_ranks(values: list[float]) -> None:
    assert ranks(values) == pytest.approx(list(stats.rankdata(values)))


@given(st.integers(1, 60), st.integers(1, 200), st.integers(1, 6))
def test_stages_grow_to_all_and_the_last_sees_each_once(count: int, per_step: int, number: int) -> None:
    of = sizes(count, number)
    assert of[-1] == count
    assert all(a <= b for a, b in itertools.pairwise(of))
    steps = -(-sum(of) // per_step)  # as many as it takes to go over each stage once
    found = stages(count, steps, number)
    assert [size for _, size in found] == of
    assert found[0][0] == 0
    assert all(a <= b for (a, _), (b, _) in itertools.pairwise(found))
    assert (steps - found[-1][0]) * per_step >= count
