"""The budget of a search: what it may spend, what it has spent, and a forecast of what that will buy."""

from __future__ import annotations

from dataclasses import dataclass, fields

from clawback.errors import UsageError
from clawback.prompts.backends import NOTHING, Usage
from clawback.records import JsonObject


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
