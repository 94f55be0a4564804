"""A model's thoughts apart from its answer, by the marks that reasoning models put around them."""

from __future__ import annotations

import re
from itertools import islice

_MARKS = (
    ("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<thinking>", "</thinking>"), ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"), ("<seed:think>", "</seed:think>"), ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"), ("<|begin_of_thought|>", "<|end_of_thought|>"),
)  # fmt: skip
"""What reasoning models put around a thought before an answer: Qwen 3 and DeepSeek R1, Magistral, and others."""
DETAILS = re.compile(
    r"<details type=\"(\w+)\"([^>]*)>\s*(?:<summary>.*?</summary>)?\s*(.*?)</details>\s*", re.DOTALL
)
"""A folded box that Open WebUI puts into an answer: thoughts, or a call of a tool with its result. Groups: type, attributes, content."""
_MOST_MARKS = 16
"""Closing marks without an opening one that are looked at."""
_MOST_THOUGHTS = 16
"""Thoughts one after the other that are read."""
_ANSWER_BEGINS = ("<|START_RESPONSE|>", "<|begin_of_solution|>")
_ANSWER_ENDS = re.compile(r"(?:<\|END_RESPONSE\|>|<\|end_of_solution\|>|<\|return\|>|<\|end\|>)\s*\Z")
"""What Command A, Sky-T1 and gpt-oss put around an answer that follows a thought."""
_CHANNEL = re.compile(r"\s*(?:<\|channel\|>)?analysis<\|message\|>")
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
    thoughts: list[str] = []
    answer = text
    while len(thoughts) < _MOST_THOUGHTS and (found := _opened(answer)) is not None:
        thoughts.append(found[0])
        answer = found[1]
    if not thoughts and (found := _channels(text) or _closed_alone(text)) is not None:
        thoughts, answer = [found[0]], found[1]
    for mark in _ANSWER_BEGINS if thoughts else ():
        answer = answer.removeprefix(mark).lstrip() if answer.startswith(mark) else answer
    return "\n\n".join(filter(None, thoughts)), answer


def without_end(answer: str) -> str:
    """An answer that followed a thought, without the mark of its end."""
    return _ANSWER_ENDS.sub("", answer)


def _opened(text: str) -> tuple[str, str] | None:
    """The thought that begins a text, and the rest; None where none does. Marks are read in upper and lower case."""
    begun = text.lstrip()
    for opening, closing in _MARKS:
        if begun[: len(opening)].lower() == opening.lower():
            end = re.search(re.escape(closing), begun, re.IGNORECASE)
            thought = begun[len(opening) : end.start() if end else None]
            return thought.strip(), begun[end.end() :].lstrip() if end else ""
    return None


def _channels(text: str) -> tuple[str, str] | None:
    """gpt-oss: what is in its channels; None where there are none."""
    if "<|channel|>" not in text:
        return None
    final = re.search(_FINAL, text)
    if final is None and not _CHANNEL.match(text):
        return "", text
    thought, answer = (text[: final.start()], text[final.end() :]) if final else (text, "")
    return _CHANNEL.sub("", thought, 1).strip().removesuffix("<|end|>"), answer.lstrip()


def _closed_alone(text: str) -> tuple[str, str] | None:
    """What precedes a closing mark whose opening one stood in the prompt, and the rest."""
    folded = text.casefold()
    for opening, closing in _MARKS:
        if closing.casefold() not in folded:
            continue
        opened = re.search(re.escape(opening), text, re.IGNORECASE)
        for found in islice(re.finditer(re.escape(closing), text, re.IGNORECASE), _MOST_MARKS):
            if opened and opened.end() <= found.start():
                break
            if _closes(text, found.start(), closing):
                return text[: found.start()].strip(), text[found.end() :].lstrip()
    return None


def _closes(text: str, index: int, closing: str) -> bool:
    """Whether a closing mark without an opening one ends a thought: not in code, and not as a word in the middle of a line."""
    earlier, later = text[:index], text[index + len(closing) :]
    if earlier.count("```") % 2:
        return False
    line_ends = not later.strip(" \t") or later.lstrip(" \t").startswith(("\n", "\r"))
    return (
        line_ends
        or not earlier
        or earlier[-1] == "\n"
        or not earlier.endswith((" ", "\t", "`", '"', "'", "(", "“"))
    )
