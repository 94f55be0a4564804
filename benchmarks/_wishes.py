"""Wishes of simulated people that the product has no words for: those that are reported, and those that settings may be chosen on.

No word of a wish (what its check looks for, its name, its remark) occurs in the product's sentences, style features, text statistics or remarks, nor in the
tastes of earlier benchmarks; ``tests/rewards/test_wishes.py`` compares them. Half are about form (visible without understanding), half about content. Each was
chosen for how often SmolLM2's own answers meet it (between one and six times in ten), before anything was learned of it. Function words count as no words.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

Holds = Callable[[str, str], bool]
"""(question, answer) → whether the wish is met."""


@dataclass(frozen=True, slots=True)
class Wish:
    """``remark``: what its person says of an answer that does not meet it."""

    name: str
    form: bool
    holds: Holds
    remark: str


def _sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?])\s+|\n+", text.strip()) if re.search(r"[A-Za-z]", part)]


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def mentions(*alternatives: str) -> Holds:
    pattern = re.compile(rf"\b(?:{'|'.join(alternatives)})\b", re.IGNORECASE)
    return lambda _, answer: bool(pattern.search(answer))


def _without(pattern: str) -> Holds:
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda _, answer: not compiled.search(answer)


def _share(pattern: str) -> Callable[[str], float]:
    """The share of an answer's words that look like this."""
    compiled = re.compile(pattern)
    return lambda answer: sum(bool(compiled.fullmatch(w)) for w in _words(answer)) / max(1, len(_words(answer)))  # fmt: skip


_TRIPLE = r"\w+, (?:\w+ ){0,3}?\w+,? and \w+"
_PROPER = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{2,}")
_genitive = _share(r"of")


def _culminates(answer: str) -> bool:
    """No sentence has more words than the last."""
    sizes = [len(_words(sentence)) for sentence in _sentences(answer)]
    return len(sizes) > 1 and sizes[-1] == max(sizes)


def _has_refrain(answer: str) -> bool:
    """A word of six letters and more comes four times."""
    every = _words(answer)
    return any(every.count(word) >= 4 for word in set(every) if len(word) >= 6)


def _alliterates(answer: str) -> float:
    """The share of words that begin like the one before."""
    every = _words(answer)
    return sum(a[0] == b[0] for a, b in itertools.pairwise(every)) / max(1, len(every))


def _tapers(answer: str) -> bool:
    """The second sentence has fewer words than the first."""
    sizes = [len(_words(sentence)) for sentence in _sentences(answer)[:2]]
    return len(sizes) == 2 and sizes[1] < sizes[0]


def _returns(question: str, answer: str) -> bool:
    """The last sentence takes up a long word of the question."""
    final = (_sentences(answer) or [""])[-1]
    return bool({word for word in _words(question) if len(word) > 4} & set(_words(final)))


TEST = (
    Wish("climax", True, lambda _, a: _culminates(a), "Build up to a climax."),
    Wish("refrain", True, lambda _, a: _has_refrain(a), "Where is the refrain?"),
    Wish("triples", True, lambda _, a: bool(re.search(_TRIPLE, a, re.I)), "Group nouns into triples."),
    Wish("grand entrance", True, lambda _, a: any(len(word) >= 9 for word in _words(a)[:5]), "Enter grandly."),
    Wish("few genitives", True, lambda _, a: _genitive(a) < 0.02, "Untangle the genitives."),
    Wish("odd", True, lambda _, a: len(_sentences(a)) % 2 == 1, "Odd is nicer."),
    Wish("proper nouns", False, lambda _, a: len(_PROPER.findall(a)) >= 2, "Who, exactly?"),
    Wish("somewhere on a map", False, mentions("world\\w*", "city", "cities", "nations?", "towns?", "europ\\w*", "asia\\w*", "africa\\w*", "france", "french", "paris", "london", "engl\\w+", "british", "chin\\w+", "india\\w*", "japan\\w*", "german\\w*", "ital\\w+", "mexic\\w+", "california\\w*", "york", "north\\w*", "south\\w*", "east\\w*", "west\\w*"), "I want it on the map."),
    Wish("returns to the subject", False, _returns, "Return to the subject."),
    Wish("evolution", False, mentions("becom\\w+", "chang\\w+", "develop\\w*", "evolv\\w*", "increas\\w*", "transform\\w*"), "How did it evolve?"),
    Wish("by the calendar", False, mentions("today", "daily", "days?", "weeks?", "weekly", "hours?", "months?", "mornings?", "evenings?", "nights?", "century", "centuries", "decades?", "nowadays", "recent\\w*", "modern", "ancient", "future", "always", "often", "sometimes", "histor\\w+", "seasons?", "summer", "spring", "winter", "ages?"), "When does that happen?"),
    Wish("worth", False, mentions("benefi\\w+", "advantag\\w+", "improv\\w+", "boost\\w*", "valuable", "effective\\w*", "worth\\w*", "essential\\w*", "necessary", "crucial\\w*", "ideal\\w*", "useful\\w*"), "What is the benefit?"),
)  # fmt: skip
"""What is reported. Nothing may be chosen on these."""

DEVELOPMENT = (
    Wish("initials chime", True, lambda _, a: _alliterates(a) > 0.08, "Chime, initials!"),
    Wish("tapering", True, lambda _, a: _tapers(a), "Taper off."),
    Wish("superlatives", True, lambda _, a: bool(re.search(r"\b(?:\w{3,}iest|largest|biggest|highest|oldest|fastest|strongest|greatest)\b", a, re.I)), "Superlatives impress."),
    Wish("obstacles", False, mentions("difficult\\w*", "hard\\w*", "challeng\\w+", "struggl\\w+", "obstacle\\w*", "limited", "limitations?", "barriers?", "lack\\w*", "complex\\w*"), "Which obstacles are there?"),
    Wish("definitions", False, mentions("refers? to", "called", "defin\\w+", "means", "types? of", "consists? of"), "And that means?"),
    Wish("senses", False, mentions("colou?r\\w*", "red", "blue", "green", "black", "white", "golden", "loud\\w*", "quiet\\w*", "sweet\\w*", "bitter", "smell\\w*", "sounds?", "smooth", "bright\\w*", "dark\\w*", "textures?", "flavou?r\\w*", "crisp\\w*", "shiny", "shines?"), "Colours, smells?"),
)  # fmt: skip
"""What settings may be chosen on."""
