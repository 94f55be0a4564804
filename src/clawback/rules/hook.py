"""The entry point of agents' hooks, with rules: what ``capture.hook`` does, and a reminder before an answer, a breach sent back after one.

Only homes with a believed rule pay for it: without ``rules.json`` a prompt and an answer cost one look for that file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from clawback.capture import hook
from clawback.capture.events import AnswerEvent, PromptEvent

if TYPE_CHECKING:
    from clawback.capture.agent_integration import AgentIntegration
    from clawback.capture.events import Event
    from clawback.paths import Home
    from clawback.records import JsonObject
    from clawback.store import Store

FILE = "rules.json"
"""As in ``rules.rule_reminders``, which a hook without rules need not load."""
CHECKED = 200
"""Answers that one hook checks at most."""


def main() -> None:
    """Read one event, act on it, and exit with code 0."""
    hook.main(respond)


def respond(here: Home, agent: AgentIntegration, event: Event) -> JsonObject | None:
    """What a hook adds to an event that has been stored; None for nothing."""
    if not isinstance(event, PromptEvent | AnswerEvent) or not os.path.exists(here.root / FILE):  # noqa: PTH110
        return None
    return (
        _before_answer(here, agent) if isinstance(event, PromptEvent) else _after_answer(here, agent, event)
    )


def _before_answer(here: Home, agent: AgentIntegration) -> JsonObject | None:
    """The rules that are at risk, for the model to read with the prompt."""
    import json

    with open(here.root / FILE, "rb") as file:  # noqa: PTH123
        text = json.load(file)["agents"].get(agent.name, "")
    remind = getattr(agent, "remind", None)
    if not text or remind is None or not _setting(here, "remind", default=True):
        return None
    output: JsonObject | None = remind(text)
    return output


def _after_answer(here: Home, agent: AgentIntegration, event: AnswerEvent) -> JsonObject | None:
    """Check what came; where the person wants it, one breach that code sees goes back to the model, once a prompt."""
    from clawback.capture import ingest
    from clawback.rules import receipts, rule_reminders

    with ingest.connect(here) as store:
        receipts.update(store, most=CHECKED)
        rule_reminders.write(here, store)
        send_back = getattr(agent, "send_back", None)
        if send_back is None or not _setting(here, "send_back", default=False):
            return None
        sentence = _sentence(here, store, agent.name, event)
        output: JsonObject | None = send_back(sentence) if sentence else None
        return output


def _sentence(here: Home, store: Store, agent: str, event: AnswerEvent) -> str:  # noqa: ARG001
    """The sentence that goes back; "" for none. An answer that came after one, has no name, is not complete or has work under way stands."""
    from clawback.capture.ingest import of_prompt, sent_back
    from clawback.records import CUT
    from clawback.rules import rule_reminders

    if event.went_on or event.working or not event.prompt_id:
        return ""
    number = store.at_post(of_prompt(agent, event.session, event.prompt_id))
    key = sent_back(agent, event.session, event.prompt_id)
    if number is None or store.obeyed(key) is not None:
        return ""
    turn = store.turn(number)
    rules = rule_reminders.broken(store, turn)
    if not rules or turn.calls or turn.ending in CUT:
        return ""
    sentence = rule_reminders.SEND_BACK.format(rule=" ".join(rules[0].text.split()))
    store.put_obeyed(key, sentence)
    return sentence


def _setting(here: Home, name: str, *, default: bool) -> bool:
    """One of ``[rules]``. Reading settings costs more than all the rest; only who changed these has to pay for it."""
    try:
        if b"[rules]" not in here.config.read_bytes():
            return default
    except FileNotFoundError:
        return default
    from clawback import config

    return bool(getattr(config.load(here.config).rules, name))
