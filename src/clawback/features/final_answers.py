"""The final answer of a text: what it marks as its answer, else the number that it ends with."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"[-+]?\$?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?|[-+]?\.\d+")
_MARKS = (
    (re.compile(r"\\boxed\s*+\{([^{}]*+)\}"), ""),
    (re.compile(r"<answer>(.*?)</answer>", re.DOTALL), "</answer>"),
    (re.compile(r"####\s*((?:[^\n#]|#(?!###))+)"), ""),
    (re.compile(r"answer(?:\s+is)?\s*[:=]?\s*([^\n]+)", re.IGNORECASE), ""),
)
"""How answers are marked, and what closes a mark that may go over lines."""
_LIST_MARK = re.compile(r"^\s*(?:[-*#>]+|\d+[.)])\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
MARKED_WORDS = 5
"""Words that a marked answer without a number may have: "To answer this, we look at the first row" marks none."""


def numbers(text: str) -> list[str]:
    """All numbers in a text, as they are written."""
    return _NUMBER.findall(text)


def as_number(text: str) -> float | None:
    """``$1,200.50`` → 1200.5; None for what is no number."""
    bare = text.strip().rstrip(".%").replace(",", "").replace("$", "")
    try:
        value = float(bare)
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None


def same_answer(reply: str, expected: str) -> bool:
    """Is what a reply ends with the expected answer? A marked answer counts, else the last number or the whole reply."""
    marked = _marked(reply)
    if (number := as_number(expected)) is None:
        said = reply.strip() if marked is None else marked
        return _bare(said) == _bare(expected)
    found = numbers(marked if marked is not None and _NUMBER.search(marked) else reply)
    if not found:
        return False
    said_number = as_number(found[0] if marked is not None else found[-1])
    return said_number is not None and abs(said_number - number) <= 1e-6 * max(1.0, abs(number))


def final_answer(text: str) -> str | None:
    """What a text comes to, so that two texts can be compared: its marked answer, else the last number of its last
    sentence; None where it has neither."""
    marked = _marked(text)
    if marked is not None:
        if found := numbers(marked):
            return _canonical(found[0])
        if len(marked.split()) <= MARKED_WORDS:
            return _bare(marked) or None
    lines = [line for line in text.splitlines() if re.search(r"\w", line)]
    last = _SENTENCE_END.split(_LIST_MARK.sub("", lines[-1]).strip())[-1] if lines else ""
    found = numbers(last)
    return _canonical(found[-1]) if found else None


def _marked(reply: str) -> str | None:
    for mark, closes in _MARKS:
        # Behind the last that closes none is looked for: each of many openings would be followed to the end.
        found = mark.findall(reply, 0, reply.rfind(closes) + len(closes) if closes else len(reply))
        if found:
            return str(found[-1]).strip()
    return None


def _canonical(number: str) -> str:
    value = as_number(number)
    return number if value is None else f"{value:.9g}"


def _bare(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip(" .\"'`").lower()
