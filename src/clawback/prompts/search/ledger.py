"""The account of a search: its budget and plan, every paid call, and what each gave.

A search depends only on its seed and the results of its calls. The journal has a JSON line for each paid call; repeating the search from the start, with
these calls answered from the journal, leads to the place where it was stopped and pays for nothing twice. A line that a crash cut off is the last one; it
is dropped, and its call is made again.

The plan splits the examples into validation and training, and keeps a reserve for the last check.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from clawback.errors import ClawbackError, UsageError
from clawback.files import append_line
from clawback.models_api import guess
from clawback.prompts.backends import NOTHING, Price, Usage
from clawback.prompts.prompt import Prompt
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
from clawback.records import JsonObject, text_of


@dataclass(frozen=True, slots=True)
class Budget:
    """Whichever is used up first ends the search; at least one is set.

    Attributes:
        calls: tries of a prompt on an example.
        proposals: new prompts asked for.
        tokens: of both, sent and received.
        money: of both, in the currency of the backends' prices.
    """

    calls: int | None = None
    proposals: int | None = None
    tokens: int | None = None
    money: float | None = None

    def __post_init__(self) -> None:
        given = [value for one in fields(self) if (value := getattr(self, one.name)) is not None]
        if not given:
            raise UsageError("Set a budget: calls, proposals, tokens or money.")
        if min(given) <= 0:
            raise UsageError("A budget is above 0.")


@dataclass(frozen=True, slots=True)
class SearchCost:
    """What a search has used. ``usage`` is of tries and proposals together."""

    calls: int = 0
    proposals: int = 0
    usage: Usage = NOTHING

    def tried(self, usage: Usage) -> SearchCost:
        return SearchCost(self.calls + 1, self.proposals, self.usage + usage)

    def proposed(self, usage: Usage) -> SearchCost:
        return SearchCost(self.calls, self.proposals + 1, self.usage + usage)

    def over(self, budget: Budget, calls: int = 1, proposals: int = 0) -> str:
        """Why so much more would go beyond the budget, "" where it would not. Tokens and money are judged by the mean so far."""
        used = self.calls + self.proposals
        more = (calls + proposals) / used if used else 0.0
        checks = (
            ("calls", self.calls + calls, budget.calls),
            ("proposals", self.proposals + proposals, budget.proposals),
            ("tokens", self.usage.tokens * (1 + more), budget.tokens),
            ("money", self.usage.money * (1 + more), budget.money),
        )
        for name, would, most in checks:
            if most is not None and would > most:
                return f"the budget of {most:g} {'of money' if name == 'money' else name} is used up"
        return ""

    def to_dict(self) -> JsonObject:
        return {"calls": self.calls, "proposals": self.proposals, **{k: v for k, v in self.usage.to_dict().items() if k != "calls"}}  # fmt: skip


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """What a budget will buy. ``warning``: it is too small for one full cycle, and what would do.

    A cycle is one proposal with all that it takes to find out whether it is better: a first look at the prompt as it is,
    the proposal itself, its race, and the last check of the winner.
    """

    cycles: int
    calls: int
    proposals: int
    tokens: int
    money: float
    warning: str = ""

    def to_dict(self) -> JsonObject:
        return {one.name: getattr(self, one.name) for one in fields(self)}


FORMAT = 1


class Journal:
    """Outcomes by (prompt, example, how many times before) and proposals by request; in a file where a path is given."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.outcomes: dict[str, Outcome] = {}
        self.proposals: dict[str, Proposal] = {}
        if path is not None and path.exists():
            self._read(path)

    def outcome(self, prompt: Prompt, example: Example, again: int = 0) -> Outcome | None:
        return self.outcomes.get(_tried(prompt, example, again))

    def proposal(self, request: ProposalRequest) -> Proposal | None:
        return self.proposals.get(request.fingerprint)

    def keep_outcome(self, prompt: Prompt, example: Example, again: int, outcome: Outcome) -> None:
        key = _tried(prompt, example, again)
        self.outcomes[key] = outcome
        self._write({"tried": key, **outcome.to_dict()})

    def keep_proposal(self, request: ProposalRequest, proposal: Proposal) -> None:
        self.proposals[request.fingerprint] = proposal
        self._write({"asked": request.fingerprint, **proposal.to_dict()})

    @property
    def paid(self) -> Usage:
        """All that its calls have cost."""
        tried = (one.usage for one in self.outcomes.values())
        return sum((one.usage for one in self.proposals.values()), sum(tried, NOTHING))

    def to_dict(self) -> JsonObject:
        """The whole state as JSON values, for those who keep it elsewhere than in a file."""
        return {
            "format": FORMAT,
            "outcomes": {key: one.to_dict() for key, one in self.outcomes.items()},
            "proposals": {key: one.to_dict() for key, one in self.proposals.items()},
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Journal:
        """Raises ``UsageError`` where it is none of ours."""
        made = cls()
        try:
            if state["format"] != FORMAT:
                raise ValueError(f"its format is {state['format']!r}")
            made.outcomes = {key: Outcome.from_dict(one) for key, one in state["outcomes"].items()}
            made.proposals = {key: Proposal.from_dict(one) for key, one in state["proposals"].items()}
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"This is no state of a search over prompts: {error}.") from error
        return made

    def _read(self, path: Path) -> None:
        lines = path.read_text("utf-8").split("\n")
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if number == len(lines):  # no newline after it: the crash came in the middle of it
                    os.truncate(path, len("\n".join(lines[:-1]).encode()) + 1 if number > 1 else 0)
                    return
                raise UsageError(f"Line {number} of the journal {path} is damaged. Remove the file to start anew.") from error  # fmt: skip

    def _take(self, state: Mapping[str, object]) -> None:
        if "tried" in state:
            self.outcomes[str(state["tried"])] = Outcome.from_dict(state)
        elif "asked" in state:
            self.proposals[str(state["asked"])] = Proposal.from_dict(state)
        else:
            raise ValueError("neither a try nor a proposal")

    def _write(self, line: Mapping[str, object]) -> None:
        if self.path is not None:
            append_line(self.path, json.dumps(line))


def _tried(prompt: Prompt, example: Example, again: int) -> str:
    return f"{prompt.id}:{example.id}:{example.fingerprint}:{again}"


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


KEPT = 0.4
"""Share of the examples that is kept for validation where none is named for it."""
LEAST = 5
"""Examples below which nothing is kept: the last check is then on those that the search saw, and says so."""
SET_ASIDE = 0.2
"""Of a budget in calls, for the last check."""
_BATCH, _GUARD = 3, 2
_ANSWER, _REFLECTION = 300, 800  # tokens that are assumed before anything is known
_SHOWN = 4  # cases and words around them, as multiples of an example


def split_up(examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example], str]:
    """Those to learn from, those to decide by, and a note where they had to be the same. Raises ``UsageError``."""
    ids = [one.id for one in examples]
    if not ids:
        raise UsageError("A search needs examples: give it some feedback first, or a file of cases.")
    if len(set(ids)) < len(ids):
        twice = next(id for id in ids if ids.count(id) > 1)
        raise UsageError(f"Two examples have the id {twice!r}. Give each its own.")
    train = [one for one in examples if one.split == "train"]
    validation = [one for one in examples if one.split == "validation"]
    if train and validation:
        return train, validation, ""
    if len(examples) < LEAST:
        return list(examples), list(examples), f"With {len(examples)} examples none can be kept back: the check at the end is on the ones that were learned from."  # fmt: skip
    order = sorted(examples, key=lambda one: one.id)
    random.Random(f"{seed}:split").shuffle(order)
    count = round(KEPT * len(order))
    free = [one for one in order if not one.anchor]
    kept = {one.id for one in free[:count]}
    return [e for e in examples if e.id not in kept], [e for e in examples if e.id in kept], ""


def reserve(budget: Budget, validation: int, finalists: int) -> int:
    """Calls that are set aside for the last check."""
    whole, least = validation * finalists, min(validation, LEAST) * finalists
    if budget.calls is None:
        return least
    return min(whole, max(round(SET_ASIDE * budget.calls), min(least, budget.calls // 3)))


def plan(
    prompt: Prompt,
    examples: Sequence[Example],
    budget: Budget,
    *,
    task: Price | None = None,
    reflection: Price | None = None,
    finalists: int = 3,
) -> BudgetPlan:
    """What the budget will buy, before anything is paid. Tokens are guessed from the texts, on the high side."""
    train, validation, _ = split_up(examples, 0)
    anchors = sum(one.anchor for one in examples)
    asked = sum(guess(text_of(m.get("content"))) for e in train for m in e.messages) // len(train)
    sent = guess(prompt.text) + asked
    shown = guess(prompt.text) + _SHOWN * (asked + _ANSWER)
    first, each = _BATCH, _BATCH + _GUARD + anchors + 2
    last = min(len(validation), LEAST) * 2
    task_tokens, ask_tokens = sent + _ANSWER, shown + _REFLECTION
    task_money = (task or Price()).of(sent, _ANSWER)
    ask_money = (reflection or Price()).of(shown, _REFLECTION)
    limits = []
    if budget.calls is not None:
        limits.append((budget.calls - first - reserve(budget, len(validation), finalists)) / each)
    if budget.proposals is not None:
        limits.append(budget.proposals)
    if budget.tokens is not None:
        limits.append((budget.tokens - (first + last) * task_tokens) / (each * task_tokens + ask_tokens))
    if budget.money is not None and (each * task_money + ask_money) > 0:
        limits.append((budget.money - (first + last) * task_money) / (each * task_money + ask_money))
    cycles = max(0, int(min(limits))) if limits else 0
    calls = first + cycles * each + last if budget.calls is None else budget.calls
    warning = ""
    if cycles < 1 and limits:
        warning = f"This budget does not pay for one cycle: that takes about {first + each + last} calls and 1 proposal ({(first + each + last) * task_tokens + ask_tokens:,} tokens). Raise it."  # fmt: skip
    return BudgetPlan(cycles, calls, cycles, calls * task_tokens + cycles * ask_tokens, calls * task_money + cycles * ask_money, warning)  # fmt: skip
