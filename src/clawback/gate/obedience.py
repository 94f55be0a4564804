"""How often two versions' answers keep the owner's rules: measured by a rule's own check, and not by what trained a version."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from clawback.records import OWNER, Rule
from clawback.rules.checks import check_of

if TYPE_CHECKING:
    from clawback.store import Store

Check = Callable[[str, str], "float | None"]
"""(question, answer) → how far the answer keeps the rule, 1 or 0; None where that cannot be told."""
EXACT_UP_TO = 12
"""Prompts of which every way to exchange the two versions is counted; of more, ``DRAWN`` random ones."""
DRAWN = 9_999


@dataclass(frozen=True, slots=True)
class RuleObedience:
    """A rule, and the shares of both versions' answers that keep it."""

    rule: str
    owners: bool
    """Whether the owner said it, or said yes to it."""
    candidate: float
    live: float
    answers: int
    """Of each version, of which the check could tell."""
    p_more: float
    p_less: float
    """Chance of a difference as large, in that direction, where both keep it equally often."""

    @property
    def gain(self) -> float:
        return self.candidate - self.live

    def __str__(self) -> str:
        return f'"{self.rule}" {self.candidate:.0%} of {self.answers} answers, the live version\'s {self.live:.0%}'


def obedience(check: Check, answers: Sequence[tuple[str, str]]) -> tuple[float, int]:
    """How many of the (question, answer) pairs keep a rule, and of how many that can be told."""
    told = [kept for pair in answers if (kept := check(*pair)) is not None]
    return sum(told), len(told)


def measure(
    rules: Sequence[tuple[Rule, Check]], prompts: Sequence[str], candidate: Sequence[str], live: Sequence[str]
) -> tuple[RuleObedience, ...]:
    """Both versions' answers to the same prompts, place by place. A rule of which nothing can be told is left out."""
    return tuple(
        found
        for rule, check in rules
        if (found := _measure_rule(rule, check, prompts, candidate, live)) is not None
    )


def _measure_rule(
    rule: Rule,
    check: Check,
    prompts: Sequence[str],
    candidate_answers: Sequence[str],
    live_answers: Sequence[str],
) -> RuleObedience | None:
    sides: tuple[dict[str, list[tuple[str, str]]], ...] = ({}, {})
    for prompt, *both in zip(prompts, candidate_answers, live_answers, strict=True):
        for side, text in zip(sides, both, strict=True):
            side.setdefault(prompt, []).append((prompt, text))
    kept = [{prompt: obedience(check, pairs) for prompt, pairs in side.items()} for side in sides]
    told = [prompt for prompt in sides[0] if all(side[prompt][1] for side in kept)]
    if not told:
        return None
    shares = [[side[prompt][0] / side[prompt][1] for prompt in told] for side in kept]
    differences = [mine - other for mine, other in zip(*shares, strict=True)]
    candidate, live = (
        sum(side[prompt][0] for prompt in told) / sum(side[prompt][1] for prompt in told) for side in kept
    )
    count = min(sum(side[prompt][1] for prompt in told) for side in kept)
    return RuleObedience(
        rule.text,
        rule.author == OWNER or bool(rule.evidence.get("accepted")),
        candidate,
        live,
        count,
        exchange_test(differences),
        exchange_test([-d for d in differences]),
    )


def exchange_test(differences: Sequence[float]) -> float:
    """One-sided p-value that the differences are above 0: of all ways to exchange the two versions at each prompt (Fisher 1935), the share that
    does as well. Answers to one prompt are exchanged together, since they are alike."""
    observed = sum(differences) - 1e-9
    if len(differences) <= EXACT_UP_TO:
        ways = [sum(way) for way in product(*((d, -d) for d in differences))]
        return sum(total >= observed for total in ways) / len(ways)
    rng = random.Random(0)
    as_good = sum(sum(d if rng.random() < 0.5 else -d for d in differences) >= observed for _ in range(DRAWN))
    return (as_good + 1) / (DRAWN + 1)


def checked(store: Store) -> list[tuple[Rule, Check]]:
    """The believed rules that code can check: what the owner stands by, and what the ratings speak for. A remark that the ratings speak against is proposed
    alone, and must neither stop a version nor put it live."""
    return [(rule, check) for rule in store.rules("believed") if (check := check_of(rule)) is not None]
