"""Tastes on real answers, for ``benchmarks.reading``: some to choose settings on, others to report.

``INSIDE``: what the style features (``features.style_features``) have a name for, alone or together. ``OUTSIDE``: what they have not. Each set is
split in two: settings are chosen on ``development`` tastes alone, and the headline is that of the ``test`` tastes. Test tastes outside are those of
the review that found the gap, and three more kinds (tone, reading level, topic).
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from clawback.features.style_features import COUNTS, SIGNS

Measure = Callable[[str, str], float]
"""(prompt, answer) → how much of something there is."""

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_END = re.compile(r"(?<=[.!?])\s+|\n+")
_ITEM = re.compile(r"^[ \t]*(?:[-*•]|\d{1,3}[.)])\s", re.MULTILINE)


@dataclass(frozen=True)
class Taste:
    """Liked: every answer for which ``of`` is above its limit (or the median of all answers where there is none)."""

    name: str
    of: Measure
    limit: float | None = 0.5
    statistic: bool = field(default=False)
    """What is measured is, but for details, one of ``features.text_statistics``."""

    def fits(self, prompts: Sequence[str], texts: Sequence[str]) -> list[bool]:
        values = [self.of(p, t) for p, t in zip(prompts, texts, strict=True)]
        limit = statistics.median(values) if self.limit is None else self.limit
        return [value > limit for value in values]


def _sign(name: str) -> Callable[[str], bool]:
    return lambda text: SIGNS[name](text.lower())


def _count(name: str) -> Callable[[str], float]:
    return lambda text: COUNTS[name](text.lower())


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _sentences(text: str) -> list[list[str]]:
    return [words for part in _END.split(text) if (words := _words(part))] or [["-"]]


def _says(*alternatives: str) -> Measure:
    found = re.compile(rf"\b(?:{'|'.join(alternatives)})\b", re.IGNORECASE)
    return lambda _, text: len(found.findall(text))


def _paragraphs(text: str) -> list[str]:
    return [part for part in re.split(r"\n\s*\n", text) if part.strip()]


def _syllables(word: str) -> int:
    return max(1, len(re.findall(r"[aeiouy]+", word.removesuffix("e"))))


def _grade(text: str) -> float:
    """Flesch-Kincaid grade level (Kincaid et al. 1975)."""
    sentences = _sentences(text)
    words = [word for one in sentences for word in one]
    return 0.39 * len(words) / len(sentences) + 11.8 * sum(map(_syllables, words)) / len(words) - 15.59


def _alliterates(_: str, text: str) -> float:
    words = [word for word in _words(text) if len(word) > 3]
    return sum(a[0] == b[0] for a, b in itertools.pairwise(words)) / max(len(words), 1)


def _variety(_: str, text: str) -> float:
    words = _words(text)[:60]
    return len(set(words)) / max(len(words), 1)


def _overlap(prompt: str, text: str) -> float:
    first, asked = set(_sentences(text)[0]), set(_words(prompt))
    return len(first & asked) / max(len(first), 1)


def _spread(_: str, text: str) -> float:
    lengths = [len(one) for one in _sentences(text)]
    return -statistics.pstdev(lengths) / statistics.mean(lengths)


SEVERAL = re.compile(
    r"\b(?:list|some|steps?|ways|ideas|tips|examples|reasons|things|names|how (?:do|to|can)|recommend\w*)\b",
    re.I,
)
LONG = 140
"""Words: about the median of the answers."""
_list, _you, _exclaims, _hedge, _i = map(_sign, ("list", "you", "exclaims", "hedge", "I"))


def _short(text: str) -> bool:
    return len(text.split()) < LONG


INSIDE = {
    "development": (
        Taste("says you, no list", lambda _, t: _you(t) and not _list(t)),
        Taste("holds a number", lambda _, t: _sign("number")(t)),
        Taste("long, no exclamation", lambda _, t: not _short(t) and not _exclaims(t)),
        Taste("list, no hedge", lambda _, t: _list(t) and not _hedge(t)),
        Taste("first person, no list", lambda _, t: _i(t) and not _list(t)),
        Taste("markup or short lines", lambda _, t: -_count("words a line")(t), None),
    ),
    "test": (
        Taste("list", lambda _, t: _list(t)),
        Taste("short", lambda _, t: _short(t)),
        Taste("short and list", lambda _, t: _short(t) and _list(t)),
        Taste("prose, no exclamation", lambda _, t: not _list(t) and not _exclaims(t)),
        Taste("no hedge", lambda _, t: not _hedge(t)),
        Taste("no first person", lambda _, t: not _i(t)),
    ),
}

OUTSIDE = {
    "development": (
        Taste("contrasts", _says("but", "although", "though", "while", "whereas", "instead", "rather")),
        Taste("quotes something", lambda _, t: len(re.findall(r"[\"“”]", t)) >= 2),
        Taste("even sentences", _spread, None, statistic=True),
        Taste("two or three paragraphs", lambda _, t: 2 <= len(_paragraphs(t)) <= 3),
        Taste("many commas", lambda _, t: t.count(",") / max(len(t), 1), None, statistic=True),
        Taste("opens with the question's words", _overlap, None),
        Taste("about food and home", _says("food", "eat", "cook\\w*", "recipe", "water", "home", "house", "kitchen", "oil", "sugar", "family"), 1.5),
        Taste("offers alternatives", lambda _, t: len(re.findall(r"\bor\b", t)), 1.5),
        Taste("ends on a short line", lambda _, t: len(_words(t.rstrip().rsplit("\n", 1)[-1])) < 15),
        Taste("says you or short", lambda _, t: _you(t) or len(t.split()) < 60),
        Taste("short iff the question is", lambda p, t: _short(t) == (len(p.split()) < 20)),
        Taste("list unless asked a question", lambda p, t: _list(t) != ("?" in p)),
        Taste("praise", _says("great", "best", "good", "wonderful", "beautiful", "excellent", "perfect", "unique", "important")),
        Taste("-ing forms", lambda _, t: sum(w.endswith("ing") for w in _words(t)) / max(len(_words(t)), 1), None),
    ),
    "test": (
        Taste("gives a reason", _says("because", "since", "so that", "due to", "as a result", "therefore")),
        Taste("gives an example", _says("for example", "for instance", "such as", "e\\.g", "like the")),
        Taste("three to five items", lambda _, t: 3 <= len(_ITEM.findall(t)) <= 5),
        Taste("short sentences", lambda _, t: -statistics.mean(map(len, _sentences(t))), None, statistic=True),
        Taste("plain words", lambda _, t: -sum(len(w) >= 8 for w in _words(t)) / max(len(_words(t)), 1), None, statistic=True),
        Taste("wraps up at the end", lambda _, t: bool(re.search(r"\b(?:overall|in conclusion|in summary|hope|ultimately|remember|finally|enjoy|let me know)\b", t[-200:], re.I))),
        Taste("short paragraphs", lambda _, t: -statistics.mean(len(p.split()) for p in _paragraphs(t) or ["-"]), None),
        Taste("alliteration", _alliterates, None),
        Taste("people and feelings", _says("people", "person", "friends?", "family", "feel\\w*", "love\\w*", "happy", "emotion\\w*", "relationships?", "someone", "others"), 1.5),
        Taste("list or short", lambda _, t: _list(t) or len(t.split()) < 60),
        Taste("list iff asked for several", lambda p, t: _list(t) == bool(SEVERAL.search(p))),
        Taste("varied vocabulary", _variety, None, statistic=True),
        Taste("encouraging tone", _says("help\\w*", "hope", "enjoy\\w*", "great", "feel free", "success\\w*", "thank\\w*", "welcome"), 1.5),
        Taste("easy to read", lambda _, t: -_grade(t), None, statistic=True),
        Taste("about technology", _says("computers?", "data", "software", "technolog\\w*", "systems?", "online", "internet", "digital", "code", "programs?", "algorithms?", "website"), 0.5),
    ),
}  # fmt: skip

CONTENT = {
    "development": ("contrasts", "quotes something", "about food and home", "offers alternatives", "praise", "-ing forms"),
    "test": ("gives a reason", "gives an example", "wraps up at the end", "people and feelings", "encouraging tone", "about technology"),
}  # fmt: skip
"""Of the tastes outside, those about what is said, or with which words; the others are about layout, length and the question."""
