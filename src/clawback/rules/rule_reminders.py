"""What an agent is told about rules: again before an answer where one is at risk, once after an answer that broke one.

Only sentences that the owner wrote or accepted are ever said. Hooks run on every prompt, so what they say is prepared after each answer and
kept in a small file; where nothing is at risk there is no file, and a prompt costs one failed look for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawback.feedback.rule_consent import rules_to_say, without_repetitions
from clawback.files import replace
from clawback.paths import Home
from clawback.records import Rule, Turn

if TYPE_CHECKING:
    from clawback.store import Store

FILE = "rules.json"
RECENT = 20
"""Newest answers of an agent's present model that say whether a rule is at risk."""
BELOW = 0.9
"""Share of them that must keep a rule; below it the rule is said again. One breach in ten is what the person lives with."""
MOST, LONGEST = 5, 600
"""Rules, and characters, that are said before one prompt."""
AGAIN = "The person has asked for this before, and recent answers did not keep to it:"
SEND_BACK = 'That answer does not keep a rule of the person: "{rule}" Give the complete answer again so that it keeps the rule, without a word about this.'


def at_risk(db: Store, agent: str) -> list[Rule]:
    """Rules that the agent's present model kept too rarely of late, the most broken first."""
    shares = []
    for rule in without_repetitions(rules_to_say(db)):
        recent = db.recent_verdicts(rule.id, agent, RECENT)
        if recent and (share := sum(kept >= 0.5 for kept in recent) / len(recent)) < BELOW:
            shares.append((share, rule.id, rule))
    return [rule for _, _, rule in sorted(shares, key=lambda one: one[:2])[:MOST]]


def reminder(rules: Sequence[Rule]) -> str:
    """What is said before a prompt, "" for nothing. Rules that do not fit are left out."""
    text = AGAIN
    for rule in rules:
        line = f"\n- {' '.join(rule.text.split())}"
        text += line if len(text) + len(line) <= LONGEST else ""
    return text if text != AGAIN else ""


def write(here: Home, db: Store) -> None:
    """Bring the file up to date. It is there as long as there is a rule that a model may be told of."""
    path = here.root / FILE
    if not rules_to_say(db):
        path.unlink(missing_ok=True)
        return
    agents = {
        agent: text for agent in db.recent_agents(10 * RECENT) if (text := reminder(at_risk(db, agent)))
    }
    data = json.dumps({"agents": agents}, ensure_ascii=False, sort_keys=True).encode()
    try:
        known = path.read_bytes()
    except FileNotFoundError:
        known = b""
        _renew_program(here)
    if known != data:
        replace(path, data, mode=0o600)


def _renew_program(here: Home) -> None:
    """The program that hooks run may be of a version that knew no rules."""
    from clawback.capture import script

    path = script.path(here)
    if path.exists() and b"clawback.rules.hook" not in path.read_bytes():
        script.write(here)


def broken(db: Store, turn: Turn) -> list[Rule]:
    """The rules that this answer breaks, by code."""
    return [
        rule
        for rule in rules_to_say(db)
        if rule.check and any(one.verdict < 0.5 and not one.judge for one in db.rule_checks(rule.id, turn.id))
    ]
