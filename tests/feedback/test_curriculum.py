"""Easy before hard, and easy ones stay."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from clawback.feedback.curriculum import easy_first, ranks, stages
from clawback.records import Sample


def made(*of: tuple[float, int]) -> list[Sample]:
    return [Sample(i, (), "x" * length, reward) for i, (reward, length) in enumerate(of)]


def order(samples: list[Sample]) -> list[int]:
    return [s.turn_id for s in samples]


def test_by_reward_by_length_and_by_both() -> None:
    samples = made((0.1, 10), (-1.0, 500), (1.0, 20), (0.5, 5))
    assert order(easy_first(samples, "reward")) == [1, 2, 3, 0]
    assert order(easy_first(samples, "length")) == [3, 0, 2, 1]
    assert order(easy_first(samples)) == [3, 2, 1, 0]  # ranks 4+2, 1½+4, 1½+3, 3+1
    assert order(easy_first(samples, "length", [1, 2, 3, 4])) == [0, 1, 2, 3]


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), max_size=20))
def test_ranks_are_average_ranks(values: list[float]) -> None:
    assert ranks(values) == pytest.approx(list(stats.rankdata(values)))


@given(st.integers(0, 30), st.integers(1, 6))
def test_stages_grow_to_all(size: int, count: int) -> None:
    samples = made(*[(1.0, n) for n in range(size)])
    steps = stages(samples, count)
    assert len(steps) == count
    assert order(steps[-1]) == order(samples)
    for before, after in itertools.pairwise(steps):
        assert order(after)[: len(before)] == order(before)
