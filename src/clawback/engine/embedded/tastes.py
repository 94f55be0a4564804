"""Simulated people: each has a hidden taste, rates one answer at a time, and taps wrong now and then."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from clawback.engine.embedded.axes import axes, facts_said, well_formed
from clawback.engine.embedded.corpus import Prompt, check_facts

Part = Callable[[Prompt, str], bool]


@dataclass(frozen=True, slots=True)
class Taste:
    """What somebody likes: every part must be met, by an answer that is readable at all."""

    name: str
    parts: tuple[Part, ...]

    def fits(self, prompt: Prompt, response: str) -> bool:
        return well_formed(response) and all(part(prompt, response) for part in self.parts)

    def rate(self, prompt: Prompt, response: str, rng: random.Random, noise: float = 0.1) -> int:
        """+1 or -1; wrong with probability ``noise``."""
        opinion = 1 if self.fits(prompt, response) else -1
        return -opinion if rng.random() < noise else opinion


def shows(axis: str, wanted: bool = True) -> Part:
    """The axis is (not) seen in the answer."""
    return lambda _, response: axes(response)[axis] == wanted


def says(pattern: str, wanted: bool = True) -> Part:
    """A word or an order of things is (not) there."""
    compiled = re.compile(pattern, re.IGNORECASE | re.DOTALL)
    return lambda _, response: bool(compiled.search(response)) == wanted


def all_right(prompt: Prompt, response: str) -> bool:
    """At least two facts, and none of them wrong."""
    found = check_facts(prompt, response)
    return found.stated >= 2 and found.right == found.stated


def three_facts(_: Prompt, response: str) -> bool:
    return facts_said(response) >= 4


_ALL = (
    # The six of the main benchmark: one to three parts each, one about content.
    Taste("bullets", (shows("bullets"),)),
    Taste("bullets, no apology", (shows("bullets"), shows("apology", False))),
    Taste("terse bullets, no apology", (shows("terse"), shows("bullets"), shows("apology", False))),
    Taste("metric units", (shows("metric"), shows("imperial", False))),
    Taste("formal prose, no emoji", (shows("formal"), shows("bullets", False), shows("emoji", False))),
    Taste("casual, asks back", (shows("formal", False), shows("question"))),
    # Further ones, up to what an average over the answer cannot see.
    Taste("thorough", (three_facts,)),
    Taste("cautious", (shows("caveat"), shows("apology", False))),
    Taste("warm", (shows("emoji"), shows("formal", False), shows("question"))),
    Taste("opens with Of course", (says(r"\bOf course\b"),)),
    Taste("stars, not smiles", (says("🌟"),)),
    Taste("nothing wrong", (all_right,)),
    Taste("length or life", (says(r"inches|\bcm\b|years|minutes"),)),
    Taste(
        "food before home",
        (says(r"(?:Food|feeds|loves|Then|Next up).*(?:Length|measures|gets to|Finally|To wrap)"),),
    ),
)
TASTES: dict[str, Taste] = {taste.name: taste for taste in _ALL}
MAIN = tuple(taste.name for taste in _ALL[:6])
"""The names of the six of the main benchmark."""
