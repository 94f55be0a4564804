"""A curriculum from easy to hard: clear ratings of short answers before ambiguous ones of long answers (Bengio et al. 2009, Curriculum learning)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

By = Literal["reward", "length", "both"]
STAGES = 3


def easy_first(rewards: Sequence[float], lengths: Sequence[float], by: By = "both") -> list[int]:
    """Places in order of difficulty; ties stay as they were.

    ``reward``: how far from doubtful, 1 − |r|. ``length``: of the response. ``both``: the mean of the two ranks, ties sharing theirs, so that
    neither's scale matters.
    """
    doubt = [1 - abs(r) for r in rewards]
    hard: Sequence[float] = doubt if by == "reward" else lengths
    if by == "both":
        hard = [a + b for a, b in zip(ranks(doubt), ranks(lengths), strict=True)]
    return sorted(range(len(rewards)), key=lambda place: hard[place])


def sizes(count: int, number: int = STAGES) -> list[int]:
    """How many of ``count`` each stage has: the easiest 1/number first, all of them in the last. Easy ones stay in, so that what was
    learned from them is not lost."""
    return [-(-count * (stage + 1) // number) for stage in range(number)]


def stages(count: int, steps: int, number: int = STAGES) -> list[tuple[int, int]]:
    """(first step, size) of each stage of a run of ``steps``: in proportion to their sizes, so that each goes over what it has equally often."""
    of = sizes(count, number)
    before = accumulate(of[:-1], initial=0)
    return [(steps * done // max(1, sum(of)), size) for done, size in zip(before, of, strict=True)]


def ranks(values: Sequence[float]) -> list[float]:
    """1 for the smallest; equal values share the mean of their ranks."""
    order = sorted(values)
    first: dict[float, int] = {}
    last: dict[float, int] = {}
    for place, value in enumerate(order, 1):
        first.setdefault(value, place)
        last[value] = place
    return [(first[v] + last[v]) / 2 for v in values]
