"""Easy to hard: clear ratings of short answers before doubtful ones of long answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from clawback.records import Sample

By = Literal["reward", "length", "both"]


def easy_first(
    samples: Sequence[Sample], by: By = "both", length_of: Sequence[int] | None = None
) -> list[Sample]:
    """The samples in order of difficulty; ties stay as they were.

    ``reward``: how far from doubtful, 1 − |r|. ``length``: of the response, in characters or as ``length_of`` has it.
    ``both``: the mean of the two ranks, ties sharing theirs, so that neither's scale matters.
    """
    doubt = [1 - abs(s.reward) for s in samples]
    length = [len(s.response) for s in samples] if length_of is None else list(length_of)
    hard: Sequence[float] = doubt if by == "reward" else length
    if by == "both":
        hard = [a + b for a, b in zip(ranks(doubt), ranks(length), strict=True)]
    return [samples[i] for i in sorted(range(len(samples)), key=lambda i: hard[i])]


def stages(samples: Sequence[Sample], count: int) -> list[list[Sample]]:
    """Growing sets for ``count`` stages of training: the easiest 1/count first, all of them in the last. Easy ones stay in, so that
    what was learned from them is not lost."""
    return [list(samples[: -(-len(samples) * (stage + 1) // count)]) for stage in range(count)]


def ranks(values: Sequence[float]) -> list[float]:
    """1 for the smallest; equal values share the mean of their ranks."""
    order = sorted(values)
    first: dict[float, int] = {}
    last: dict[float, int] = {}
    for place, value in enumerate(order, 1):
        first.setdefault(value, place)
        last[value] = place
    return [(first[v] + last[v]) / 2 for v in values]
