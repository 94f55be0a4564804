"""Where an answer ends in plain labelled text: at the line in which the next speaker begins.

A base model without a chat template is shown ``User: … Assistant:`` and goes on to write the whole dialogue. What follows the
next label is no answer of its own, so it is neither shown, stored nor learned.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

LABELS = ("User", "Assistant", "System")
"""As ``Chat`` writes them."""
_NEXT = re.compile(rf"(?:\A|\n)[ \t]*[*_#>]{{0,4}}[ \t]*(?:{'|'.join(LABELS)})[ \t]*[*_]{{0,3}}[ \t]*:")
"""A label at the beginning of a line, in bold or not."""
_BEGUN = re.compile(r"(?:\A|\n)[ \t]*[*_#>]{0,4}[ \t]*(?P<word>[A-Za-z]*)(?P<rest>[ \t]*[*_]{0,3}[ \t]*)\Z")
_SEEN = 24
"""Tokens at the end of an answer among which a label stands."""


class NextSpeaker:
    """Finds the next speaker's label in what a model writes."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @cached_property
    def last_tokens(self) -> frozenset[int]:
        """Tokens with a colon: a label ends with one of them, so that an answer is looked at after these alone."""
        names = self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer))))
        return frozenset(i for i, name in enumerate(names) if ":" in str(name) or str(name) == "<0x3A>")

    def answer_end(self, text: str) -> int | None:
        """Where the answer in a text ends, the space before the label left out; None where nobody else speaks."""
        found = _NEXT.search(text)
        return None if found is None else len(text[: found.start()].rstrip())

    def certain(self, text: str) -> int:
        """How many characters of a text that goes on belong to the answer, whatever comes: its end may be the beginning of a label."""
        begun = _BEGUN.search(text)
        word = begun["word"] if begun else ""
        if begun and any(
            label == word or (label.startswith(word) and not begun["rest"].strip()) for label in LABELS
        ):
            text = text[: begun.start()]
        return len(text.rstrip())

    def spoke(self, ids: Sequence[int]) -> bool:
        """Whether the last of these tokens ends a label."""
        if not ids or ids[-1] not in self.last_tokens:
            return False
        first = max(0, len(ids) - _SEEN)
        text = str(self.tokenizer.decode(list(ids[first:]), skip_special_tokens=True))
        found = _NEXT.search(text)
        return found is not None and (found.start() > 0 or first == 0 or text.startswith("\n"))

    def cut(self, ids: Sequence[int]) -> int | None:
        """How many of the tokens are the answer: at least one, and no token of the label; None where nobody else speaks.

        A token that ends the answer and begins the line break before the label is kept as it was drawn.
        """
        if not any(token in self.last_tokens for token in ids):
            return None
        text = str(self.tokenizer.decode(list(ids), skip_special_tokens=True))
        place = self.answer_end(text)
        if place is None:
            return None
        low, high = 1, len(ids)
        while low < high:
            middle = (low + high) // 2
            if len(str(self.tokenizer.decode(list(ids[:middle]), skip_special_tokens=True))) >= place:
                high = middle
            else:
                low = middle + 1
        return low
