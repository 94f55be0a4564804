"""A judge model as a reward model: it reads a request and an answer and grades the answer from 1 to 10.

It uses the same model as ``feedback.next_state_judge``, an endpoint or the local model (any ``Ask``), within the same
budget and with the same delimiters around untrusted text, but without a next state: for answers that nobody
has seen yet. Its grade is a proxy like any other, and no evidence.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from clawback.errors import UsageError
from clawback.feedback.endpoint import Ask
from clawback.feedback.passes import readings
from clawback.feedback.verdict import GRADE, fenced
from clawback.rewards.composite import UNIT, Range, scale

TEN: Range = (1.0, 10.0)
_BOX = re.compile(r"\\boxed\s*\{\s*(\d{1,2})\s*\}")


def grade(text: str) -> int | None:
    """The whole number from 1 to 10 in the last box of an answer; None where there is none."""
    found = _BOX.findall(text)
    value = int(found[-1]) if found else 0
    return value if 1 <= value <= 10 else None


@dataclass(frozen=True)
class Generative:
    """``votes`` grades of each answer, their median counts."""

    ask: Ask
    votes: int = 1

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """(prompt, response) → [0, 1] each.

        Raises ``NoAnswer`` for an answer about which no grade came that can be read, and what ``ask`` raises beyond that.
        """
        if self.votes < 1:
            raise UsageError("A judge needs at least one vote.")
        return [self._score(prompt, response) for prompt, response in pairs]

    def _score(self, prompt: str, response: str) -> float:
        material = fenced((("REQUEST", prompt), ("ANSWER", response)))
        return scale(statistics.median(readings(self.ask, GRADE, material, self.votes, grade)), TEN, UNIT)
