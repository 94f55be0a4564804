"""Stores what agents report: events become rows, and a command is answered with a sentence. Every adapter's events come through here.

A rating is applied to the answer that it was meant for, or to none. An answer is identified by its places:
the prompt that it answers, the message that shows it. Feedback on a place whose answer has not arrived yet
waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback.capture.events import (
    AnswerEvent,
    DisplayEvent,
    Event,
    FailureEvent,
    PromptEvent,
    SideAnswerEvent,
)
from clawback.errors import ClawbackError, StoreBusy
from clawback.paths import Home

if TYPE_CHECKING:
    from clawback.capture.exchanges import Exchange
    from clawback.store import Store, TurnStore

BUSY_SECONDS = 2.0
"""How long an agent's event waits for another writer before it gets out of the way."""


class Unusable(Exception):
    """The event does not say what it should; the message never holds any of its content."""


def take(here: Home, agent: str, event: Event) -> str | None:
    """Act on one event. If it is a command, returns its answer: it is shown to the person, and no model is asked.

    Raises ``Unusable`` for an answer without a prompt and a message without an answer, ``StoreBusy`` where another
    process holds the database (``spool.deliver`` keeps the event then), ``ClawbackError`` where it cannot be used.
    """
    with open_turns(here) as store:
        return take_into(here, store, agent, event)


def take_into(here: Home, store: TurnStore, agent: str, event: Event) -> str | None:
    """The same, with a store that is open."""
    if isinstance(event, PromptEvent):
        return _prompt(here, store, agent, event)
    if isinstance(event, AnswerEvent):
        _answer(here, store, agent, event)
    elif isinstance(event, FailureEvent):
        store.lose_early(of_prompt(agent, event.session, event.prompt_id), f"its answer {event.why}")
        store.drop_prompt(agent, event.session, event.prompt_id)
    elif isinstance(event, DisplayEvent):
        _shown(here, store, agent, event)
    elif isinstance(event, SideAnswerEvent):
        _side(here, store, agent, event)
    else:
        from clawback.capture import reactions

        reactions.take(here, store, agent, event)
    return None


def command_of(event: Event) -> list[str] | None:
    """The words of a command of ours; None for anything else."""
    # Most prompts are no command, and need not load what reads them.
    if not isinstance(event, PromptEvent) or event.text.lstrip()[:3].lower() not in ("/rl", "rl:", "/cl"):
        return None
    from clawback.feedback.command import parse

    return parse(event.text)


def _prompt(here: Home, store: TurnStore, agent: str, event: PromptEvent) -> str | None:
    if (words := command_of(event)) is not None:
        from clawback.capture import taps

        try:
            return "Clawback: " + taps.obey(here, store, agent, event, words)
        except StoreBusy:
            raise
        except ClawbackError as error:
            return f"Clawback: {error}"
    new = event.last and not (event.id and store.kept_prompt(agent, event.session, event.id))
    if new:
        from clawback.capture import late

        late.catch_up(here, store, agent, event)
    if new and (waiting := store.waits_at(of_prompt(agent, event.session, ""))):
        from clawback.capture import taps

        taps.settle(here, store, agent, event, waiting)
    from clawback.reminders import without_reminders

    # What is wholly the agent's own is nobody's; of the rest nothing is taken away here: a person may quote such things.
    text = event.text if event.notice or without_reminders(event.text) else ""
    from clawback.store.pending import PendingPrompt

    with store.together():
        store.put_prompt(
            agent,
            event.session,
            PendingPrompt(event.id, clean(here, text), event.by, event.notice, event.at),
        )
        if not event.id:
            store.drop_post(of_prompt(agent, event.session, ""))
    return None


def _answer(here: Home, store: TurnStore, agent: str, event: AnswerEvent) -> None:
    exchanges: list[Exchange] = []
    if event.transcript:
        from clawback.capture import late

        exchanges = late.read(agent, event)
    if not event.text.strip():
        _textless(here, store, agent, event, exchanges)
        return
    from clawback.capture.answer_turns import record

    exchange = _exchange(store, agent, event, exchanges)
    record(here, store, agent, event, exchange, alone=not exchanges)
    if exchanges:
        late.complete(here, store, agent, event.session, exchanges)


def _exchange(store: TurnStore, agent: str, event: AnswerEvent, exchanges: list[Exchange]) -> Exchange | None:
    """What the record tells of the answer that the event brings."""
    if not exchanges:
        return None
    from clawback.capture import late

    kept = None if event.prompt_id else store.newest_prompt(agent, event.session)
    asked = (event.prompt,) if event.prompt is not None else kept.parts if kept else ()
    return late.exchange_for(exchanges, event.prompt_id, asked)


def _textless(
    here: Home, store: TurnStore, agent: str, event: AnswerEvent, exchanges: list[Exchange]
) -> None:
    """An answer without its text is read from the agent's record, from what our server heard, or at the session's next event."""
    if not event.transcript and event.prompt is not None:
        raise Unusable("an empty answer")
    from clawback.capture.answer_turns import record

    kept = (
        store.kept_prompt(agent, event.session, event.prompt_id)
        if event.prompt_id
        else store.newest_prompt(agent, event.session)
    )
    if kept is None:
        exchange = _exchange(store, agent, event, exchanges)
        if exchange is None or not exchange.text or exchange.open:
            raise Unusable("an empty answer to a prompt that is not known")
        record(here, store, agent, event._replace(text=exchange.blocks[-1]), exchange)
        return
    from clawback.capture import late, taps

    if store.at_post(of_prompt(agent, event.session, kept.id)) is not None:
        return
    store.end_prompt(agent, event.session, kept.id)
    late.answer_ended(here, store, agent, event, exchanges)
    if store.at_post(of_prompt(agent, event.session, kept.id)) is None:
        text = taps.answer_of_server(here, store, event.session, kept)
        if text is not None:
            record(here, store, agent, event._replace(text=text, prompt_id=kept.id))
            store.end_prompt(agent, event.session, kept.id, ended=False)
        elif not event.transcript:
            raise Unusable("an empty answer, and no record of the agent to read it from")


def _shown(here: Home, store: TurnStore, agent: str, event: DisplayEvent) -> None:
    """What was said about the message before finds its answer now."""
    turn = store.at_post(of_prompt(agent, event.session, event.prompt_id))
    if turn is None:
        raise Unusable("a message that shows no answer that is here")
    if store.put_post(of_message(agent, event.message), turn):
        train_if_due(here, store)


def _side(here: Home, store: TurnStore, agent: str, event: SideAnswerEvent) -> None:
    if not event.text.strip():
        return
    from clawback.capture.answer_turns import RECENT
    from clawback.records import Turn

    name = f"{agent}:{event.session}"
    response = clean(here, event.text)
    if event.cwd:
        store.name_folder(event.session, event.cwd)
    recorded = store.turns(limit=RECENT, session=event.session, kind="side")
    # Told of the main answer, too: that is no sub-agent's.
    recorded += store.turns(limit=2, session=name, kind="main") + store.turns(
        limit=2, session=event.session, kind="main"
    )
    if any(plain(turn.response) == plain(response) for turn in recorded):
        return
    store.add_turn(
        Turn(
            session=name,
            messages=(),
            response=response,
            agent=agent,
            kind="side",
            cwd=event.cwd,
            event_id=f"{name}:side:{event.id}:{fingerprint(response)}",
        )
    )


def connect(here: Home) -> Store:
    """The whole store, with an event's patience."""
    from clawback.store import connect

    here.create()
    return connect(here.database, busy_seconds=BUSY_SECONDS)


def open_turns(here: Home) -> TurnStore:
    """The same of what events need."""
    from clawback.store.turn_store import open_turns

    here.create()
    return open_turns(here.database, busy_seconds=BUSY_SECONDS)


def train_if_due(here: Home, store: TurnStore) -> str:
    """Start a run if one is due, and say so; else "". Within a transaction nothing is started: what made it due is not stored yet."""
    if store.in_transaction:
        return ""
    from clawback.feedback.due import begun, training_due

    if not training_due(store, here):
        return ""
    from clawback.runs import trigger

    with connect(here) as full:
        return begun(full, here, "status") if trigger.start_if_due(here, full) else ""


# ------------------------------------------------------------------------------------------------- names of places, and texts as they are stored


def of_prompt(agent: str, session: str, prompt_id: str) -> str:
    return f"{agent}:prompt:{session}:{prompt_id}"


def sent_back(agent: str, session: str, prompt_id: str) -> str:
    """The name under which is kept that the answer to a prompt was sent back, and with which sentence."""
    return f"{agent}:sent-back:{session}:{prompt_id}"


def of_message(agent: str, message: str) -> str:
    return f"{agent}:message:{message}"


def clean(here: Home, text: str) -> str:
    """The text as it may be stored: without secrets, and not longer than the settings allow."""
    redacting, limit = True, 2_000_000
    rules: tuple[str, ...] = ()
    try:
        # Reading settings costs more than all the rest; only who changed these has to pay for it.
        if b"[privacy]" in here.config.read_bytes():
            from clawback import config

            privacy = config.load(here.config).privacy
            redacting, limit, rules = privacy.redact, privacy.max_turn_bytes, privacy.rules
    except FileNotFoundError:
        pass
    if redacting:
        from clawback.redact import redact

        text = redact(text)
    if rules:
        from clawback.redact import by_rules

        text = by_rules(rules, text)
    return text if len(text) <= limit else text[len(text) - limit :]


def fingerprint(text: str) -> str:
    try:
        from _blake2 import blake2b  # the same, without OpenSSL, which `hashlib` takes 3 ms to load
    except ImportError:
        from hashlib import blake2b

    return blake2b(text.encode(), digest_size=12).hexdigest()


def plain(text: str) -> str:
    """The words alone: line and block breaks differ between the two sources, and a picture stands in one of them alone."""
    from clawback.records import PICTURE

    return " ".join(text.replace(PICTURE, " ").split())
