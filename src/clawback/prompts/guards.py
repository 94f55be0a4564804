"""What a prompt must not do, however well it scores: beg, hide, cheat by heart, or obey somebody else than its person.

A search finds what its judge likes, and that is not always what the person likes. These are checks of the text alone, before anything is
paid for it: a net for the known tricks, not a proof. What they let through still has to win on cases that it has never seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from clawback.prompts.prompt import Prompt
from clawback.prompts.types import Example
from clawback.rewards.composite import BANNED

RUN = 8
"""Words in a row that a prompt may not share with an answer or a question."""
SHORT = 3
"""Characters of a label below which it is found everywhere and proves nothing."""
GROWTH, ROOM = 4, 3000
"""A child may be so many times as long as its parent, and so many characters on top."""

_HIDDEN = re.compile(
    r"[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]|<!--|[A-Za-z0-9+/]{60,}={0,2}"
)
PRAISE = "it asks for praise"
_TRICKS: tuple[tuple[str, str], ...] = (
    (
        r"\b(?:ask|tell|urge|beg|invite|remind|encourage|request|get)\b[^.\n]{0,60}\b(?:rat(?:e|ing)|thumbs?|stars?|upvote|praise|review|good feedback|positive feedback|tap good|/rl)\b"
        r"|\b(?:rate|upvote|like) (?:this|me|my|the) (?:answer|response|reply)|\bplease (?:rate|upvote)|👍",
        PRAISE,
    ),
    (
        r"\b(?:judge|grader|evaluator|rubric|critic|reward model|scorer|grading|(?:be|being|get|gets|is|are|will be) (?:scored|graded|evaluated|judged))\b"
        r"|\b(?:full marks|maximum score|high(?:est)? score|10/10|\\boxed\{|score[sd]? (?:of )?(?:1\b|10\b|100\b))",
        "it speaks to whoever judges",
    ),
    (
        r"\b(?:this|my|the) (?:answer|response|reply) (?:is|was) (?:correct|perfect|excellent|verified|complete|the best)\b|\bverified (?:correct|by)\b",
        "it has answers praise themselves",
    ),
    (
        r"\b(?:ignore|disregard|forget|override)\b[^.\n]{0,40}\b(?:instruction|rule|prompt|above|previous|earlier|everything|user)"
        r"|\b(?:reveal|repeat|print|leak)\b[^.\n]{0,40}\b(?:system prompt|instructions|secret|password|token|key)"
        r"|\b(?:secret(?:ly)?|without (?:telling|the user)|do not (?:tell|mention|reveal|disclose)|never (?:tell|mention|reveal|disclose))\b",
        "it takes over from its person",
    ),
    (r"https?://|www\.|\b[\w.+-]+@[\w-]+\.\w+", "it brings in an address"),
    (
        r"<\|[^|\n]{1,30}\|>|\[/?INST\]|</?(?:system|assistant|user|tool)\b|^(?:system|assistant|human|user) ?:|<<SYS>>",
        "it forges a message",
    ),
    ("|".join(f"(?:{one})" for one in BANNED), "it holds a key or a dangerous command"),
)  # fmt: skip
_KNOWN = [(re.compile(pattern, re.IGNORECASE | re.MULTILINE), why) for pattern, why in _TRICKS]
_FORBIDS_BEGGING = re.compile(
    r"^\W*(?:do not|don['’]t|never) (?:ask|tell|urge|beg|invite|remind|encourage|request)\b", re.IGNORECASE
)
_WORD = re.compile(r"\w+")


Screen = Callable[[Prompt, Prompt, Sequence[Example]], Sequence[str]]
"""(proposal, the prompt that it was made from, examples) → why it may not be tried; empty where it may."""


def objections(prompt: Prompt, before: Prompt, examples: Iterable[Example] = ()) -> list[str]:
    """Why a prompt must not be used; empty where nothing is known against it. What ``before`` says already is the person's affair."""
    had = set(before.text.splitlines())
    lines = [line for line in prompt.text.splitlines() if line not in had]
    new = "\n".join(lines)
    found = ["it hides text"] if _HIDDEN.search(new) else []
    for pattern, why in _KNOWN:
        exempt = why == PRAISE
        if any(
            pattern.search(one) and not (exempt and _FORBIDS_BEGGING.match(one)) for one in map(_item, lines)
        ):
            found.append(why)
    if quoted := _quoted(new, before.text, examples):
        found.append(quoted)
    if len(prompt.text) > GROWTH * len(before.text) + ROOM:
        found.append("it is many times as long as the one before")
    return found


def _item(line: str) -> str:
    return re.sub(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+", "", line)


def _quoted(new: str, before: str, examples: Iterable[Example]) -> str:
    said, had = _runs(new), _runs(before)
    flat, flat_before = " ".join(_words(new)), " ".join(_words(before))
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
