"""Rules come in: the owner's are believed at once, everybody else's are screened and wait for the owner's yes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback.errors import UsageError
from clawback.feedback.rated_examples import rated_examples
from clawback.records import OWNER, Rule
from clawback.release import screening
from clawback.rules import wording
from clawback.rules.checks import parse

if TYPE_CHECKING:
    from clawback.store import Store

AT_ONCE, WAITING = 8, 24
"""Rules that are taken from one call, and that may wait for a yes at a time."""
_NAME = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Proposed:
    """What became of proposed sentences."""

    rules: tuple[Rule, ...]
    refused: tuple[tuple[str, str], ...]
    """(sentence, why)"""


def add(store: Store, text: str) -> Rule:
    """A rule in the owner's own words, believed; one that differs in its case or full stop alone is the rule that stands. Raises ``UsageError``."""
    sentence = " ".join(str(store.clean(text)).split())
    if not sentence:
        raise UsageError('Say the rule in a sentence: `clawback rules add "Never apologise."`.')
    if len(sentence) > wording.LONGEST:
        raise UsageError(
            f"The rule has {len(sentence)} characters (at most {wording.LONGEST}). Say one thing a rule."
        )
    key, check = screening.literal(sentence), parse(sentence)
    known = [rule for rule in store.rules() if rule.check == check and screening.literal(rule.text) == key]
    rule = known[0] if known else store.add_rule(Rule(sentence, check, OWNER, status="believed"))
    return accept(store, rule.id)


def accept(store: Store, number: int) -> Rule:
    """The owner has seen it and says yes: it is believed, and its sentence may go into a live prompt."""
    rule = store.rule(number)
    with store.together():
        accepted = store.update_rule(number, "believed", dict(rule.evidence) | {"accepted": time.time()})
        store.accept_sentences([rule.text], store.live().number)
    return accepted


def withdraw(store: Store, number: int) -> Rule:
    """The owner takes it back. Its receipts stay."""
    rule = store.rule(number)
    evidence = {key: value for key, value in rule.evidence.items() if key != "accepted"}
    return store.update_rule(number, "withdrawn", evidence)


def propose(store: Store, sentences: Iterable[str], name: str) -> Proposed:
    """Sentences of an agent: screened like a learned prompt, bounded in number and length, ``proposed`` until the owner says yes."""
    proposals: list[Rule] = []
    refused: list[tuple[str, str]] = []
    author = agent_author(name)
    material = [wording.runs(text) for one in rated_examples(store) for text in (one.question, one.answer)]
    known = {screening.literal(rule.text): rule for rule in store.rules()}
    waiting = sum(rule.status == "proposed" for rule in known.values())
    for number, text in enumerate(sentences):
        sentence = wording.tidy(str(store.clean(text)))
        rule = known.get(screening.literal(sentence))
        why = wording.objection(sentence, material) or next(iter(screening.tricks(sentence)), "")
        if number >= AT_ONCE:
            why = f"more than {AT_ONCE} at a time"
        elif not why and rule is not None:
            why = f"it is rule {rule.id} already ({rule.status})"
        elif not why and waiting + len(proposals) >= WAITING:
            why = f"{WAITING} rules wait for a yes already"
        if why:
            refused.append((_shown(sentence), why))
        else:
            proposal = store.add_rule(Rule(sentence, parse(sentence), author))
            known[screening.literal(sentence)] = proposal
            proposals.append(proposal)
    return Proposed(tuple(proposals), tuple(refused))


def _shown(sentence: str) -> str:
    """A sentence that may hold anything, as it can be printed."""
    plain = "".join(char if char.isprintable() else "\ufffd" for char in sentence)
    return plain if len(plain) <= 80 else f"{plain[:79]}…"


def agent_author(name: str) -> str:
    """``agent:claude-code`` from whatever a client calls itself."""
    return f"agent:{_NAME.sub('-', name.casefold()).strip('-')[:40] or 'unknown'}"
