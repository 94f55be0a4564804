"""Simulated people: each has a hidden taste, rates one answer at a time, and taps wrong now and then."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from clawback.engine.embedded.axes import axes, facts_said, well_formed
from clawback.engine.embedded.corpus import HINTS, Prompt, check_facts

Part = Callable[[Prompt, str], bool]


@dataclass(frozen=True, slots=True)
class Taste:
    """What somebody likes: every part must be met, by an answer that is readable at all. ``asks``: how they put each in words."""

    name: str
    parts: tuple[Part, ...]
    asks: tuple[tuple[str, ...], ...]

    def fits(self, prompt: Prompt, response: str) -> bool:
        return well_formed(response) and all(part(prompt, response) for part in self.parts)

    def remark(self, prompt: Prompt, response: str, rng: random.Random) -> str:
        """One sentence about a part that is missing; nothing where none is."""
        missing = [
            asks for part, asks in zip(self.parts, self.asks, strict=True) if not part(prompt, response)
        ]
        return rng.choice(rng.choice(missing)) if missing else ""

    def rate(self, prompt: Prompt, response: str, rng: random.Random, noise: float = 0.1) -> int:
        """+1 or -1; wrong with probability ``noise``."""
        opinion = 1 if self.fits(prompt, response) else -1
        return -opinion if rng.random() < noise else opinion


def shows(axis: str, wanted: bool = True) -> Part:
    """The axis is (not) seen in the answer."""
    return lambda _, response: axes(response)[axis] == wanted


def says(pattern: str) -> Part:
    """A word or an order of things is there."""
    compiled = re.compile(pattern, re.IGNORECASE | re.DOTALL)
    return lambda _, response: bool(compiled.search(response))


def all_right(prompt: Prompt, response: str) -> bool:
    """At least two facts, and none of them wrong."""
    found = check_facts(prompt, response)
    return found.stated >= 2 and found.right == found.stated


def three_facts(_: Prompt, response: str) -> bool:
    return facts_said(response) >= 4


def _styled(name: str, *wanted: tuple[str, bool]) -> Taste:
    parts = tuple(shows(*one) for one in wanted)
    return Taste(name, parts, tuple(HINTS[one] for one in wanted))


_ALL = (
    # The six of the main benchmark: one to three parts each, one about content.
    _styled("bullets", ("bullets", True)),
    _styled("bullets, no apology", ("bullets", True), ("apology", False)),
    _styled("terse bullets, no apology", ("terse", True), ("bullets", True), ("apology", False)),
    Taste(
        "metric units",
        (shows("metric"), shows("imperial", False)),
        (HINTS["imperial", False], HINTS["imperial", False]),
    ),
    _styled("formal prose, no emoji", ("formal", True), ("bullets", False), ("emoji", False)),
    _styled("casual, asks back", ("formal", False), ("question", True)),
    # Further ones, up to what an average over the answer cannot see.
    Taste("thorough", (three_facts,), (HINTS["terse", False],)),
    _styled("cautious", ("caveat", True), ("apology", False)),
    _styled("warm", ("emoji", True), ("formal", False), ("question", True)),
    Taste("opens with Of course", (says(r"\bOf course\b"),), (('Start with "Of course".',),)),
    Taste("stars, not smiles", (says("🌟"),), (("Use 🌟.", "I like 🌟 best."),)),
    Taste(
        "length or life",
        (says(r"inches|\bcm\b|years|minutes"),),
        (("How big does it get, or how old?", "And the size, or the time it takes?"),),
    ),
    Taste(
        "food before home",
        (says(r"(?:Food|feeds|loves|Then|Next up).*(?:Length|measures|gets to|Finally|To wrap)"),),
        (("Food before anything else.", "What comes later should come later."),),
    ),
    Taste("nothing wrong", (all_right,), (("That is wrong.", "Check your facts."),)),
)
TASTES: dict[str, Taste] = {taste.name: taste for taste in _ALL}
MAIN = tuple(taste.name for taste in _ALL[:6])
"""The names of the six of the main benchmark."""
VARIED = tuple(taste.name for taste in _ALL[1:13])
"""Twelve of different kinds and difficulty: without the easiest, and without what the base does right as it is."""
