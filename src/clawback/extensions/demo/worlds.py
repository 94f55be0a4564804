"""The questions and the simulated people of the demo.

For the embedded model: facts and fourteen tastes. For any other model: everyday questions, and a few tastes
that can be seen in any text.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from clawback import config
from clawback.extensions.demo import corpus, tastes
from clawback.extensions.demo.axes import AXES, axes
from clawback.extensions.demo.corpus import TopicPrompt


class SimulatedPerson(Protocol):
    """Somebody with a hidden taste."""

    @property
    def name(self) -> str: ...

    def fits(self, prompt: TopicPrompt, response: str) -> bool: ...

    def rate(self, prompt: TopicPrompt, response: str, rng: random.Random, noise: float = 0.1) -> int:
        """+1 or -1; wrong with probability ``noise``."""
        ...


class DemoWorld(Protocol):
    """The questions, the people, and what can be measured about answers."""

    taste: str
    """Whom to play where nobody is named."""
    captured: float
    """Captured turns for each one that is rated."""
    settings: Mapping[str, Mapping[str, Any]]
    """Those of a home that differ from the defaults, by section."""

    @property
    def people(self) -> Mapping[str, SimulatedPerson]: ...

    def rated(self, count: int, skip: int, seed: int) -> list[TopicPrompt]:
        """``count`` prompts to answer and rate, after the first ``skip``."""
        ...

    def held_out(self, count: int, seed: int) -> list[TopicPrompt]:
        """At most ``count`` prompts that nobody ever rates."""
        ...

    def facts(self, pairs: Sequence[tuple[TopicPrompt, str]]) -> float | None:
        """The share of stated facts that are right; None where nobody can tell."""
        ...

    def habits(self, answers: Sequence[str]) -> dict[str, float]:
        """The shares of the answers that show each habit."""
        ...


class Embedded:
    """The embedded model's questions: a hundred animals, cities and foods, with tables to check facts against."""

    taste = "terse bullets, no apology"
    captured = 4.0  # nobody rates all that their agent says; the others' prompts are for fresh answers
    settings: Mapping[str, Mapping[str, Any]] = {}

    @property
    def people(self) -> Mapping[str, SimulatedPerson]:
        return tastes.TASTES

    def rated(self, count: int, skip: int, seed: int) -> list[TopicPrompt]:
        return corpus.prompts("rated", skip + count, seed)[-count:]

    def held_out(self, count: int, seed: int) -> list[TopicPrompt]:
        return corpus.prompts("held_out", count, seed)

    def facts(self, pairs: Sequence[tuple[TopicPrompt, str]]) -> float | None:
        checks = [corpus.check_facts(prompt, text) for prompt, text in pairs]
        return sum(c.right for c in checks) / max(1, sum(c.stated for c in checks))

    def habits(self, answers: Sequence[str]) -> dict[str, float]:
        seen = [axes(text) for text in answers]
        return {axis: mean([one[axis] for one in seen]) for axis in AXES}


@dataclass(frozen=True, slots=True)
class TextReader:
    """A simulated person whose taste is visible in the text alone; an answer must have at least a few whole words."""

    name: str
    likes: Callable[[str], bool]

    def fits(self, prompt: TopicPrompt, response: str) -> bool:  # noqa: ARG002
        return len(response.split()) >= 5 and self.likes(response)

    def rate(self, prompt: TopicPrompt, response: str, rng: random.Random, noise: float = 0.1) -> int:
        opinion = 1 if self.fits(prompt, response) else -1
        return -opinion if rng.random() < noise else opinion


_READERS = {
    one.name: one
    for one in (
        TextReader("at most 50 words", lambda text: len(text.split()) <= 50),
        TextReader(
            "a list", lambda text: len(re.findall(r"^\s*(?:[-*•]|\d+[.)]) ", text, re.MULTILINE)) >= 2
        ),
        TextReader("speaks to you", lambda text: bool(re.search(r"\byou\b", text, re.IGNORECASE))),
        TextReader("one paragraph", lambda text: "\n" not in text.strip()),
    )
}


class Everyday:
    """Sixty-four short everyday questions. A quarter of them is never rated."""

    taste = "one paragraph"
    """Something that a third of the base model's answers have: where none has it, 32 ratings are all bad and teach nothing."""
    captured = 1.5
    settings: Mapping[str, Mapping[str, Any]] = {
        "generation": {"max_tokens": 128},
        "training": {"budget": "3h"},
    }
    """Short answers, and time: who has asked for this and waited for the estimate reads it, and is not sent away."""

    @property
    def people(self) -> Mapping[str, SimulatedPerson]:
        return _READERS

    def rated(self, count: int, skip: int, seed: int) -> list[TopicPrompt]:
        asked = _shuffled(seed)[: len(questions()) * 3 // 4]
        return [asked[(skip + number) % len(asked)] for number in range(count)]

    def held_out(self, count: int, seed: int) -> list[TopicPrompt]:
        return _shuffled(seed)[len(questions()) * 3 // 4 :][:count]

    def facts(self, pairs: Sequence[tuple[TopicPrompt, str]]) -> float | None:  # noqa: ARG002
        return None

    def habits(self, answers: Sequence[str]) -> dict[str, float]:
        return {name: mean([reader.likes(text) for text in answers]) for name, reader in _READERS.items()}


def world(base: str) -> DemoWorld:
    return Embedded() if base == config.EMBEDDED else Everyday()


@cache
def questions() -> tuple[str, ...]:
    return tuple(Path(__file__).with_name("questions.txt").read_text("utf-8").splitlines())


def _shuffled(seed: int) -> list[TopicPrompt]:
    asked = [TopicPrompt(text, "") for text in questions()]
    random.Random(f"questions {seed}").shuffle(asked)
    return asked


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
