"""Checks by code: a small language that says what an answer has to be like, and what evaluates it.

A check is one or more clauses, all of which an answer has to meet, with ``; `` between them::

    words <= 80                   a measure (``text_measures.MEASURES``) and a bound: <=, >= or =
    list = no                     what must be there (yes) or must not (no)
    says "however" = no           a phrase, as whole words
    starts with "Sure" = no       the first words;   ends with "Cheers" = yes   the last
    ends with question = yes
    language = de                 the language of the prose (``languages.NAMES``)
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import lru_cache

from clawback.records import Rule
from clawback.rules.languages import NAMES as LANGUAGES
from clawback.rules.languages import language_of
from clawback.rules.phrases import parse
from clawback.rules.text_measures import MEASURES, Text, ends_with_question, first_words, phrase

__all__ = ["MEASURES", "check_of", "clauses", "compiled", "keeps", "parse"]

Check = Callable[[str, str], float | None]
"""(question, answer) → 1 kept, 0 broken, None where the rule does not apply to that answer."""
Clause = Callable[[Text], bool | None]

LONGEST = 600
"""Characters of a check."""
MOST = 12
"""Clauses of a check."""

_BOUND = re.compile(r"([a-z][a-z ]{0,30}?) ?(<=|>=|=) ?(\d{1,6})")
_FEATURE = re.compile(r"(?:contains )?([a-z][a-z ]{0,30}?)(?: ?= ?(yes|no))?")
_TEXT = re.compile(r'(says|starts with|ends with) "([^"\n]{1,80})"(?: ?= ?(yes|no))?')
_QUESTION = re.compile(r"ends with question(?: ?= ?(yes|no))?")
_LANGUAGE = re.compile(r"language ?= ?([a-z]{2})")
_BETWEEN = re.compile(r';\s*(?=(?:[^"]*"[^"]*")*[^"]*$)')
_COMPARE = {"<=": operator.le, ">=": operator.ge, "=": operator.eq}


def check_of(rule: Rule) -> Check | None:
    """What tells by code whether an answer keeps the rule; None where only a judge can tell."""
    return compiled(rule.check)


@lru_cache(maxsize=512)
def compiled(check: str) -> Check | None:
    """The function of a check; None for "" and for what is no check."""
    tests = [_clause(clause) for clause in clauses(check)]
    if not tests or any(test is None for test in tests):
        return None

    def evaluate(question: str, answer: str) -> float | None:  # noqa: ARG001  (a judge reads the question)
        if not answer.strip():
            return None
        text = Text(answer)
        values = [test(text) for test in tests if test is not None]
        if False in values:
            return 0.0
        return None if None in values else 1.0

    return evaluate


def keeps(rule: Rule, question: str, answer: str) -> float | None:
    """Whether one answer keeps a rule that has a check by code; None where it has none, or does not apply."""
    check = check_of(rule)
    return check(question, answer) if check else None


def clauses(check: str) -> list[str]:
    """The clauses of a check, as they stand."""
    parts = _BETWEEN.split(check.strip()) if check.strip() and len(check) <= LONGEST else []
    return parts if len(parts) <= MOST else []


def _clause(text: str) -> Clause | None:
    if match := _LANGUAGE.fullmatch(text):
        return _in_language(match[1]) if match[1] in LANGUAGES.values() else None
    if match := _QUESTION.fullmatch(text):
        return _wanted(ends_with_question, match[1])
    if match := _TEXT.fullmatch(text):
        return _wanted(_phrase_test(match[1], match[2]), match[3]) if match[2].strip() else None
    if match := _BOUND.fullmatch(text):
        return _bounded(_measure(match[1]), match[2], int(match[3]))
    if match := _FEATURE.fullmatch(text):
        feature = _measure(match[1])
        return (
            _wanted(lambda answer: feature is not None and feature(answer) > 0, match[2]) if feature else None
        )
    return None


def _bounded(measure: Callable[[Text], int] | None, sign: str, bound: int) -> Clause | None:
    compare = _COMPARE[sign]
    return None if measure is None else (lambda answer: bool(compare(measure(answer), bound)))


def _measure(name: str) -> Callable[[Text], int] | None:
    """By its name, in the singular or the plural."""
    return MEASURES.get(name) or MEASURES.get(f"{name}s") or MEASURES.get(name.removesuffix("s"))


def _wanted(test: Callable[[Text], bool], value: str | None) -> Clause:
    wanted = value != "no"
    return lambda answer: test(answer) == wanted


def _in_language(code: str) -> Clause:
    def test(answer: Text) -> bool | None:
        return None if not (language := language_of(answer.prose)) else language == code

    return test


def _phrase_test(where: str, words: str) -> Callable[[Text], bool]:
    if where == "says":
        pattern = phrase(words)
        return lambda answer: bool(pattern.search(answer.prose))
    wanted = first_words(Text(words), 40)
    if not wanted:  # signs alone
        at = str.startswith if where == "starts with" else str.endswith
        return lambda answer: at(answer.prose.strip(), words.strip())
    if where == "starts with":
        return lambda answer: first_words(answer, len(wanted)) == wanted
    return lambda answer: [word.casefold() for word in answer.words[-len(wanted) :]] == wanted
