"""Matches a remark to the features that it resembles: "use simpler words" is near to "Use short, simple words.".

Patterns cover the most common remarks (``rewards.remarks``). Any other is compared with the sentences that each feature has
(``rewards.instructions``): cosine of tf-idf weights over the beginnings of words, the vector space model (Salton, Wong & Yang 1975). That is too coarse to
be trusted ("do not quote" is nearer to "Quote words that matter." than to its opposite), so it never counts as evidence: it only sets which features are tried
first, and the ratings decide what is meant.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import lru_cache

from clawback.rewards.instructions import ASKED
from clawback.rewards.remarks import READ, Wish

STEM = 5
"""Letters of a word that are compared: "short" and "shorter", "sentence" and "sentences"."""

NEAR = 0.5
"""Similarity from which on a remark is taken to speak of the same thing."""

_WORD = re.compile(r"[^\W\d_]+")

Meant = tuple[str, bool]
"""A feature, and whether there should be more of it."""


def resembling(remark: str) -> dict[Meant, float]:
    """Similarity in (0, 1] of a remark to the sentence for more, or for less, of each feature; without those that it shares no word with."""
    said = _weighted(_stems(remark[:READ]))
    found = {
        meant: sum(weight * of.get(stem, 0.0) for stem, weight in said.items())
        for meant, of in _known().items()
    }
    return {meant: similarity for meant, similarity in found.items() if similarity > 0.0}


def near_to(remark: str) -> Wish:
    """The features that a remark is similar enough to that they may be meant."""
    near = sorted(resembling(remark).items(), key=lambda one: one[1])
    return {name: more for (name, more), similarity in near if similarity >= NEAR}


def _stems(text: str) -> Counter[str]:
    return Counter(word[:STEM] for word in _WORD.findall(text.lower()))


def _weighted(stems: Counter[str]) -> dict[str, float]:
    """tf-idf, of length 1."""
    rare = _rarity()
    most = math.log(len(ASKED) * 2 + 1)
    raw = {stem: (1 + math.log(count)) * rare.get(stem, most) for stem, count in stems.items()}
    length = math.sqrt(sum(value * value for value in raw.values())) or 1.0
    return {stem: value / length for stem, value in raw.items()}


@lru_cache(maxsize=1)
def _rarity() -> dict[str, float]:
    """Stem → inverse document frequency among the sentences."""
    sentences = [sentence for both in (ASKED).values() for sentence in both]
    within = Counter(stem for sentence in sentences for stem in _stems(sentence))
    return {stem: math.log((len(sentences) + 1) / (count + 1)) for stem, count in within.items()}


@lru_cache(maxsize=1)
def _known() -> dict[Meant, dict[str, float]]:
    return {
        (name, more): _weighted(_stems(sentence))
        for name, both in (ASKED).items()
        for more, sentence in zip((True, False), both, strict=True)
    }
