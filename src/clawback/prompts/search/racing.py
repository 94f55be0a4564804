"""The candidates of a search, and the races between them.

Each candidate has a known or estimated score on every example; the search continues from the Pareto front of those. A child races its parent, and the
best race each other in the last check; a candidate that can no longer win is dropped.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clawback.prompts.prompt import Prompt, Rule
from clawback.prompts.search.ledger import Ledger, Over, paired
from clawback.prompts.search_types import Example, mean

if TYPE_CHECKING:
    from clawback.records import JsonObject

DOUBT = 2.0
"""Tries that a gain is shrunk by: seen on one example only, a third of it is believed of the others."""
_SAME = 1e-9


@dataclass
class Candidate:
    """A prompt that is in the running. ``earned``: rules that won a race on the way to it; ``lost``: rules that children lost by."""

    prompt: Prompt
    parent: Candidate | None = None
    earned: tuple[Rule, ...] = ()
    lost: list[str] = field(default_factory=list)
    calls: int = 0
    """Calls that the search had made when it came in."""

    def ancestors(self) -> list[Candidate]:
        """Itself, its parent, and so on."""
        return [self, *(self.parent.ancestors() if self.parent else [])]

    def to_dict(self, ledger: Ledger) -> JsonObject:
        scores = ledger.scores(self.prompt)
        return {**self.prompt.to_dict(), "id": self.prompt.id, "calls": self.calls, "tried": len(scores), "mean": mean(list(scores.values()))}  # fmt: skip


class Pool:
    """All candidates, the first prompt at its head."""

    def __init__(self, first: Prompt, ledger: Ledger, perfect: float) -> None:
        self.all = [Candidate(first)]
        self.ledger, self.perfect = ledger, perfect

    def add(self, candidate: Candidate) -> None:
        self.all.append(candidate)

    def knows(self, prompt: Prompt) -> bool:
        return any(one.prompt.id == prompt.id for one in self.all)

    def estimates(self, examples: Sequence[Example]) -> list[list[float]]:
        """``[candidates, examples]``: mean score where it was tried, else its parent's estimate plus the gain that was seen."""
        made: dict[str, list[float]] = {}
        for one in self.all:
            made[one.prompt.id] = self._row(one, examples, made)
        return [made[one.prompt.id] for one in self.all]

    def _row(
        self, candidate: Candidate, examples: Sequence[Example], scores: Mapping[str, list[float]]
    ) -> list[float]:
        seen = [self.ledger.score(candidate.prompt, example) for example in examples]
        known = [score for score in seen if score is not None]
        if candidate.parent is None:
            return [mean(known) if score is None else score for score in seen]
        below = scores[candidate.parent.prompt.id]
        gains = [score - under for score, under in zip(seen, below, strict=True) if score is not None]
        gain = sum(gains) / (len(gains) + DOUBT)
        return [min(self.perfect, under + gain) if score is None else score for score, under in zip(seen, below, strict=True)]  # fmt: skip

    def ranked(self, examples: Sequence[Example]) -> list[tuple[float, Candidate]]:
        """By expected mean, best first; of equals the shorter prompt."""
        means = [mean(row) for row in self.estimates(examples)]
        return sorted(
            zip(means, self.all, strict=True), key=lambda one: (-round(one[0], 9), len(one[1].prompt.text))
        )

    def front(self, examples: Sequence[Example]) -> list[tuple[int, Candidate]]:
        """Candidates that are expected to be best on some example, with on how many; those that another one covers are left out."""
        rows = self.estimates(examples)
        tops = [max(column) for column in zip(*rows, strict=True)]
        best = [{i for i, top in enumerate(tops) if row[i] >= top - _SAME} for row in rows]
        means = [mean(row) for row in rows]
        kept = []
        for k, one in enumerate(self.all):
            covered = any(
                best[k] < best[j] or (best[k] == best[j] and (means[j], -j) > (means[k], -k))
                for j in range(len(rows))
                if j != k
            )
            if best[k] and not covered:
                kept.append((len(best[k]), one))
        return kept

    def choose(self, examples: Sequence[Example], rng: random.Random) -> Candidate:
        """One of the front, by on how many examples it is best."""
        front = self.front(examples)
        return rng.choices([one for _, one in front], [count for count, _ in front])[0]


TRUSTED = 5
"""Second looks that all gave the same score, from which on scores are taken to have no noise."""
LEAST = 4
"""Examples of the last check before anybody is dropped from it."""
BEHIND = 1.645
"""Standard errors behind the leader at which one is dropped from the last check."""


@dataclass(frozen=True, slots=True)
class Race:
    """Who won, by how much in all, on how many examples; ``why`` it ended."""

    won: bool
    ahead: float
    tried: int
    why: str


@dataclass(frozen=True, slots=True)
class Course:
    """The examples of a race."""

    failing: Sequence[Example]
    """What the parent is known to fail on. It has scores on these and on ``others``."""
    others: Sequence[Example]
    """What it is known to do better on."""
    anchors: Sequence[Example]


def race(ledger: Ledger, child: Prompt, parent: Prompt, course: Course, perfect: float) -> Race:
    """The child must be ahead on the failing ones, and still be on both together; on no anchor may it be behind. Raises ``Over``."""
    ahead, tried = 0.0, 0
    for part in (course.failing, course.others):
        for place, example in enumerate(part):
            ledger.try_(child, example)
            tried += 1
            ahead += _gap(ledger, child, parent, example)
            room = sum(perfect - (ledger.score(parent, one) or 0.0) for one in part[place + 1 :])
            if ahead + room <= 0:
                return Race(False, ahead, tried, "it cannot win any more")
        if ahead <= 0:
            return Race(False, ahead, tried, "it is not ahead of its parent")
    if not _again(ledger, child, parent, [*course.failing, *course.others]):
        return Race(False, ahead, tried, "it was ahead by luck")
    slack = 2 * ledger.noise()
    for anchor in course.anchors:
        ledger.try_(parent, anchor)
        ledger.try_(child, anchor)
        tried += 1
        if _gap(ledger, child, parent, anchor) < -slack - 1e-9:
            return Race(False, ahead, tried, f"it gets worse on the anchor {anchor.id}")
    return Race(True, ahead, tried, "it is ahead")


def _again(ledger: Ledger, child: Prompt, parent: Prompt, examples: Sequence[Example]) -> bool:
    """Whether a win holds at a second look, where scores are noisy or it is not known yet whether they are.

    Failing examples are chosen for their low scores, so by chance alone a child does better there. Fresh looks at both are free of that.
    """
    gained = sorted((e for e in examples if _gap(ledger, child, parent, e)), key=lambda e: -_gap(ledger, child, parent, e))  # fmt: skip
    fresh = 0.0
    for example in gained:
        if not ledger.noise() and ledger.repeats >= TRUSTED:
            return True
        ledger.try_(child, example, again=True)
        if ledger.noise():
            ledger.try_(parent, example, again=True)
        fresh += ledger.last(child, example) - ledger.last(parent, example)
        if not ledger.noise():
            return True
    return fresh > 0


def finals(ledger: Ledger, finalists: Sequence[Prompt], examples: Sequence[Example]) -> tuple[Prompt, int]:
    """The best of ``finalists`` (in order of expectation; the last is the prompt as it was) on the examples, and how many were used.

    All are tried on one example after the other. One that is clearly behind is tried no further. Ends early where the budget does.
    """
    alive, used = list(finalists), 0
    for example in examples:
        if len(alive) < 2:
            break
        try:
            for prompt in alive:
                ledger.try_(prompt, example)
        except Over:
            break
        used += 1
        if used >= LEAST:
            alive = _still_in(ledger, alive, examples[:used])
    seen = examples[:used]
    order = {prompt.id: -place for place, prompt in enumerate(finalists)}
    return max(alive, key=lambda one: (round(_mean(ledger, one, seen), 9), order[one.id])), used


def _still_in(ledger: Ledger, alive: Sequence[Prompt], seen: Sequence[Example]) -> list[Prompt]:
    leader = max(alive, key=lambda one: _mean(ledger, one, seen))
    kept = []
    for one in alive:
        gaps = paired(ledger, leader, one, seen)
        if one is leader or mean(gaps) <= BEHIND * error(gaps):
            kept.append(one)
    return kept


def error(gaps: Sequence[float]) -> float:
    """Standard error of the mean; a spread of nothing is not believed of a few (one more look that differs is assumed)."""
    n, middle = len(gaps), mean(gaps)
    if not n:
        return math.inf
    variance = (sum((g - middle) ** 2 for g in gaps) + max((abs(g) for g in gaps), default=0.0) ** 2) / n
    return math.sqrt(variance / n)


def _mean(ledger: Ledger, prompt: Prompt, examples: Sequence[Example]) -> float:
    return mean([score for one in examples if (score := ledger.score(prompt, one)) is not None])


def _gap(ledger: Ledger, child: Prompt, parent: Prompt, example: Example) -> float:
    return (ledger.score(child, example) or 0.0) - (ledger.score(parent, example) or 0.0)
