"""Judged attributes: how surely an answer keeps each of some rules in words, as a judge or a check says.

The rules are believed or proposed ones ("Give an example."), of things that style features have no name for. Their verdicts are features like any
other: the ratings decide which of them this person cares about (attributes as a reward model's features: Go et al. 2024, arXiv:2310.13011; Drift,
arXiv:2502.14289). Whether a judge can be believed is decided before its verdicts come here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Judge = Callable[[Sequence[str], Sequence[str]], NDArray[np.float64]]
"""(questions, answers) → ``[S, k]`` how surely each answer keeps each of ``k`` rules, in [0, 1]; nan where that was not judged."""

THRESHOLD = 0.5
"""A verdict above this says that the rule is kept."""


def verdicts(judge: Judge, questions: Sequence[str], answers: Sequence[str]) -> Floats:
    """``[S, k]`` verdicts of a judge. Raises ``ValueError`` where they have another form."""
    values = np.asarray(judge(questions, answers), dtype=np.float64)
    if values.ndim != 2 or len(values) != len(answers):
        raise ValueError(f"a judge of {len(answers)} answers gave verdicts of the shape {values.shape}")
    if np.nanmin(values, initial=0.0) < 0.0 or np.nanmax(values, initial=1.0) > 1.0:
        raise ValueError("a verdict is a number from 0 to 1")
    return values


def usual(values: Floats) -> Floats:
    """``[k]`` mean verdict on each rule; ½ for one that was never judged."""
    judged = ~np.isnan(values)
    count = judged.sum(axis=0)
    sums = np.where(judged, values, 0.0).sum(axis=0)
    return np.where(count > 0, sums / np.maximum(count, 1), 0.5)
