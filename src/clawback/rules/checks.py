"""Checks by code: what can be counted in an answer, and a small language that says what it has to be like.

Fenced code is not counted: ``i`` in a loop is not the first person, and a program's lines are no sentences. Every pattern is linear.

A check is one or more clauses, all of which an answer has to meet, with ``; `` between them::

    words <= 80                   a measure (``MEASURES``) and a bound: <=, >= or =
    list = no                     what must be there (yes) or must not (no)
    says "however" = no           a phrase, as whole words
    starts with "Sure" = no       the first words;   ends with "Cheers" = yes   the last
    ends with question = yes
    language = de                 the language of the prose (``lexicon.NAMES``)
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from clawback.records import Rule
from clawback.rules.lexicon import NAMES as LANGUAGES
from clawback.rules.lexicon import language_of
from clawback.rules.phrases import parse

LONGEST_TEXT = 200_000
"""Characters of an answer that are read."""

EMOJI = re.compile("[\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff\u2600-\u27bf\u2b50\u2b55]")
_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)", re.MULTILINE)
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]|[^\W_]+(?:['’.,\-/&@][^\W_]+)*")
_SPACE = re.compile(r"\s+")
_BULLET = re.compile(r"^[ \t]*[-*•+‣◦–][ \t]+\S", re.MULTILINE)
_NUMBERED = re.compile(r"^[ \t]*\(?(?:\d{1,3}|[a-zA-Z])[.)][ \t]+", re.MULTILINE)
_NUMBERS_OF_ITEMS = re.compile(r"^[ \t]*\(?\d{1,3}[.)](?=[ \t])", re.MULTILINE)
_HEADING = re.compile(r"^[ \t]{0,3}#{1,6}[ \t]+\S", re.MULTILINE)
_TABLE_ROW = re.compile(r"^[ \t]*\|[^\n|]*\|", re.MULTILINE)
_BOLD = re.compile(r"(?:\*\*|__)(?=[^\s*_])[^*_\n]{1,300}(?:\*\*|__)")
_LINK = re.compile(r"\bhttps?://|\bwww\.[a-z0-9]", re.IGNORECASE)
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_END = re.compile(r"[.!?…。！？]+[\"'”’)\]*_]*(?=\s|$)|[。！？]")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|dr|mr|mrs|ms|prof|st|vs|etc|approx|fig|cf|no|u\.s|u\.k|a\.m|p\.m|[A-Z])|^\s{0,20}\(?(?:\d{1,3}|[A-Za-z]))$",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"\d")
_FIRST = re.compile(
    r"(?<![\w.])(?:(?<!War )(?<!Part )(?<!Type )(?<!Phase )(?<!Chapter )(?<!Volume )(?<!Class )I(?![\w.-])|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself|[Ww]e|[Uu]s"
    r"|[Oo]urs?|[Oo]urselves)(?!\w)"
)
_SECOND = re.compile(r"\b(?:you|your|yours|yourself|yourselves)\b", re.IGNORECASE)
_APOLOGY = re.compile(r"\b(?:sorry|apolog(?:y|ies|i[sz]e[sd]?|i[sz]ing)|my bad|forgive me)\b", re.IGNORECASE)
_CONTRACTION = re.compile(
    r"\b[a-z]+(?:n['’]t|['’](?:ll|re|ve|d|m))\b|\b(?:it|that|there|here|what|who|let|he|she)['’]s\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Text:
    """An answer, cut up once for all measures."""

    answer: str

    @cached_property
    def fences(self) -> int:
        return len(_FENCE.findall(self.answer[:LONGEST_TEXT]))

    @cached_property
    def prose(self) -> str:
        """The text without fenced code. A fence that is never closed reaches to the end."""
        pieces, inside, start = [], False, 0
        text = self.answer[:LONGEST_TEXT].replace("\r\n", "\n")
        for match in _FENCE.finditer(text):
            if not inside:
                pieces.append(text[start : match.start()])
            inside, start = not inside, _line_end(text, match.end())
        return "".join([*pieces, "" if inside else text[start:]])

    @cached_property
    def words(self) -> list[str]:
        return _WORD.findall(self.prose)

    @cached_property
    def lines(self) -> list[str]:
        return [line for line in self.prose.split("\n") if line.strip()]

    @cached_property
    def sentences(self) -> list[int]:
        """Words of each sentence. A line's end ends one; an abbreviation or an item's number does not."""
        counts = []
        for line in self.lines:
            start = 0
            for match in _END.finditer(line):
                preceding = line[max(start, match.start() - 24) : match.start()]
                if match[0][0] == "." and _ABBREVIATION.search(preceding):
                    continue
                counts.append(len(_tokens(line[start : match.end()])))
                start = match.end()
            counts.append(len(_tokens(line[start:])))
        return [count for count in counts if count]

    @cached_property
    def bullets(self) -> int:
        return len(_BULLET.findall(self.prose))

    @cached_property
    def numbered(self) -> int:
        return len(_NUMBERED.findall(self.prose))


def _tokens(text: str) -> list[str]:
    """What is written between spaces and holds a letter or a digit; the number of an item is no word of its sentence."""
    text = _NUMBERS_OF_ITEMS.sub(" ", text)
    return [token for token in _SPACE.split(text) if any(map(str.isalnum, token))]


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end + 1


def _signs(*signs: str) -> Callable[[Text], int]:
    return lambda text: sum(text.prose.count(sign) for sign in signs)


def _matches(pattern: re.Pattern[str]) -> Callable[[Text], int]:
    return lambda text: len(pattern.findall(text.prose))


def _rows(text: Text) -> int:
    return len(_TABLE_ROW.findall(text.prose))


MEASURES: dict[str, Callable[[Text], int]] = {
    "words": lambda text: len(text.words),
    "characters": lambda text: len(text.answer.strip()),
    "sentences": lambda text: len(text.sentences),
    "paragraphs": lambda text: sum(bool(part.strip()) for part in _PARAGRAPH.split(text.prose)),
    "lines": lambda text: len(text.lines),
    "sentence words": lambda text: max(text.sentences, default=0),
    "word letters": lambda text: max((sum(map(str.isalpha, word)) for word in text.words), default=0),
    "list items": lambda text: text.bullets + text.numbered,
    "list": lambda text: int(text.bullets + text.numbered >= 2),
    "bullets": lambda text: int(text.bullets >= 2),
    "numbered list": lambda text: int(text.numbered >= 2),
    "headings": _matches(_HEADING),
    "table": lambda text: int(_rows(text) >= 2),
    "bold": _matches(_BOLD),
    "code block": lambda text: (text.fences + 1) // 2,
    "links": _matches(_LINK),
    "emoji": _matches(EMOJI),
    "numbers": lambda text: len(_DIGIT.findall(_NUMBERS_OF_ITEMS.sub("", text.prose))),
    "digits": _matches(_DIGIT),
    "capitals": lambda text: sum(map(str.isupper, text.prose)),
    "first person": _matches(_FIRST),
    "second person": _matches(_SECOND),
    "apology": _matches(_APOLOGY),
    "contractions": _matches(_CONTRACTION),
    "exclamation marks": _signs("!", "！"),
    "questions": _signs("?", "？"),
    "commas": _signs(",", "，", "、"),
    "semicolons": _signs(";", "；"),
    "colons": _signs(":", "："),
    "em dashes": _signs("—"),
    "brackets": _signs("(", "[", "（"),
    "parentheses": _signs("(", "（"),
    "quotation marks": _signs('"', "“", "”", "„", "«", "»"),
    "ellipses": _signs("...", "…"),
}
"""Name → how often it is there, in prose. What is only there or not is 0 or 1."""


def ends_with_question(text: Text) -> bool:
    """Whether the last sign is a question mark; quotes, emphasis and emoji after it do not count."""
    return EMOJI.sub("", text.prose).rstrip(" \t\n\u200d\ufe0f\"'”’)*_").endswith(("?", "？"))


def phrase(words: str) -> re.Pattern[str]:
    """Finds a phrase as whole words, whatever the case and the kind of apostrophe. "I" is the pronoun alone."""
    if words == "I":
        return re.compile(r"(?<![\w.])I(?![\w.-])")
    parts = [re.escape(part).replace("'", "['’]") for part in words.replace("’", "'").split()]
    start = r"(?<!\w)" if words[:1].isalnum() else ""
    end = r"(?!\w)" if words[-1:].isalnum() else ""
    return re.compile(start + r"\s{1,9}".join(parts) + end, re.IGNORECASE)


def first_words(text: Text, count: int) -> list[str]:
    """The first words in lower case, without the marks around them."""
    return [word.casefold() for word in _WORD.findall(text.prose[:2000])[:count]]


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
