"""The benchmark of kinds of feedback: ratings come in an order of their own, and not in that of the prompts."""

from __future__ import annotations

import pytest

from benchmarks.evidence import in_time
from clawback.records import Part, Sample


def rated(number: int, kind: str = "rating", value: float = 1.0) -> Sample:
    return Sample(number, (), "x", value, (Part(number, kind, value, 1.0),))


@pytest.mark.parametrize("seed", [0, 1])
def test_the_order_of_time_is_shuffled_by_the_seed_alone(seed: int) -> None:
    samples = [rated(number) for number in (7, 3, 90, 12, 55, 41)]
    found = in_time(samples, seed)
    assert [one.newest for one in found] == [1, 2, 3, 4, 5, 6]
    assert [one.turn_id for one in found] == [one.turn_id for one in in_time(samples[::-1], seed)]
    assert [one.turn_id for one in found] not in ([7, 3, 90, 12, 55, 41], [3, 7, 12, 41, 55, 90])


def test_both_samples_of_an_edit_are_given_at_once() -> None:
    pairs = [one for n in (5, 9, 2) for one in (rated(n, "edit", -0.5), rated(n, "edit", 1.0))]
    found = in_time(pairs, 0)
    assert [one.newest for one in found] == [1, 1, 2, 2, 3, 3]
    assert [one.reward for one in found] == [-0.5, 1.0] * 3
