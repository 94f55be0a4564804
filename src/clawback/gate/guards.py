"""Guards of the gate: answers have to be useful and to keep the owner's rules, whatever they score.

How often answers keep a rule is measured by the rule's own check, and not by what trained a version.

A candidate that drifted too far, repeats itself, falls silent, breaks off, rambles, says the same to everybody or no longer answers the question
is rejected: a collapsed model can score well on anything, and empty answers do not satisfy a taste. The guards compare with the base model's
answers *and* with the answers that were liked: whoever likes short ones gets short ones, but no stubs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Protocol

from clawback.config import GateSection
from clawback.records import OWNER, JsonObject, Rule, with_keys

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
    rules = store.rules("believed")
    if not rules:
        return []
    from clawback.rules.checks import check_of

    return [(rule, check) for rule in rules if (check := check_of(rule)) is not None]


EMPTY_MORE = 0.05
MORE = 0.10
"""By how much the share of answers that do not end, break off, repeat themselves or the question, or are canned may exceed the base's."""
SHORTER_THAN = 0.35
"""Of the length of liked answers or of the base's, whichever are shorter."""
SHORTER_THAN_BASE = 0.15
"""The same where too few answers were liked to know how long they are."""
LONGER_THAN, LONGER_BY = 2.0, 40.0
"""Times the length of liked answers or of the base's, whichever are longer; and tokens on top, which count where answers have a line or two."""
LESS_RELEVANT = 0.5
"""Of what the question adds to the log-prob of the base's answers (or of liked ones, if that is less)."""
LESS_LIKELY = 1.0
"""Nats a token under the base model that answers may be less likely than its own, or than liked ones."""


@dataclass(frozen=True, slots=True)
class AnswerStatistics:
    """How some answers are: shares in [0, 1], lengths in tokens, log-probs in nats a token under the base model."""

    finished: float
    empty: float
    repeating: float
    length: float
    complete: float = 1.0
    """Share that ends where a sentence, an item, code or the like ends."""
    copied: float = 0.0
    """Share that says little but what was asked."""
    canned: float = 0.0
    """Share that was said to another prompt word for word, too."""
    logprob: float | None = None
    """Under the base, given the prompt. None: not measured, as in reports from before it was."""
    relevance: float | None = None
    """By how much the log-prob is higher than given another one of the prompts. 0: whatever was asked, the same is said."""

    def to_dict(self) -> JsonObject:
        """As reports store it."""
        return with_keys(asdict(self), {"complete": "whole"})


class Measured(Protocol):
    """What the guards look at (``rule.Evidence``)."""

    @property
    def candidate(self) -> AnswerStatistics: ...
    @property
    def base(self) -> AnswerStatistics: ...
    @property
    def enjoyed(self) -> AnswerStatistics | None: ...
    @property
    def kl(self) -> float: ...
    @property
    def perplexity_ratio(self) -> float: ...
    @property
    def prompt_kl(self) -> float: ...


def alarms(evidence: Measured, settings: GateSection) -> tuple[str, ...]:
    """What is wrong with the candidate's answers, whatever their score."""
    ours, base, liked = evidence.candidate, evidence.base, evidence.enjoyed or evidence.base
    # Longer answers have more room to repeat themselves and run into the limit more often: what is allowed grows with them.
    longer = max(1.0, ours.length / max(base.length, 1.0))
    # A prompt that is live has taken its answers this far from the base's already: whoever does the same without it may go as far.
    by_length = settings.max_kl_per_token * max(ours.length, base.length)
    most_kl = max(settings.max_kl, by_length, evidence.prompt_kl)
    least = (
        SHORTER_THAN * min(base.length, liked.length) if evidence.enjoyed else SHORTER_THAN_BASE * base.length
    )
    most = LONGER_THAN * max(base.length, liked.length) + LONGER_BY
    beside = f"the base model's {base.length:.0f}" + (
        f", liked ones {liked.length:.0f}" if evidence.enjoyed else ""
    )
    checks = (
        (
            not math.isfinite(evidence.kl) or evidence.kl > most_kl,
            f"it drifted {evidence.kl:.1f} nats per answer from the base model (at most {most_kl:g})",
        ),
        (
            not math.isfinite(evidence.perplexity_ratio)
            or evidence.perplexity_ratio > settings.max_perplexity_ratio,
            f"the perplexity of the base model's text rose by {evidence.perplexity_ratio - 1:.0%} "
            f"(at most {settings.max_perplexity_ratio - 1:.0%})",
        ),
        (
            1 - ours.finished > (1 - base.finished) * longer + MORE,
            f"{1 - ours.finished:.0%} of its answers do not end ({1 - base.finished:.0%} of the base model's)",
        ),
        (ours.empty > base.empty + EMPTY_MORE, f"{ours.empty:.0%} of its answers are empty"),
        (
            ours.repeating > base.repeating * longer + MORE,
            f"{ours.repeating:.0%} of its answers repeat themselves ({base.repeating:.0%} of the base model's)",
        ),
        (
            not least <= ours.length <= most,
            f"its answers are {ours.length:.0f} tokens long, {beside} ({least:.0f} to {most:.0f} are allowed)",
        ),
        (
            ours.complete < min(base.complete, liked.complete) - MORE,
            f"{1 - ours.complete:.0%} of its answers break off ({1 - base.complete:.0%} of the base model's)",
        ),
        (
            ours.copied > max(base.copied, liked.copied) + MORE,
            f"{ours.copied:.0%} of its answers repeat the question ({base.copied:.0%} of the base model's)",
        ),
        (
            ours.canned > max(base.canned, liked.canned) + MORE,
            f"{ours.canned:.0%} of its answers are the same for different questions ({base.canned:.0%} of the base model's)",
        ),
        *_under_the_base(ours, base, liked),
    )
    return tuple(sentence for wrong, sentence in checks if wrong)


def _under_the_base(
    candidate: AnswerStatistics, base: AnswerStatistics, liked: AnswerStatistics
) -> tuple[tuple[bool, str], ...]:
    """What the base model makes of the answers: are they still about what was asked, and still language?"""
    if (
        candidate.relevance is None
        or base.relevance is None
        or candidate.logprob is None
        or base.logprob is None
    ):
        return ()
    needed = LESS_RELEVANT * min(
        base.relevance, base.relevance if liked.relevance is None else liked.relevance
    )
    least = min(base.logprob, base.logprob if liked.logprob is None else liked.logprob) - LESS_LIKELY
    return (
        (
            not math.isfinite(candidate.relevance) or candidate.relevance < needed,
            f"its answers have little to do with the question: relevance {candidate.relevance:.2f} nats per token, "
            f"the base model's {base.relevance:.2f}",
        ),
        (
            not math.isfinite(candidate.logprob) or candidate.logprob < least,
            f"its answers are unlikely text to the base model: {candidate.logprob:.2f} nats per token, its own {base.logprob:.2f}",
        ),
    )
