"""Believed rules as lines of the learned prompt, for models whose weights are elsewhere.

There is no second mechanism: the rules become a version with a prompt, of which the history, the gate, the rollback and the proxy are those
of every learned prompt (``release.prompted``). A rule that was withdrawn goes out of the prompt in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback.errors import UsageError
from clawback.feedback.rule_consent import accepted_sentences, may_be_said, rules_to_say, without_repetitions
from clawback.gate import prompt_gate as prompt_gate
from clawback.prompts import prompt
from clawback.release import prompted, screening

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from clawback.paths import Home
    from clawback.records import Rule, Version
    from clawback.store import Store

SECTION = "constraints"
AUTHOR = "rules"


def compose(text: str, rules: Iterable[Rule], accepted: Set[str] = frozenset()) -> str:
    """A prompt with every rule that a model may be told of, each once, and without those that it may not; the rest of it stays.

    A locked section stays as it is. ``accepted``: as for ``may_be_said``.
    """
    listed = list(rules)
    sayable = without_repetitions(rule for rule in listed if may_be_said(rule, accepted))
    wanted = {screening.literal(rule.text): rule.text for rule in sayable}
    unwanted = {screening.literal(rule.text) for rule in listed} - wanted.keys()
    parts = prompt.parse(text)
    for part in parts:
        for line in part.rules:
            if screening.literal(line) in unwanted:
                parts = prompt.without_rule(parts, part.name, line)
    there = {screening.literal(line) for part in parts for line in part.rules}
    for key, rule in wanted.items():
        if key not in there:
            parts = prompt.with_rule(parts, SECTION, rule)
    return prompt.render(parts)


def pending(store: Store) -> str | None:
    """The live prompt as the rules would have it; None where it says them already."""
    source = prompted.source(store.live())
    text = compose(source, store.rules(), accepted_sentences(store))
    return None if text.strip() == prompt.render(prompt.parse(source)).strip() else text


def use(store: Store, home: Home) -> Version:
    """Put the rules into the live prompt, because the owner says so: each of these sentences is the owner's or was accepted.

    Raises ``UsageError`` where there is nothing to put in or to take out.
    """
    text = pending(store)
    if text is None:
        complete = "The live prompt holds all rules that a model may be told of, and no others of yours."
        none = "There is no rule that a model may be told of yet: `clawback rules add` adds one, `clawback rules keep` says yes to one."
        raise UsageError(complete if rules_to_say(store) else none)
    if not text.strip():
        raise UsageError(
            "Without that rule the prompt is empty: `clawback versions rollback` goes back to a version without one."
        )
    version = prompted.propose(store, text, spoken=prompt.spoken(text), origin={"author": AUTHOR})
    return prompt_gate.by_hand(store, home, version)
