"""Wishes of simulated people that the product has no words for: those that are reported, and those that settings may be chosen on.

No word of a wish (what its check looks for, its name, its remark) occurs in the product's sentences, style features, text statistics or remarks, nor in the
tastes of earlier benchmarks; ``tests/rewards/test_wishes.py`` compares them. Half are about form (visible without understanding), half about content. Each was
chosen for how often SmolLM2's own answers meet it (between one and six times in ten), before anything was learned of it. Function words count as no words.
"""

from __future__ import annotations

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


def _mentions(*alternatives: str) -> Holds:
    pattern = re.compile(rf"\b(?:{'|'.join(alternatives)})\b", re.IGNORECASE)
    return lambda _, answer: bool(pattern.search(answer))


def _without(pattern: str) -> Holds:
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda _, answer: not compiled.search(answer)


def _share(pattern: str) -> Callable[[str], float]:
    """The share of an answer's words that look like this."""
    compiled = re.compile(pattern)
    return lambda answer: sum(bool(compiled.fullmatch(w)) for w in _words(answer)) / max(1, len(_words(answer)))  # fmt: skip


_PASSIVE = r"\b(?:is|are|was|were|be|been|being)\s+(?:\w+ly\s+)?\w+(?:ed|wn|lt|ung)\b"
_ADVERB = r"\b(?!(?:only|early|reply|apply|supply)\b)\w{2,}ly\b"
_TRIPLE = r"\w+, (?:\w+ ){0,3}?\w+,? and \w+"
_abstract = _share(r"\w{3,}(?:tions?|ments?|ness|ity|ities|ance|ence)")
_past = _share(r"was|were|had|did|\w+ed")
_genitive = _share(r"of")

TEST = (
    Wish("active voice", True, _without(_PASSIVE), "Put it into the active voice."),
    Wish("no adverbs", True, _without(_ADVERB), "Adverbs annoy me."),
    Wish("no triples", True, _without(_TRIPLE), "Triples of nouns tire me."),
    Wish("verbal", True, lambda _, a: _abstract(a) < 0.04, "Verbs over abstractions."),
    Wish("past tense", True, lambda _, a: _past(a) > 0.05, "Narrate it in the past tense."),
    Wish("few genitives", True, lambda _, a: _genitive(a) < 0.02, "Untangle the genitives."),
    Wish("somewhere on a map", False, _mentions("world", "city", "cities", "nations?", "towns?", "europ\\w*", "asia\\w*", "africa\\w*", "france", "french", "paris", "london", "engl\\w+", "british", "chin\\w+", "india\\w*", "japan\\w*", "german\\w*", "ital\\w+", "mexic\\w+", "california\\w*", "york", "north\\w*", "south\\w*", "east\\w*", "west\\w*"), "I want it on the map."),
    Wish("appeals to the senses", False, _mentions("colou?r\\w*", "red", "blue", "green", "black", "white", "golden", "loud\\w*", "quiet\\w*", "sweet\\w*", "bitter", "smell\\w*", "sounds?", "smooth", "bright\\w*", "dark\\w*", "textures?", "flavou?r\\w*", "crisp\\w*", "shiny", "shines?"), "I miss colours, sounds and smells."),
    Wish("compares", False, _mentions("than", "similar\\w*", "compar\\w+", "unlike", "as \\w+ as", "resembl\\w+"), "Compare it to its rivals."),
    Wish("what it is worth", False, _mentions("benefi\\w+", "advantag\\w+", "improv\\w+", "boost\\w*", "valuable", "effective\\w*", "worth\\w*"), "What is the benefit?"),
    Wish("obstacles", False, _mentions("difficult\\w*", "hard\\w*", "challeng\\w+", "struggl\\w+", "obstacle\\w*", "limited", "limitations?", "barriers?", "lack\\w*", "complex\\w*"), "Which obstacles are there?"),
    Wish("when, by the clock or the calendar", False, _mentions("today", "daily", "days?", "weeks?", "weekly", "hours?", "months?", "mornings?", "evenings?", "nights?", "century", "centuries", "decades?", "nowadays", "recent\\w*"), "When does that happen?"),
)  # fmt: skip
"""What is reported. Nothing may be chosen on these."""

DEVELOPMENT = (
    Wish("no expletives", True, _without(r"\bthere (?:is|are|was|were)\b"), "Dummy subjects bore me."),
    Wish("nouns lead", True, lambda _, a: not any(re.match(r"\W*(?:this|these|that|it|they)\b", s, re.I) for s in _sentences(a)), "Pronouns in front confuse me."),
    Wish("no superlatives", True, _without(r"\b(?:\w{3,}iest|largest|biggest|highest|oldest|fastest|strongest|greatest)\b"), "Superlatives are for adverts."),
    Wish("money", False, _mentions("costs?", "prices?", "expensive", "cheap\\w*", "budgets?", "afford\\w*", "pay\\w*", "money", "dollars?", "incomes?", "sell\\w*", "buy\\w*", "financ\\w+"), "And the price?"),
    Wish("togetherness", False, _mentions("team\\w*", "together", "communit\\w+", "collab\\w*", "partner\\w*", "support\\w*"), "Who joins in?"),
    Wish("choices", False, _mentions("choos\\w+", "choices?", "decid\\w+", "decisions?", "prefer\\w*", "select\\w*", "pick\\w*"), "Which choice remains?"),
)  # fmt: skip
"""What settings may be chosen on."""
