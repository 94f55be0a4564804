"""The simplest reward model: how much nearer an answer is to those that were liked than to those that were not.

    score = ½ + ¼ (mean cosine to liked answers − mean cosine to disliked ones)     in [0, 1]

on standardised vectors of any kind; here pooled hidden states of the base model (``Policy.features``). Nothing is trained, so it works
from the first two ratings on, and it is what a trained model has to beat. The mean over all of them did better than over the 10 or
100 nearest (research/benchmarks/2026-11-27-reward-model.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from clawback.errors import UsageError
from clawback.rewards.rating_likelihood import Floats


@dataclass(frozen=True, slots=True)
class Similarity:
    """``liked [a, d]`` and ``disliked [b, d]`` have length 1 a row; ``centre [d]`` and ``spread [d]`` are of all rated answers."""

    liked: Floats
    disliked: Floats
    centre: Floats
    spread: Floats

    def score(self, vectors: ArrayLike) -> Floats:
        """``[n, d]`` → ``[n]`` in [0, 1]."""
        x = _unit((np.atleast_2d(np.asarray(vectors, dtype=np.float64)) - self.centre) / self.spread)
        apart = self.liked.mean(0) - self.disliked.mean(
            0
        )  # the mean of cosines is the cosine-product with the mean
        return np.asarray(0.5 + 0.25 * (x @ apart), dtype=np.float64)


def fit(vectors: ArrayLike, values: ArrayLike) -> Similarity:
    """``vectors [n, d]`` of answers with ``values [n]``: above their mean is liked, the rest is not.

    Raises ``UsageError`` where all values are the same.
    """
    x, y = np.asarray(vectors, dtype=np.float64), np.asarray(values, dtype=np.float64)
    liked = y > y.mean()
    if not liked.any() or liked.all():
        raise UsageError("All answers were rated alike, so there is nothing to be near to or far from.")
    centre, spread = x.mean(0), np.maximum(x.std(0), 1e-8)
    x = _unit((x - centre) / spread)
    return Similarity(x[liked], x[~liked], centre, spread)


def _unit(x: Floats) -> Floats:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12), dtype=np.float64)
