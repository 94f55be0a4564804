"""The account of a search: every evaluation and every proposal is paid once, within the budget, and its result kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from clawback.errors import ClawbackError
from clawback.prompts.prompt import Prompt
from clawback.prompts.search.budget import Budget, SearchCost
from clawback.prompts.search.journal import Journal
from clawback.prompts.search_types import (
    Case,
    Evaluate,
    Example,
    Outcome,
    Proposal,
    ProposalRequest,
    Propose,
    mean,
)


class Over(ClawbackError):
    """The search has ended; the message says why."""


class Ledger:
    """Tries and proposals, paid from one budget. ``reserved``: calls that only the last check may use."""

    def __init__(
        self, evaluate: Evaluate, propose: Propose, budget: Budget, journal: Journal | None = None
    ) -> None:
        self.budget, self.journal = budget, journal or Journal()
        self.spent = SearchCost()
        self.reserved = 0
        self.unparsable = 0
        """Proposals in a row that nothing could be read out of."""
        self._evaluate, self._propose = evaluate, propose
        self._tried: dict[str, dict[str, list[Outcome]]] = {}

    def try_(self, prompt: Prompt, example: Example, *, again: bool = False) -> Outcome:
        """The outcome of a prompt on an example: from the account if it was tried before, unless ``again``. Raises ``Over``."""
        known = self._tried.setdefault(prompt.id, {}).setdefault(example.id, [])
        if known and not again:
            return known[-1]
        if why := self.spent.over(self.budget, calls=1 + self.reserved):
            raise Over(why)
        outcome = self.journal.outcome(prompt, example, len(known))
        if outcome is None:
            outcome = self._evaluate(prompt, example)
            self.journal.keep_outcome(prompt, example, len(known), outcome)
        self.spent = self.spent.tried(outcome.usage)
        known.append(_sound(outcome))
        return known[-1]

    def propose(self, request: ProposalRequest) -> Proposal:
        """A proposal for a request, paid from the budget. Raises ``Over``."""
        if why := self.spent.over(self.budget, calls=1 + self.reserved, proposals=1):
            raise Over(why)
        made = self.journal.proposal(request)
        if made is None:
            made = self._propose(request)
            self.journal.keep_proposal(request, made)
        self.spent = self.spent.proposed(made.usage)
        self.unparsable = 0 if made.prompt is not None else self.unparsable + 1
        return made

    def score(self, prompt: Prompt, example: Example) -> float | None:
        """Its mean score on this example, None if it was not tried."""
        known = self._tried.get(prompt.id, {}).get(example.id)
        return mean([one.score for one in known]) if known else None

    def last(self, prompt: Prompt, example: Example) -> float:
        """Its most recent score on this example."""
        return self._tried[prompt.id][example.id][-1].score

    @property
    def repeats(self) -> int:
        """How often something was tried that had been tried before."""
        return sum(len(known) - 1 for tried in self._tried.values() for known in tried.values() if known)

    def looks(self, prompt: Prompt, example: Example) -> int:
        """How often it was tried on this example."""
        return len(self._tried.get(prompt.id, {}).get(example.id, ()))

    def case(self, prompt: Prompt, example: Example) -> Case:
        """The example with the last outcome there, paid for where there is none yet."""
        return Case(example, self.try_(prompt, example))

    def scores(self, prompt: Prompt) -> Mapping[str, float]:
        """Example id → mean score."""
        return {
            id: mean([one.score for one in known])
            for id, known in self._tried.get(prompt.id, {}).items()
            if known
        }

    def noise(self) -> float:
        """Standard deviation of a score about its own mean, over everything that was tried more than once; 0 where nothing was."""
        squares, degrees = 0.0, 0
        for tried in self._tried.values():
            for known in tried.values():
                scores = [one.score for one in known]
                squares += sum((s - mean(scores)) ** 2 for s in scores)
                degrees += len(scores) - 1
        return math.sqrt(squares / degrees) if degrees else 0.0


def paired(ledger: Ledger, new: Prompt, old: Prompt, examples: Sequence[Example]) -> list[float]:
    """Differences of mean scores on the examples that both were tried on."""
    both = ((ledger.score(new, one), ledger.score(old, one)) for one in examples)
    return [a - b for a, b in both if a is not None and b is not None]


def _sound(outcome: Outcome) -> Outcome:
    """A score that is no number is the worst there is, not one that nothing compares with."""
    if math.isfinite(outcome.score):
        return outcome
    return Outcome(
        0.0, f"{outcome.feedback} (its score was no number)".strip(), outcome.response, {}, outcome.usage
    )
