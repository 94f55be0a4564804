"""Checks for what a prompt must not do, however well it scores: beg for ratings, hide, memorise answers, or obey somebody else.

A search finds what its judge likes, and that is not always what the person likes. These checks read the text
alone, before anything is spent on it: they catch the known tricks and prove nothing. A prompt that passes
them still has to win on unseen cases.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from clawback.prompts.prompt import Prompt
from clawback.prompts.search_types import Example
from clawback.release import screening
from clawback.rewards.composite import BANNED

RUN = 8
"""Words in a row that a prompt may not share with an answer or a question."""
SHORT = 3
"""Characters of a label below which it is found everywhere and proves nothing."""
GROWTH, ROOM = 4, 3000
"""A child may be so many times as long as its parent, and so many characters on top."""

_TRICKS: tuple[tuple[str, str], ...] = (
    (
        r"\b(?:this|my|the) (?:answer|response|reply) (?:is|was) (?:correct|perfect|excellent|verified|complete|the best)\b|\bverified (?:correct|by)\b",
        "it has answers praise themselves",
    ),
    (r"www\.|(?<![\w.+-])[\w.+-]++@[\w-]+\.\w+", "it brings in an address"),
    (
        r"<\|[^|\n]{1,30}\|>|\[/?INST\]|</?(?:system|assistant|user|tool)\b|^(?:system|assistant|human|user) ?:|<<SYS>>",
        "it forges a message",
    ),
    ("|".join(f"(?:{one})" for one in BANNED), "it holds a key or a dangerous command"),
)
"""Beside what no prompt of anybody may do (``release.screening``): what matters while prompts are made by a machine."""
_KNOWN = [(re.compile(pattern, re.IGNORECASE | re.MULTILINE), why) for pattern, why in _TRICKS]
_FORBIDS_BEGGING = re.compile(
    r"^\W*(?:do not|don['’]t|never) (?:ask|tell|urge|beg|invite|remind|encourage|request)\b", re.IGNORECASE
)
_WORD = re.compile(r"\w+")


Screen = Callable[[Prompt, Prompt, Sequence[Example]], Sequence[str]]
"""(proposal, the prompt that it was made from, examples) → why it may not be tried; empty where it may."""


def objections(prompt: Prompt, current: Prompt, examples: Iterable[Example] = ()) -> list[str]:
    """Why a prompt must not be used; empty where nothing is known against it. What ``current`` says already is the person's affair."""
    had = set(current.text.splitlines())
    lines = [line for line in prompt.text.splitlines() if line not in had]
    new = "\n".join(lines)
    items = [_item(line) for line in lines]
    found = screening.tricks("\n".join(item for item in items if not _FORBIDS_BEGGING.match(item)))
    for item in filter(_FORBIDS_BEGGING.match, items):
        found += [why for why in screening.tricks(item) if not why.startswith(screening.PRAISE)]
    found += [why for pattern, why in _KNOWN if any(map(pattern.search, items))]
    if quoted := _quoted(new, current.text, examples):
        found.append(quoted)
    if len(prompt.text) > GROWTH * len(current.text) + ROOM:
        found.append("it is many times as long as the one before")
    return found


def _item(line: str) -> str:
    return re.sub(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+", "", line)


def _quoted(new: str, current: str, examples: Iterable[Example]) -> str:
    said, had = _runs(new), _runs(current)
    flat, flat_before = " ".join(_words(new)), " ".join(_words(current))
    for example in examples:
        for text, what in ((example.reference, "the wanted answer"), (example.answer, "an answer"), (example.question, "the question")):  # fmt: skip
            if (_runs(text) & said) - had:
                return f"it quotes {what} of example {example.id}"
        label = " ".join(_words(example.reference))
        if len(label) > SHORT and _within(label, flat) and not _within(label, flat_before):
            return f"it quotes the wanted answer of example {example.id}"
    return ""


def _within(label: str, text: str) -> bool:
    return f" {label} " in f" {text} "


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _runs(text: str) -> set[tuple[str, ...]]:
    words: Sequence[str] = _words(text[:20_000])
    return {tuple(words[i : i + RUN]) for i in range(len(words) - RUN + 1)}
