"""What a reward model on hidden states sees of an answer. The engine makes these."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Looks:
    """What a causal model makes of ``n`` answers: pooled hidden states ``[n, h]``, and the token ids of each; their shape ``[n, 5]``."""

    states: Floats
    tokens: Sequence[Sequence[int]]
    shapes: Floats


def shape(response: str) -> list[float]:
    """How an answer is built: log(1 + n) of its words, lines and list items, the share of different words, their mean length."""
    words, lines = response.lower().split(), response.split("\n")
    items = sum(line.lstrip()[:2] in ("- ", "* ", "• ") or line.lstrip()[:1].isdigit() for line in lines)
    return [
        math.log1p(len(words)),
        math.log1p(len(lines)),
        math.log1p(items),
        len(set(words)) / max(len(words), 1),
        sum(map(len, words)) / max(len(words), 1),
    ]


Look = Callable[[Sequence[Pair]], Looks]
