"""An answer becomes a turn: with its prompt, what was said before it, and what the agent's own record tells of it; or it is found to be there already."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from clawback.capture.events import AnswerEvent
from clawback.capture.ingest import (
    Unusable,
    clean,
    fingerprint,
    of_message,
    of_prompt,
    plain,
    sent_back,
    train_if_due,
)
from clawback.paths import Home

if TYPE_CHECKING:
    from clawback.capture.exchanges import Exchange
    from clawback.records import Message, Turn
    from clawback.store import TurnStore
    from clawback.store.pending import StoredPrompt

CONTEXT_CHARACTERS = 400_000
"""How much of the conversation before a prompt is kept with the turn, newest first."""
RECENT = 12
"""Turns of a session among which an answer is looked for that our own server recorded."""


def record(
    here: Home,
    store: TurnStore,
    agent: str,
    event: AnswerEvent,
    exchange: Exchange | None = None,
    *,
    alone: bool = False,
) -> int | None:
    """Store an answer together with its prompt as a turn, unless a server has recorded the same answer already. None: nobody asked (the agent itself did).

    Args:
        exchange: what the agent's own record says of it.
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
    from clawback.store.pending import PendingPrompt

    ending = more_telling(event.ending, exchange.ending_of(event.text) if exchange else "")  # type: ignore[arg-type]
    with store.together():
        for one in ids:
            if store.kept_prompt(agent, event.session, one) is None:
                store.put_prompt(
                    agent, event.session, PendingPrompt(one, clean(here, asked.text), asked.by, asked.notice)
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
    number = store.insert_turn(turn, stored=len(messages))
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
