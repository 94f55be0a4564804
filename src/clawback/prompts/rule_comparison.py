"""Compares the rules of prompts (their lines, by section): added, missing, equal in meaning, in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from clawback.prompts import sections as parts
from clawback.prompts.prompt import Prompt

Rule = tuple[str, str]
"""(section, line)."""

ALIKE = 0.6
"""Share of words in common from which on two lines are taken to say the same."""
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_NOT = re.compile(
    r"(?:no|not|never|nor|without|avoid|none|stop|don['’]?t|doesn['’]?t|cannot|can['’]?t|neither)"
)
_EMPTY = frozenset(["a", "an", "the", "to", "of", "in", "on", "at", "for", "and", "or", "be", "is", "are", "as", "it", "its", "that", "this", "with", "your", "you", "my", "i", "please", "always"])  # fmt: skip


def rules(prompt: Prompt) -> list[Rule]:
    """Every line with the section that it stands in, in order."""
    return [(section.name, line) for section in prompt.sections for line in section.rules]


def added(old: Prompt, new: Prompt) -> list[Rule]:
    """Lines of ``new`` that ``old`` has not."""
    had = set(rules(old))
    return [one for one in rules(new) if one not in had]


def missing(wanted: Iterable[Rule], prompt: Prompt) -> list[Rule]:
    """Those of ``wanted`` that the prompt neither has nor says in other words."""
    has = [line for _, line in rules(prompt)]
    return [one for one in wanted if not any(alike(one[1], line) for line in has)]


def with_earned(prompt: Prompt, earned: Sequence[Rule]) -> Prompt:
    """With the rules that won a race put back where a proposal left them out."""
    sections = prompt.sections
    for name, line in missing(earned, prompt):
        sections = parts.with_rule(sections, name, line)
    return Prompt(parts.render(sections), prompt.version, prompt.metadata, prompt.parent) if sections != prompt.sections else prompt  # fmt: skip


def merged(prompt: Prompt, other: Prompt, base: Prompt) -> Prompt:
    """``prompt`` with what ``other`` added to and took from ``base``, their common ancestor: no model is asked."""
    sections = prompt.sections
    came = set(rules(other))
    for name, line in rules(base):
        if (name, line) not in came:
            sections = parts.without_rule(sections, name, line)
    for name, line in added(base, other):
        if not any(alike(line, had) for section in sections for had in section.rules):
            sections = parts.with_rule(sections, name, line)
    return prompt.with_sections(sections, author="merge", other=other.id)


def alike(first: str, other: str) -> bool:
    """Whether two lines say the same, by their words. "Use emoji" and "Use no emoji" do not."""
    if first == other:
        return True
    a, b = _words(first), _words(other)
    if negated(first) != negated(other) or not a or not b:
        return False
    return len(a & b) / len(a | b) >= ALIKE


@lru_cache(maxsize=4096)
def negated(line: str) -> bool:
    """Whether a line forbids rather than asks."""
    return any(_NOT.fullmatch(word) for word in _WORD.findall(line.lower()))


def distance(prompt: Prompt, other: Prompt) -> float:
    """How far apart two prompts are in meaning, 0 to 1: share of lines on either side that the other does not say."""
    a, b = [line for _, line in rules(prompt)], [line for _, line in rules(other)]
    apart = sum(not any(alike(x, y) for y in b) for x in a) + sum(not any(alike(x, y) for y in a) for x in b)
    return apart / (len(a) + len(b)) if a or b else 0.0


@lru_cache(maxsize=4096)
def _words(line: str) -> frozenset[str]:
    return frozenset(_stem(w) for w in _WORD.findall(line.lower()) if w not in _EMPTY)


def _stem(word: str) -> str:
    """Without the commonest endings of English; other languages are compared as they are written."""
    for ending in ("ing", "ed", "es", "s", "ly"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            return word.removesuffix(ending).rstrip("e")
    return word.rstrip("e")
