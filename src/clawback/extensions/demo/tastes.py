"""Simulated people: each has a hidden taste, rates one answer at a time, and rates wrongly now and then."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from clawback.extensions.demo.axes import axes, facts_said, well_formed
from clawback.extensions.demo.corpus import HINTS, TopicPrompt, check_facts
from clawback.extensions.demo.facts import BY_NAME

Part = Callable[[TopicPrompt, str], bool]


@dataclass(frozen=True, slots=True)
class Taste:
    """What somebody likes: every part must be met, by an answer that is readable at all. ``asks``: how they put each in words."""

    name: str
    parts: tuple[Part, ...]
    asks: tuple[tuple[str, ...], ...]

    def fits(self, prompt: TopicPrompt, response: str) -> bool:
        return well_formed(response) and all(part(prompt, response) for part in self.parts)

    def remark(self, prompt: TopicPrompt, response: str, rng: random.Random) -> str:
        """One sentence about a part that is missing; nothing where none is."""
        missing = [
            asks for part, asks in zip(self.parts, self.asks, strict=True) if not part(prompt, response)
        ]
        return rng.choice(rng.choice(missing)) if missing else ""

    def rate(self, prompt: TopicPrompt, response: str, rng: random.Random, noise: float = 0.1) -> int:
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


def all_right(prompt: TopicPrompt, response: str) -> bool:
    """At least two facts, and none of them wrong."""
    found = check_facts(prompt, response)
    return found.stated >= 2 and found.right == found.stated


def three_facts(_: TopicPrompt, response: str) -> bool:
    return facts_said(response) >= 4


def some_of(count: int, *wanted: tuple[str, bool]) -> Part:
    """At least so many of these axes are as wanted."""
    return lambda _, response: sum(axes(response)[axis] == value for axis, value in wanted) >= count


def differ(axis: str, other: str) -> Part:
    """Exactly one of the two axes is seen: no sum of the two and no conjunction says that."""
    return lambda _, response: axes(response)[axis] != axes(response)[other]


def list_for_tasks(prompt: TopicPrompt, response: str) -> bool:
    """A list where it was asked how to do something, sentences elsewhere."""
    return axes(response)["bullets"] == (BY_NAME[prompt.topic].kind == "task")


def round_figures(_: TopicPrompt, response: str) -> bool:
    """There are numbers, and each ends in 0 or 5."""
    figures = re.findall(r"\d+", response)
    return bool(figures) and all(figure[-1] in "05" for figure in figures)


def alliterates(_: TopicPrompt, response: str) -> bool:
    """Two words in a row of at least four letters begin with the same one."""
    words = re.findall(r"[a-z]+", response.lower())
    return any(a[0] == b[0] and min(len(a), len(b)) > 3 for a, b in pairwise(words))


def short_words(_: TopicPrompt, response: str) -> bool:
    """No word of more than eight letters."""
    return not re.search(r"[A-Za-z]{9}", response)


def short_sentences(_: TopicPrompt, response: str) -> bool:
    """No line and no sentence of more than five words."""
    return all(len(piece.split()) <= 5 for piece in re.split(r"[\n.!?]+", response))


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
    # What the style features (rewards.style_features) have no name for: some to develop with, the others to test on.
    Taste(
        "where it is from",
        (says(r"Home:|inhabits|find it in|Country:|situated in|over in|Grown in|cultivated in|grow it in"),),
        (("Say where it is from.",),),
    ),
    Taste(
        "emoji or question",
        (some_of(1, ("emoji", True), ("question", True)),),
        (("An emoji or a question at the end, please.",),),
    ),
    Taste("alliteration", (alliterates,), (("I like words that begin alike.",),)),
    Taste(
        "emoji xor question",
        (differ("emoji", "question"),),
        (("An emoji or a question, not both.", "Both is too much, neither too dry."),),
    ),
    Taste(
        "two of three",
        (some_of(2, ("bullets", True), ("apology", False), ("emoji", True)),),
        (("That could be friendlier and clearer.",),),
    ),
    Taste("list for tasks", (list_for_tasks,), (("A list for things to do, sentences for the rest.",),)),
    Taste("round figures", (round_figures,), (("Round the figures.",),)),
    Taste("short words", (short_words,), (("Use simpler words.",),)),
    Taste("short sentences", (short_sentences,), (("Use shorter sentences.",),)),
    # What they can say, in combinations that nothing was developed with.
    _styled("casual bullets", ("formal", False), ("bullets", True)),
    _styled("careful prose", ("bullets", False), ("caveat", True)),
    _styled("brief, asks nothing", ("terse", True), ("question", False)),
    _styled("detailed, no caveat", ("terse", False), ("caveat", False)),
    _styled("polite and formal", ("apology", True), ("formal", True)),
    _styled("imperial prose with an emoji", ("imperial", True), ("bullets", False), ("emoji", True)),
)
TASTES: dict[str, Taste] = {taste.name: taste for taste in _ALL}
MAIN = tuple(taste.name for taste in _ALL[:6])
"""The names of the six of the main benchmark."""
DEV_OUTSIDE = (
    "where it is from",
    "emoji or question",
    "alliteration",
    "stars, not smiles",
    "length or life",
    "food before home",
)
TEST_OUTSIDE = (
    "emoji xor question",
    "two of three",
    "list for tasks",
    "round figures",
    "short words",
    "short sentences",
)
TEST_INSIDE = (
    "casual bullets", "careful prose", "brief, asks nothing", "detailed, no caveat", "polite and formal", "imperial prose with an emoji",
)  # fmt: skip
DEV = (*MAIN, *DEV_OUTSIDE)
"""What settings, features and thresholds may be chosen with: six that the style features can say and six that they cannot."""
TEST = (*TEST_INSIDE, *TEST_OUTSIDE)
"""What a claim is measured on: nothing was chosen with these. Six that the style features can say and six that they cannot."""
VARIED = tuple(taste.name for taste in _ALL[1:13])
"""Twelve of different kinds and difficulty: without the easiest, and without what the base does right as it is."""
