"""An example reward: how easily a response reads, by Flesch's formula for English."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class ReadingEase:
    """1 from a reading ease of ``target`` up, falling in a line to 0 at ``target − 40``.

    206.835 − 1.015 · words per sentence − 84.6 · syllables per word (Flesch 1948); a run of vowels counts as a syllable.
    """

    name: ClassVar[str] = "reading-ease"
    target: float = 60.0

    def __call__(self, prompt: str, response: str) -> float:  # noqa: ARG002
        words = re.findall(r"[A-Za-z]+", response)
        if not words:
            return 0.0
        sentences = max(1, len(re.findall(r"[.!?]+(?:\s|$)", response)))
        syllables = sum(max(1, len(re.findall(r"[aeiouy]+", word.lower()))) for word in words)
        ease = 206.835 - 1.015 * len(words) / sentences - 84.6 * syllables / len(words)
        return min(max((ease - self.target + 40) / 40, 0.0), 1.0)
