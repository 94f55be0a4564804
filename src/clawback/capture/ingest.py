"""Stores what agents report: events become rows, and a command is answered with a sentence. Every adapter's events come through here.

A rating is applied to the answer that it was meant for, or to none. An answer is identified by its places:
the prompt that it answers, the message that shows it. Feedback on a place whose answer has not arrived yet
waits for it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from clawback.capture.events import (
    AnswerEvent,
    DisplayEvent,
    Event,
    FailureEvent,
    PromptEvent,
    SideAnswerEvent,
)
from clawback.capture.stored_text import clean, fingerprint, of_message, of_prompt, plain, sent_back
from clawback.errors import ClawbackError, StoreBusy
from clawback.paths import Home

if TYPE_CHECKING:
    from clawback.capture.exchanges import Exchange
    from clawback.records import Message, Turn
    from clawback.store import Store, TurnStore
    from clawback.store.pending import StoredPrompt

BUSY_SECONDS = 2.0
"""How long an agent's event waits for another writer before it gets out of the way."""
CONTEXT_CHARACTERS = 400_000
"""How much of the conversation before a prompt is kept with the turn, newest first."""
RECENT = 12
"""Turns of a session among which an answer is looked for that our own server recorded."""


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
    with store.together():
        store.put_prompt(
            agent, event.session, event.id, clean(here, text), by=event.by, notice=event.notice, at=event.at
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


def record(
    here: Home,
    store: TurnStore,
    agent: str,
    event: AnswerEvent,
    exchange: Exchange | None = None,
    *,
    alone: bool = False,
) -> int | None:
    """TurnStore an answer together with its prompt as a turn, unless a server has recorded the same answer already. None: nobody asked (the agent itself did).

    Args:
        told: what the agent's own record says of it.
        alone: there is no such record, so that what was asked may have to be guessed.

    Raises ``Unusable`` if the prompt is unknown.
    """
    asked = _prompt_of(store, agent, event, exchange, alone)
    if event.went_on and (sentence := store.obeyed(sent_back(agent, event.session, event.prompt_id))):
        asked = asked and asked._replace(parts=(sentence,))
    if asked is None:
        raise Unusable("an answer without a prompt (was the agent set up half-way through a conversation?)")
    if not asked.parts:
        return None
    ids = dict.fromkeys([event.prompt_id, *(exchange.ids if exchange else [])])
    places = [of_prompt(agent, event.session, one) for one in ids]
    places += [of_message(agent, event.message)] if event.message else []
    from clawback.endings import more_telling

    ending = more_telling(event.ending, exchange.ending_of(event.text) if exchange else "")  # type: ignore[arg-type]
    with store.together():
        for one in ids:
            if store.kept_prompt(agent, event.session, one) is None:
                store.put_prompt(
                    agent, event.session, one, clean(here, asked.text), by=asked.by, notice=asked.notice
                )
        number = _turn_of_server(store, here, event, asked, exchange, set(places))
        if number is None:
            number = _new_turn(store, here, agent, event._replace(ending=ending), asked, exchange)
        else:
            store.name_ending(number, ending)
        if number not in [store.at_post(place) for place in places]:  # else it is told of again
            store.seen(number)
        if event.cwd:
            store.name_folder(event.session, event.cwd)
        waited = [given for place in places for given in store.put_post(place, number)]
    if waited:
        train_if_due(here, store)
    return number


def _prompt_of(
    store: TurnStore, agent: str, event: AnswerEvent, exchange: Exchange | None, alone: bool
) -> StoredPrompt | None:
    """What the answer is to, as the one knows it who knows best. Without parts: to nothing that a person asked."""
    from clawback.store.pending import StoredPrompt

    kept = (
        store.kept_prompt(agent, event.session, event.prompt_id)
        if event.prompt_id
        else store.newest_prompt(agent, event.session)
    )
    by = kept.by if kept else ""
    if event.prompt is not None:
        # Who tells of an answer and its prompt tells of the last message alone.
        if kept and event.prompt in kept.parts:
            return kept
        return StoredPrompt(event.prompt_id, (event.prompt,), by)
    if exchange and exchange.requests:
        return StoredPrompt(event.prompt_id, tuple(exchange.requests), by)
    notice = exchange.notice if exchange and exchange.notice else kept.text if kept and kept.notice else ""
    if notice:
        at = kept.created_at if kept else time.time()
        request = store.request_before(agent, event.session, at)
        if request is None:
            return None
        return StoredPrompt(event.prompt_id, (notice,), request.by, notice=True, created_at=at)
    if kept is None and event.prompt_id and alone:
        # A message that was queued comes under the name of the request that was under way, and is answered under one of its own.
        newest = store.newest_prompt(agent, event.session)
        return newest._replace(parts=newest.parts[-1:]) if newest and len(newest.parts) > 1 else None
    return kept


def _turn_of_server(
    store: TurnStore,
    here: Home,
    event: AnswerEvent,
    prompt: StoredPrompt,
    exchange: Exchange | None,
    places: set[str],
) -> int | None:
    """The turn that our own server recorded of this very answer, with the tokens as they were sampled."""
    texts = {plain(clean(here, text)) for text in (event.text, exchange.text if exchange else "") if text}
    for turn in store.turns(limit=RECENT, session=event.session):
        prompts = {place for place in store.posts_of(turn.id) if ":prompt:" in place}
        if prompts and not prompts & places:
            continue  # another prompt's answer, in the same words
        response = plain(turn.response)
        if turn.kind == "main":
            # Of several blocks of text an event brings the last.
            same = any(response == text or response.endswith(f" {text}") for text in texts)
        else:
            # Cut short: the one side may have heard a little more of it than the other.
            near = any(response.startswith(text) or text.startswith(response) for text in texts)
            same = bool(response) and near and asks(here, turn, prompt)
        if same:
            return turn.id
    return None


def asks(here: Home, turn: Turn, prompt: StoredPrompt) -> bool:
    """Does the turn answer this prompt, or what was added to it last?"""
    from clawback.reminders import without_reminders

    words = {clean(here, text) for text in (prompt.text, *prompt.parts)}
    return plain(turn.prompt) in {plain(text) for text in words | {without_reminders(text) for text in words}}


def _new_turn(
    store: TurnStore,
    here: Home,
    agent: str,
    event: AnswerEvent,
    question: StoredPrompt,
    exchange: Exchange | None,
) -> int:
    from clawback.records import Turn

    name, prompt, said = f"{agent}:{event.session}", clean(here, question.text), clean(here, event.text)
    whole = (
        clean(here, exchange.text)
        if exchange and exchange.blocks and exchange.blocks[-1] == event.text.strip()
        else said
    )
    work = list(event.work) or (exchange.work_before(event.text) if exchange else [])
    before = last_of(store, agent, event.session)
    messages: list[Message] = _conversation(before)
    if question.notice:
        messages += _request(store, agent, event, question, before)
    messages.append({"role": "user", "content": prompt})
    turn = Turn(
        session=name,
        messages=(*messages, *work),
        response=whole,
        calls=tuple(exchange.calls_of(event.text)) if exchange else (),
        created_at=event.at,
        agent=agent,
        model=event.model or (exchange.model if exchange else ""),
        cwd=event.cwd,
        ending=event.ending,  # type: ignore[arg-type]
        event_id=f"{name}:{event.prompt_id}:{fingerprint((event.prompt_id or prompt) + chr(0) + said)}",
    )
    number = store.add_turn(turn, stored=len(messages)).id
    _drop_twin(store, name, turn.response, number)
    if before is not None and number > before.id and not question.notice:
        # An answer that is told twice is not what came back after itself.
        _next_state(store, before.id, prompt)
    return number


def _drop_twin(store: TurnStore, session: str, response: str, number: int) -> None:
    """Some versions of Claude Code tell of the main answer as of a sub-agent's, too: that turn is the same answer."""
    for turn in store.turns(limit=RECENT, session=session, kind="side"):
        if turn.id < number and plain(turn.response) == plain(response):
            store.drop_side(turn.id)


def _request(
    store: TurnStore, agent: str, event: AnswerEvent, question: StoredPrompt, previous: Turn | None
) -> list[Message]:
    """What the person had asked for, where the conversation as it is known does not end with it."""
    request = store.request_before(agent, event.session, question.created_at)
    if request is None or (
        previous and plain(previous.prompt) in {plain(part) for part in (request.text, *request.parts)}
    ):
        return []
    return [{"role": "user", "content": request.text}]


def last_of(store: TurnStore, agent: str, session: str) -> Turn | None:
    """The last answer of a session, whoever recorded it."""
    found = [store.last_turn(session=name) for name in (session, f"{agent}:{session}")]
    return max((turn for turn in found if turn), key=lambda turn: turn.id, default=None)


def _next_state(store: TurnStore, turn_id: int, text: str) -> None:
    """The prompt is what came back after the answer before it. Noted with its own answer: nobody waits for that."""
    from clawback.feedback.implicit import notice

    came: list[Message] = [{"role": "user", "content": text}]
    store.put_next_state(turn_id, came)
    notice(store, turn_id, came)


def _conversation(last: Turn | None) -> list[Any]:
    """What was said before in the session, the newest that fits."""
    if last is None:
        return []
    from clawback.records import newest_messages

    return newest_messages(
        [*last.messages, {"role": "assistant", "content": last.response}], CONTEXT_CHARACTERS
    )


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
    from clawback.feedback.due import PREPARED, training_due

    if not training_due(store, here):
        return ""
    from clawback.runs import trigger

    with connect(here) as full:
        return PREPARED.format(status="status") if trigger.start_if_due(here, full) else ""
