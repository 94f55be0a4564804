"""Which rules a model may be told of: those that the owner wrote, or said yes to, and those of our own list.

A sentence that a model or an agent wrote may have been made to steer another model, so it is said nowhere before the owner has seen it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence, Set
from typing import TYPE_CHECKING

from clawback.records import OWNER, Rule

if TYPE_CHECKING:
    from clawback.store import Store

LIST = "list"
"""Author of the sentences in ``rewards.instructions``: a list that was written by hand."""
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def wording(sentence: str) -> str:
    """By what sentences and texts are compared: words alone, in lower case, in the form that shows through look-alike letters and marks."""
    return " ".join(WORD.findall(unicodedata.normalize("NFKC", sentence).casefold()))


def may_be_said(rule: Rule, accepted: Set[str] = frozenset()) -> bool:
    """Whether a model may be told of the rule.

    Args:
        accepted: sentences that the owner has said yes to elsewhere (``accepted_sentences``).
    """
    trusted = rule.author in (OWNER, LIST) or bool(rule.evidence.get("accepted"))
    return rule.status == "believed" and (trusted or wording(rule.text) in accepted)


def accepted_sentences(store: Store) -> Set[str]:
    """The sentences of prompts that the owner has said yes to, by their words."""
    return {wording(sentence) for sentence in store.accepted_sentences()}


def rules_to_say(store: Store) -> list[Rule]:
    """All rules that a model may be told of."""
    accepted = accepted_sentences(store)
    return [rule for rule in store.rules("believed") if may_be_said(rule, accepted)]


def distinct_rules_to_say(store: Store) -> list[Rule]:
    """The rules that a model may be told of, without those that add nothing beside a stronger one, those that the ratings speak for most clearly first."""
    rules = rules_to_say(store)
    numbers = {rule.id for rule in rules}
    distinct: Iterable[Rule] = (r for r in rules if r.evidence.get("explained_by", 0) not in numbers)
    return sorted(distinct, key=lambda rule: -float(rule.evidence.get("statistic", 0.0)))


def without_repetitions(rules: Iterable[Rule]) -> list[Rule]:
    """The rules without those that have the check of another: what the owner wrote or said yes to stands for a sentence of our list."""
    listed = list(rules)
    chosen: dict[str, Rule] = {}
    for rule in sorted(listed, key=lambda one: one.author != OWNER and not one.evidence.get("accepted")):
        chosen.setdefault(rule.check or f"rule {rule.id}", rule)
    return [rule for rule in listed if rule in chosen.values()]


def waiting_rules(store: Store) -> list[Rule]:
    """Believed rules that no model is told of before the owner says yes; without those that add nothing beside a stronger one."""
    accepted = accepted_sentences(store)
    believed = (rule for rule in store.rules("believed") if not rule.evidence.get("explained_by"))
    return [rule for rule in believed if not may_be_said(rule, accepted)]


def waiting_sentence(rules: Sequence[Rule]) -> str:
    """What the owner can do about rules that wait, in two short sentences; "" for none."""
    if not rules:
        return ""
    first, more = rules[0], len(rules) - 1
    others = f" and {more} other rule{'' if more == 1 else 's'} (`clawback status`)" if more else ""
    return (
        f"Your ratings speak for “{first.text.rstrip('.')}”{others}. No answer is drawn under {'them' if more else 'it'} before you say yes: "
        f"`clawback rules keep {first.id}`."
    )
