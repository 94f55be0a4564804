"""Stylometric statistics of a text: lengths of sentences and words, variety, punctuation, layout. No word lists.

The measures are those of authorship attribution (Stamatatos 2009, "A survey of modern authorship attribution methods", lexical and
character features) and the inputs of the common readability formulas (letters a word, words a sentence: Smith & Senter 1967). They need no
language: a word is a run of letters, a sentence ends at a full stop of any script or at the end of a line. Han, kana and Thai, which
write without spaces, are counted by the character.
"""

from __future__ import annotations

import math
import re
import statistics
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

READ = 8000
"""Characters of a text that are looked at."""
OPENING = 60
"""Words among which variety is counted: it falls with the length of a text, so all are given the same."""
LONG_WORD = 8

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]|[^\W\d_]+(?:['’][^\W\d_]+)*")
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)]*\s+|(?<=[。！？])|\n+")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_MARKS = {
    "commas": ",，、،",
    "full stops": ".。",
    "exclamation marks": "!！",
    "question marks": "?？",
    "colons": ":：",
    "semicolons": ";；",
    "dashes": "-–—",
    "brackets": "()[]（）",
    "quotation marks": '"“”«»「」',
    "asterisks": "*_#`|",
}

NAMES = (
    "words a sentence", "spread of sentence lengths", "longest sentence", "first sentence", "last line",
    "sentences", "paragraphs", "words a paragraph", "longest paragraph", "lines", "words",
    "letters a word", "share of long words", "share of short words", "longest word",
    "different words", "words said once", "most said word", "compressed size",
    "capitals", "digits", "other letters", *_MARKS,
)  # fmt: skip


def text_statistics(texts: Sequence[str]) -> Floats:
    """``[S, len(NAMES)]``: counts and lengths as logarithms, rates as square roots (their spread then hardly depends on their mean)."""
    rows = [_row(text[:READ]) for text in texts]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(NAMES))


@lru_cache(maxsize=4096)
def _row(text: str) -> tuple[float, ...]:
    found = [len(words) for part in _SENTENCE.split(text) if (words := _WORD.findall(part))] or [0]
    words = _WORD.findall(text)
    lower = [word.lower() for word in words]
    sizes = [len(word) for word in words] or [0]
    paragraphs = [len(_WORD.findall(part)) for part in _PARAGRAPH.split(text) if part.strip()] or [0]
    lines = [line for line in text.split("\n") if line.strip()] or [""]
    opening = lower[:OPENING]
    times = Counter(lower)
    count, mean = max(len(words), 1), statistics.fmean(found)
    data = text.encode()
    return (
        math.log1p(mean),
        statistics.pstdev(found) / max(mean, 1.0),
        math.log1p(max(found)),
        math.log1p(found[0]),
        math.log1p(len(_WORD.findall(lines[-1]))),
        math.log1p(len(found)),
        math.log1p(len(paragraphs)),
        math.log1p(statistics.fmean(paragraphs)),
        math.log1p(max(paragraphs)),
        math.log1p(len(lines)),
        math.log1p(len(words)),
        statistics.fmean(sizes),
        sum(size >= LONG_WORD for size in sizes) / count,
        sum(size <= 3 for size in sizes) / count,
        math.log1p(max(sizes)),
        len(set(opening)) / max(len(opening), 1),
        sum(n == 1 for n in times.values()) / count,
        max(times.values(), default=0) / count,
        len(zlib.compress(data, 6)) / max(len(data), 1),
        math.sqrt(sum(word[0].isupper() for word in words) / count),
        math.sqrt(sum(c.isdigit() for c in text) / max(len(text), 1)),
        math.sqrt(sum(c.isalpha() and not c.isascii() for c in text) / max(len(text), 1)),
        *(math.sqrt(sum(text.count(mark) for mark in marks) / count) for marks in _MARKS.values()),
    )
