"""Ratings as the reader takes them: scores by their ranks among the person's own.

Scores are stored, shown and signed as ``clawback.scales`` centres them. Where most scores of a person are close together and a few are far off, centred
values are little more than those few. So the reader takes the rank of each score, moved so that the lowest is -1, the highest 1 and the mean 0:

    u = (rank - lowest rank) / (highest rank - lowest rank),    value = (u - m) / (1 - m) for u >= m, (u - m) / m otherwise,    m = mean u

Taps are what they were: of two values one is -1 and the other 1. Thirty tens beside two ones are thirty times 1 and twice -1. Up to ``FEW`` scores count
as they are centred, from ``MANY`` on their ranks do, and in between both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clawback.records import Sample
from clawback.rewards.measures import ranks
from clawback.rewards.rating_likelihood import COMPARED, GUESSED, RATED
from clawback.scales import FEW, MANY

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def reader_values(samples: Sequence[Sample]) -> Floats:
    """``[n]`` what was said of the samples, in [-1, 1], with scores by rank. What is no rating by itself (edits, comparisons, means of several
    people, credit from a later turn) stays as it is."""
    values = np.array([one.feedback_value for one in samples], dtype=np.float64)
    strongest: dict[int, float] = {}
    for sample in samples:
        for part in sample.parts:
            strongest[part.feedback_id] = max(strongest.get(part.feedback_id, 0.0), abs(part.value))
    places = [i for i, one in enumerate(samples) if _is_rating(one, strongest)]
    if any(0 < abs(values[i]) < 1 for i in places):
        values[places] = by_rank(values[places])
    return values


def feedback_kinds(samples: Sequence[Sample]) -> Ints:
    """``[n]`` the kind of feedback that each sample's value comes from (``rating_likelihood``): of several the most direct."""
    return np.array([_kind(sample) for sample in samples], dtype=np.int64)


def _kind(sample: Sample) -> int:
    kinds = {part.kind for part in sample.parts}
    if not kinds or kinds & {"rating", "reward", "judge"}:
        return RATED
    return COMPARED if kinds & {"preference", "edit"} else GUESSED


def _is_rating(sample: Sample, strongest: dict[int, float]) -> bool:
    if len(sample.parts) != 1:
        return False
    [part] = sample.parts
    return part.kind == "rating" and abs(part.value) >= strongest[part.feedback_id]


def by_rank(values: Floats) -> Floats:
    """``[n]`` values in [-1, 1] by their ranks, the ends held and the mean at 0."""
    if len(values) <= FEW or np.ptp(values) == 0:
        return values
    place = ranks(values)
    place = (place - place.min()) / np.ptp(place)
    mean = place.mean()
    ranked = np.where(place >= mean, (place - mean) / (1 - mean), (place - mean) / mean)
    share = min((len(values) - FEW) / (MANY - FEW), 1.0)
    return np.asarray(share * ranked + (1 - share) * values)
