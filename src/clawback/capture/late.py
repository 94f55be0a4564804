"""What the agent's own record tells after the event: the text of an answer that came without one, its further blocks, its model, its tools.

Claude Code writes its record a moment after ``Stop``, and older versions and wrappers send ``Stop`` without the
text. The next event of the session reads the record again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback.capture.answer_turns import RECENT, record
from clawback.capture.events import AnswerEvent, PromptEvent
from clawback.capture.ingest import Unusable, clean, of_prompt, plain

if TYPE_CHECKING:
    from clawback.capture.exchanges import Exchange
    from clawback.paths import Home
    from clawback.store import TurnStore

NEWEST = 3
"""Exchanges at the end of a record whose turns are completed at each event."""


def read(agent: str, event: PromptEvent | AnswerEvent) -> list[Exchange]:
    """The newest exchanges of the event's session, as far as they were written when it came."""
    if not event.transcript:
        return []
    from clawback.capture import transcripts

    prompt_id = event.prompt_id if isinstance(event, AnswerEvent) else ""
    return transcripts.recent(agent, event.transcript, prompt_id, event.size)


def catch_up(here: Home, store: TurnStore, agent: str, event: PromptEvent) -> None:
    """Another prompt has come: earlier answers are complete in the record. Reads it only where something is missing."""
    ended = store.ended_prompts(agent, event.session)
    if not ended and not store.lacks_record(f"{agent}:{event.session}"):
        return
    exchanges = read(agent, event)
    answer_ended(here, store, agent, event, exchanges, final=True)
    complete(here, store, agent, event.session, exchanges)


def answer_ended(
    here: Home,
    store: TurnStore,
    agent: str,
    event: PromptEvent | AnswerEvent,
    exchanges: list[Exchange],
    *,
    final: bool = False,
) -> None:
    """TurnStore answers of which the agent told without their text, as far as the record has them by now.

    Args:
        final: the record gets no more of them, so that a mark without an answer is removed.
    """
    for kept in store.ended_prompts(agent, event.session):
        exchange = exchange_for(exchanges, kept.id, kept.parts)
        ready = exchange is not None and exchange.text and (final or not exchange.open)
        if exchange is not None and ready:
            answer = AnswerEvent(
                event.session,
                exchange.blocks[-1],
                kept.id,
                cwd=exchange.cwd,
                model=exchange.model,
                at=kept.created_at,
            )
            try:
                record(here, store, agent, answer, exchange)
            except Unusable:
                ready = False
        if ready or final:
            store.end_prompt(agent, event.session, kept.id, ended=False)


def exchange_for(exchanges: list[Exchange], prompt_id: str, parts: tuple[str, ...] = ()) -> Exchange | None:
    """The exchange of a prompt by its name; without one by its words, or the newest where these are not known."""
    if prompt_id:
        return next((one for one in exchanges if prompt_id in one.ids), None)
    if not parts:
        return exchanges[-1] if exchanges else None
    words = {" ".join(part.split()) for part in parts}
    asked = (one for one in reversed(exchanges) if words & {" ".join(text.split()) for text in one.requests})
    return next(asked, None)


def complete(here: Home, store: TurnStore, agent: str, session: str, exchanges: list[Exchange]) -> None:
    """Complete the turns of these exchanges: an event brings the last block of text alone, and often comes before the record is written."""
    for exchange in exchanges[-RECENT:]:
        if len(exchange.blocks) < 2 and exchange not in exchanges[-NEWEST:]:
            continue
        numbers = (store.at_post(of_prompt(agent, session, name)) for name in exchange.ids)
        number = next((number for number in numbers if number), None)
        turn = store.turn(number) if number else None
        if turn is None or not turn.session.startswith(f"{agent}:"):
            continue
        if not any(exchange.ids) and plain(turn.prompt) not in {
            plain(clean(here, text)) for text in ("\n\n".join(exchange.requests), *exchange.requests)
        }:
            continue  # without a name one place is all that a session has: its newest answer's
        answer = clean(here, exchange.text)
        if answer != turn.response and answer.endswith(turn.response.strip()) and turn.response.strip():
            store.complete(turn.id, answer, exchange.ending)
        elif answer != turn.response:
            continue  # another answer of the same name: what the record tells is not about this one
        else:
            store.name_ending(turn.id, exchange.ending)
        if exchange.model and not turn.model:
            store.name_model(turn.id, exchange.model)
        work = exchange.work_before(exchange.text)
        asked = max((i for i, m in enumerate(turn.messages) if m.get("role") == "user"), default=-1)
        if len(work) > len(turn.messages) - asked - 1:
            store.put_work(turn.id, [*turn.messages[: asked + 1]], work)
