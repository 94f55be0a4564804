"""Input features of an answer for the hidden-state reward model, computed by the engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clawback.features.text_statistics import text_statistics

Floats = NDArray[np.float64]
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Looks:
    """What a causal model makes of ``n`` answers: pooled hidden states ``[n, h]``, and the token ids of each; their shape ``[n, s]``."""

    states: Floats
    tokens: Sequence[Sequence[int]]
    shapes: Floats


def shape(prompt: str, response: str) -> list[float]:
    """How an answer is built: what stylometry counts (``text_statistics``), and before it log(1 + n) of its words, lines, list items and paragraphs, the share of different words, their mean length, the
    share of digits; and how it stands to its prompt: log(1 + n) of the prompt's words, the share of the answer's words that are the prompt's."""
    words, lines, asked = response.lower().split(), response.split("\n"), prompt.lower().split()
    items = sum(line.lstrip()[:2] in ("- ", "* ", "• ") or line.lstrip()[:1].isdigit() for line in lines)
    different = set(words)
    return [
        math.log1p(len(words)),
        math.log1p(len(lines)),
        math.log1p(items),
        math.log1p(sum(not line.strip() for line in lines)),
        len(different) / max(len(words), 1),
        sum(map(len, words)) / max(len(words), 1),
        sum(map(str.isdigit, response)) / max(len(response), 1),
        math.log1p(len(asked)),
        len(different & set(asked)) / max(len(different), 1),
        *text_statistics([response])[0],
    ]


Look = Callable[[Sequence[Pair]], Looks]
