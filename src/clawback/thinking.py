"""A model's thoughts apart from its answer, by the marks that reasoning models put around them."""

from __future__ import annotations

import re

_MARKS = (
    ("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<thinking>", "</thinking>"), ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"), ("<seed:think>", "</seed:think>"), ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"), ("<|begin_of_thought|>", "<|end_of_thought|>"),
)  # fmt: skip
"""What reasoning models put around a thought before an answer: Qwen 3 and DeepSeek R1, Magistral, and others."""
_MOST_MARKS = 16
"""Closing marks without an opening one that are looked at."""
_CHANNEL = "<|channel|>analysis<|message|>"
_FINAL = r"(?:<\|end\|>)?\s*(?:<\|start\|>assistant)?<\|channel\|>final\b[^<]{0,40}(?:<\|constrain\|>\w{1,40})?<\|message\|>"
"""gpt-oss: a channel of thoughts, then one of the answer."""


def split_thinking(text: str) -> tuple[str, str]:
    """What a model thought, and what it answered.

    A thought begins the text with its opening mark; where the closing mark is missing all of the text is thought. Or the opening
    mark stood in the prompt, and the text has the closing mark alone: what precedes it is thought. A mark that is spoken of, within
    a line or in code, closes nothing.

    >>> split_thinking("<think>Easy.</think>\\n\\nFour.")
    ('Easy.', 'Four.')
    >>> split_thinking("Easy.\\n</think>\\n\\nFour.")
    ('Easy.', 'Four.')
    >>> split_thinking("Say </think> aloud.")
    ('', 'Say </think> aloud.')
    """
    begun = text.lstrip()
    for opening, closing in _MARKS:
        if begun.startswith(opening):
            thought, closed, answer = begun[len(opening) :].partition(closing)
            return thought.strip(), answer.lstrip() if closed else ""
    if "<|channel|>" in text:
        final = re.search(_FINAL, text)
        if final is None and not begun.startswith(_CHANNEL):
            return "", text
        thought, answer = (text[: final.start()], text[final.end() :]) if final else (text, "")
        return thought.strip().removeprefix(_CHANNEL).strip().removesuffix("<|end|>"), answer.lstrip()
    for opening, closing in _MARKS:
        place = text.find(closing)
        for _ in range(_MOST_MARKS):
            if place < 0 or opening in text[:place]:
                break
            if _closes(text, place, closing):
                return text[:place].strip(), text[place + len(closing) :].lstrip()
            place = text.find(closing, place + 1)
    return "", text


def _closes(text: str, place: int, closing: str) -> bool:
    """Whether a closing mark without an opening one ends a thought: not in code, and not as a word in the middle of a line."""
    earlier, later = text[:place], text[place + len(closing) :]
    if earlier.count("```") % 2:
        return False
    line_ends = not later.strip(" \t") or later.lstrip(" \t").startswith(("\n", "\r"))
    return (
        line_ends
        or not earlier
        or earlier[-1] == "\n"
        or not earlier.endswith((" ", "\t", "`", '"', "'", "(", "“"))
    )
