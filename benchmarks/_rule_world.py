"""A model with eight hidden features of its prompt, a person who misses them in its answers, and a model that reflects: all scripted.

No import of ours, so that every optimiser in its own environment meets the same world. All three are functions of the text that they are given.

* The **task model** shows a feature in its answer exactly if the prompt holds the sentence for it.
* The **person** wants two of the eight features in each answer. The score is the share of them; their words name what they miss. In the noisy variant
  each of the two is taken wrongly one time in ten.
* The **reflecting model** reads the prompt between the first fences and what was missed, and adds one sentence: a wrong one in 30 % of its answers, and in 15 % it forgets
  a line of the prompt (as in the measurements that GEPA's figures are known from). Without words it adds one of 32 sentences at random, of which eight are right. Sentences that it is
  told were no better it leaves alone; only our request tells it so. For an optimiser whose proposals are made before anything was tried (MIPROv2) it *suggests* prompts: one to
  eight of the 32 sentences.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

RULES = (
    "Answer in at most three sentences.",
    "Use metric units.",
    "Begin with the answer itself.",
    "Name the source of every figure.",
    "Write in the present tense.",
    "Give one example.",
    "Avoid exclamation marks.",
    "Close with the next step.",
)
WRONG = tuple(
    f"{verb} {what}."
    for verb in ("Mention", "Stress", "Describe", "Quote", "Compare", "List")
    for what in ("the weather", "a proverb", "the history of it", "famous people")
)
START = "You are a helpful assistant."
WRONG_SHARE, FORGETS, MISTAKEN = 0.3, 0.15, 0.1
_FENCED = re.compile(r"```[a-z]*\n(.*?)\n?```", re.DOTALL)
_MISSED = re.compile(r'I miss this: "([^"]+)"')
_NO_BETTER = re.compile(r"no better:\n((?:- .*\n?)+)")


@dataclass(frozen=True)
class Item:
    """A question, and the two features that this person wants in its answer."""

    id: str
    question: str
    wants: tuple[int, int]


@dataclass(frozen=True)
class Cases:
    """Items to propose from, to decide by, and to measure on."""

    train: list[Item]
    validation: list[Item]
    test: list[Item]

    @classmethod
    def of(cls, seed: int) -> Cases:
        return cls(items(seed, 20, "train"), items(seed, 20, "val"), items(seed, 60, "test"))


def items(seed: int, count: int, kind: str) -> list[Item]:
    rng = random.Random(f"{kind}:{seed}")
    pairs = [(a, b) for a in range(8) for b in range(a)]
    return [
        Item(f"{kind}{i}", f"Question {i} of {kind}: how does it work?", rng.choice(pairs))
        for i in range(count)
    ]


def answer(prompt: str) -> str:
    """The task model."""
    return "An answer. " + " ".join(f"[feature {i}]" for i, rule in enumerate(RULES) if rule in prompt)


def truth(prompt: str, cases: list[Item]) -> float:
    """Mean score without mistakes."""
    return sum(sum(RULES[i] in prompt for i in item.wants) / 2 for item in cases) / len(cases)


@dataclass
class World:
    """One run of it: with or without words, with or without mistakes; counts what is asked of it."""

    seed: int
    words: bool = True
    noise: bool = False
    heeds: bool = True
    """Whether the reflecting model leaves alone what it is told was no better."""
    tried: int = 0
    asked: int = 0
    start: str = START
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"world:{self.seed}")
        self.cases = Cases.of(self.seed)
        self.by_id = {one.id: one for one in (*self.cases.train, *self.cases.validation)}

    def try_(self, prompt: str, item: str) -> tuple[float, str, str]:
        """Score, words and answer."""
        said = answer(prompt)
        return *self.judge(self.by_id[item], said), said

    def tries(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, str, str]]:
        return [self.try_(prompt, item) for prompt, item in pairs]

    def measure(self, prompt: str) -> float:
        """On items that no optimiser has."""
        return truth(prompt, self.cases.test)

    def judge(self, item: Item, said: str) -> tuple[float, str]:
        """The person."""
        self.tried += 1
        there = [f"[feature {i}]" in said for i in item.wants]
        if self.noise:
            there = [seen != (self.rng.random() < MISTAKEN) for seen in there]
        missed = [RULES[i] for i, seen in zip(item.wants, there, strict=True) if not seen]
        words = " ".join(f'I miss this: "{rule}"' for rule in missed) or "Just right."
        return sum(there) / 2, words if self.words else ""

    def reflect(self, asked: str) -> str:
        """The reflecting model."""
        self.asked += 1
        missed = _MISSED.findall(asked)
        return mended(asked, self.rng, missed, WRONG if self.words else RULES + WRONG, self.heeds)

    def suggest(self) -> str:
        """A prompt that the model would write who has seen no feedback."""
        self.asked += 1
        some = self.rng.sample(RULES + WRONG, self.rng.randint(1, 8))
        return "\n".join([START, *some])


def mended(
    asked: str, rng: random.Random, right: list[str] | tuple[str, ...], other: tuple[str, ...], heeds: bool
) -> str:
    """What a reflecting model answers: the prompt with one more sentence, of those that would be right or of others, and now and then without a line."""
    found = _FENCED.search(asked)
    lines = (found[1] if found else START).split("\n")
    told = _NO_BETTER.search(asked)
    avoid = told[1] if told and heeds else ""
    if rng.random() < FORGETS and len(lines) > 1:
        lines.remove(rng.choice(lines[1:]))
    missed = [one for one in right if one not in "\n".join(lines)]
    if missed and rng.random() >= WRONG_SHARE:
        new = rng.choice(missed)
    else:
        free = [one for one in other if one not in "\n".join(lines) and one not in avoid]
        new = rng.choice(free or list(other))
    return "```\n" + "\n".join([*lines, new]) + "\n```"
