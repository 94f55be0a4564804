"""Planning of a search: the split into validation and training examples, the reserve for the last check, and a forecast."""

from __future__ import annotations

import random
from collections.abc import Sequence

from clawback.errors import UsageError
from clawback.feedback.endpoint import guess
from clawback.prompts.backends import Price
from clawback.prompts.prompt import Prompt
from clawback.prompts.search.budget import Budget, BudgetPlan
from clawback.prompts.search_types import Example
from clawback.records import text_of

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
