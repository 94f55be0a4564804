"""Simulated people for ``benchmarks.meaning``: who taps by a wish with slips, by how good an answer was, or by whether it is right.

Each is a pure function of its number, so that a person who is met again taps the same.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks._wishes import Wish

SLIPS = (0.1, 0.2, 0.3)
"""Shares of wrong taps that are reported."""
GOOD = 0.4
"""The share of graded answers that somebody who taps by quality calls good: the best ones."""
STRONG = ("claude-2", "claude-2.1", "gpt-3.5-turbo-1106")
"""Models whose answers are rated where another model's are: those with the highest grades."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with a wish. ``wrong``: share of taps that say the opposite; ``speaks``: says a remark to each answer that they tap bad."""

    wish: Wish
    number: int
    wrong: float = 0.1
    speaks: bool = False

    @property
    def name(self) -> str:
        return f"{self.wish.name}, {self.number}"

    def _chance(self, what: str) -> random.Random:
        return random.Random(f"{what}: {self.wish.name} {self.number}")

    def places(self, answers: int, count: int) -> list[int]:
        """Which of so many answers they rate, in the order in which they do."""
        return self._chance("places").sample(range(answers), count)

    def taps(self, asked: Sequence[tuple[str, str]]) -> list[float]:
        """+1 or -1 for each (question, answer)."""
        chance = self._chance("taps")
        return [1.0 if self.wish.holds(q, a) != (chance.random() < self.wrong) else -1.0 for q, a in asked]

    def remarks(self, taps: Sequence[float]) -> list[str]:
        """What they say about each: the wish where the tap was bad, else nothing."""
        return [self.wish.remark if self.speaks and tap < 0 else "" for tap in taps]


def people(wishes: Sequence[Wish], count: int, wrong: float, *, speaks: bool = False) -> list[Person]:
    """``count`` people, the wishes in turn."""
    return [Person(wishes[i % len(wishes)], i, wrong, speaks) for i in range(count)]


@dataclass(frozen=True, slots=True)
class Graded:
    """An answer of a chat model with its graded preference against one reference, in [0, 1]."""

    prompt: str
    response: str
    model: str
    grade: float


def graded(path: Path, models: Sequence[str] = ()) -> list[Graded]:
    """The graded answers of a file of AlpacaEval's annotations, of these models or of all."""
    lines = (json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip())
    return [
        Graded(one["prompt"], one["response"], one["model"], float(one["score"]))
        for one in lines
        if not models or one["model"] in models
    ]


def by_quality(answers: Sequence[Graded]) -> list[float]:
    """+1 for the best ``GOOD`` of the answers by their grade, -1 for the others; ties fall in a fixed random order."""
    chance = random.Random("ties")
    order = sorted(range(len(answers)), key=lambda i: (-answers[i].grade, chance.random()))
    best = set(order[: round(GOOD * len(answers))])
    return [1.0 if i in best else -1.0 for i in range(len(answers))]


@dataclass(frozen=True, slots=True)
class Sum:
    """A question of GSM8K and its result."""

    question: str
    result: str

    def right(self, answer: str) -> bool:
        """Whether the last number of an answer is the result."""
        found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", answer)
        return bool(found) and number(found[-1]) == number(self.result)


def number(text: str) -> float:
    return float(text.replace(",", "").rstrip("."))


def sums(path: Path) -> list[Sum]:
    """GSM8K's test questions in a fixed random order."""
    made = [Sum(one["question"], one["ground_truth_answer"]) for one in json.loads(path.read_text("utf-8"))]
    random.Random("sums").shuffle(made)
    return made
