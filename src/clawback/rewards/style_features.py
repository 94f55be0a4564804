"""Style features of an answer, visible in its text: its length, its lists, its tone, its units.

What people like about answers is, for the most part, one of a few well-known properties: evaluations of chat models
control for length and markup before they compare anything else (Dubois et al. 2024, length-controlled AlpacaEval; Chatbot Arena's style
control), and style transfer speaks of formality and politeness. A reward head that knows them by name needs a fraction of the ratings that
one on hidden states alone needs (research/studies/2026-11-21-more-from-the-same-taps.md). Words are looked for in English; of an answer in another language, marks, numbers
and lengths remain.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

EMOJI = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]")
_ITEM = re.compile(
    r"^[ \t]*(?:[-*•]|\d{1,3}[.)])\s", re.MULTILINE
)  # [ \t]: with \s a run of blank lines takes quadratic time


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})\b")


def _unit(*names: str) -> re.Pattern[str]:
    return re.compile(rf"\d\s?(?:{'|'.join(names)})(?![a-z])")


_CASUAL = _words(
    "hey", "hi", "yeah", "yep", "nope", "okay", "ok", "sure thing", "no problem", "no worries", "gonna", "wanna", "kinda", "stuff", "guys",
    "folks", "cool", "awesome", "grab", "a lot", "lots", "super", "(?:it|that|what|there|here|let)'s", r"[a-z]+'(?:ll|re|ve|d|m)", r"[a-z]+n't",
)  # fmt: skip
_FORMAL = _words(
    "certainly", "of course", "please", "kindly", "therefore", "however", "furthermore", "moreover", "additionally", "regarding", "would",
    "shall", "one (?:should|may|must)", "approximately", "typically",
)  # fmt: skip
_APOLOGY = _words("sorry", "apolog(?:y|ies|i[sz]e)", "unfortunately", "regret", "excuse me")
_HEDGE = _words(
    "may", "might", "could", "perhaps", "possibly", "probably", "usually", "roughly", "approximately", "var(?:y|ies)", "depends?", "careful",
    "caution", "note that", "not sure", "consult",
)  # fmt: skip
_GREETING = re.compile(
    r"^\W*(?:sure|certainly|of course|absolutely|great|no problem|okay|ok|yes|happy to|thanks?)\b"
)
_METRIC = _unit(
    "kg", "g", "grams?", "km", "cm", "mm", "m", "ml", "l", "lit(?:re|er)s?", "(?:kilo|centi)?met(?:re|er)s?", "square km",
    "(?:degrees )?celsius", "°c",
)  # fmt: skip
_IMPERIAL = _unit(
    "lbs?", "pounds?", "oz", "(?:fluid )?ounces?", "(?:square )?miles?", "feet", "foot", "ft", "inch(?:es)?", "yards?", "gallons?", "cups?",
    "(?:degrees )?fahrenheit", "°f",
)  # fmt: skip
_ORDER = _words("first", "second", "third", "then", "next", "finally", "lastly", "after that")
_YOU = _words("you", "your")
_I = _words("i", "me", "my", "we", "our")
_SENTENCE = re.compile(r"[.!?](?:\s|$)")
_MARKUP = re.compile(r"\*\*|^#|```|^\|", re.MULTILINE)


def _last(text: str) -> str:
    return EMOJI.sub("", text).rstrip()[-1:]


SIGNS: dict[str, Callable[[str], bool]] = {
    "list": lambda text: len(_ITEM.findall(text)) >= 2,
    "emoji": lambda text: bool(EMOJI.search(text)),
    "asks back": lambda text: _last(text) == "?",
    "exclaims": lambda text: "!" in text,
    "casual": lambda text: bool(_CASUAL.search(text)),
    "formal": lambda text: bool(_FORMAL.search(text)),
    "apology": lambda text: bool(_APOLOGY.search(text)),
    "hedge": lambda text: bool(_HEDGE.search(text)),
    "greeting": lambda text: bool(_GREETING.search(text)),
    "metric": lambda text: bool(_METRIC.search(text)),
    "imperial": lambda text: bool(_IMPERIAL.search(text)),
    "number": lambda text: any(c.isdigit() for c in text),
    "order": lambda text: bool(_ORDER.search(text)),
    "you": lambda text: bool(_YOU.search(text)),
    "I": lambda text: bool(_I.search(text)),
    "colon": lambda text: ":" in text,
    "markup": lambda text: bool(_MARKUP.search(text)),
}
"""What is there or not."""

COUNTS: dict[str, Callable[[str], float]] = {
    "words": lambda text: math.log1p(len(text.split())),
    "sentences": lambda text: math.log1p(len(_SENTENCE.findall(text))),
    "items": lambda text: math.log1p(len(_ITEM.findall(text))),
    "words a line": lambda text: (
        len(text.split()) / max(1, sum(bool(line.strip()) for line in text.split("\n")))
    ),
}
"""What there is more or less of."""

NAMES = (*SIGNS, *COUNTS)


def manner(texts: Sequence[str]) -> Floats:
    """``[S, len(NAMES)]`` style features of texts: signs as 0 or 1, then counts."""
    rows = [_row(text) for text in texts]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(NAMES))


@lru_cache(maxsize=2048)
def _row(text: str) -> tuple[float, ...]:
    """Kept, since what shows how answers vary is looked at again. In lower case once: a pattern that ignores case takes several times as long."""
    text = text.lower()
    return tuple(float(of(text)) for of in (*SIGNS.values(), *COUNTS.values()))
