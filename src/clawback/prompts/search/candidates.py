"""The candidates of a search: each one's known and estimated score on every example, and the Pareto front of those to continue from."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clawback.prompts.prompt import Prompt
from clawback.prompts.rule_comparison import Rule
from clawback.prompts.search.ledger import Ledger
from clawback.prompts.search_types import Example, mean
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
