"""``/rl …`` commands: which answer is meant, and what happens to a rating whose answer does not arrive.

The last answer that the person saw is meant. If it has not arrived yet, the rating waits for it; if it was
cut short, the part that exists is recorded and rated; if there is nothing, the person is told. A rating that
waited in vain is reported at the next command.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from clawback.capture import late
from clawback.capture.answer_turns import RECENT, asks, last_of, record
from clawback.capture.events import AnswerEvent, PromptEvent
from clawback.capture.ingest import Unusable, clean, of_message, of_prompt, train_if_due

if TYPE_CHECKING:
    from clawback.capture.exchanges import Exchange
    from clawback.paths import Home
    from clawback.records import Turn
    from clawback.store import TurnStore
    from clawback.store.pending import Early, StoredPrompt

NOT_KNOWN = "That message is no answer that is known here. Reply to the answer that you mean."


class Meant(NamedTuple):
    """The turn that a command refers to; or the place where its answer is expected; or why there is neither."""

    turn: int | None = None
    post: str = ""
    refusal: str = ""
    running: bool = False
    """The command was given while the agent was at work."""


class PendingAnswer(NamedTuple):
    """An answer that no event has told of: the name of its prompt, the prompt as it is kept, and what the agent's own record has."""

    name: str
    prompt: StoredPrompt | None
    exchange: Exchange | None


def obey(here: Home, store: TurnStore, agent: str, event: PromptEvent, words: list[str]) -> str:
    """Execute the command; returns what to tell the person. Raises ``StoreError`` alone, whatever a person types."""
    from clawback.feedback.command import ASKS, CommandReply, run

    event_id = f"{agent}:rl:{event.session}:{event.id}" if event.id else ""
    source = f"{agent}:{event.by}" if event.by else agent
    if event_id and (before := store.obeyed(event_id + words[0])) is not None:
        return before  # told of twice
    meant = Meant() if words[0] in ASKS else _meant(here, store, agent, event, words[0])
    if meant.running:
        # While the agent is at work its commands have the name of the request that is under way: all have the same one.
        event_id = f"{event_id}:{event.delivery}" if event.delivery else ""
        if event_id and (before := store.obeyed(event_id + words[0])) is not None:
            return before
    cleaned = [clean(here, word) for word in words]
    if meant.refusal:
        reply = CommandReply(meant.refusal)
    else:
        reply = run(
            store, cleaned, meant.turn, post=meant.post, source=source, event_id=event_id
        )  # fmt: skip
    if event_id:
        store.put_obeyed(event_id + words[0], reply.text)
    if event.at:  # nobody reads a reply now
        if meant.refusal or (meant.turn is None and not meant.post):
            _lose(store, agent, event, cleaned, meant.refusal or reply.text, source)
        return reply.text
    lost = store.untold(f"{agent}:prompt:{event.session}:")
    began = _began(here, store) if reply.rated else ""
    return " ".join([reply.text, *([began] if began else []), *map(told_of, lost)])


def _lose(store: TurnStore, agent: str, event: PromptEvent, words: list[str], why: str, source: str) -> None:
    """A rating that waited for the database was refused: it is told of at the next command."""
    from clawback.errors import UsageError
    from clawback.feedback.command import understood

    try:
        feedback, _ = understood(words[0], words[1] if len(words) > 1 else "")
    except UsageError:
        return
    place = of_prompt(agent, event.session, f"late {event.id or event.at}")
    store.put_early(place, replace(feedback, source=source, created_at=event.at))
    store.lose_early(place, why[:1].lower() + why[1:].rstrip("."))


def _began(here: Home, store: TurnStore) -> str:
    """A run that cannot be started takes nothing from the rating, which is stored."""
    from clawback.errors import ClawbackError

    try:
        return train_if_due(here, store)
    except ClawbackError as error:
        return str(error)
    except (ImportError, OSError):
        return "Training could not be started: `clawback doctor` says why."


def told_of(lost: Early) -> str:
    """A sentence about a rating that waited in vain."""
    when = time.strftime("%H:%M", time.localtime(lost.created_at))
    return f"Your rating of {when} ({lost.summary}) came to nothing: {lost.lost}."


def settle(here: Home, store: TurnStore, agent: str, event: PromptEvent, waiting: list[str]) -> None:
    """Another prompt has come, so earlier ones get no further answer: ratings waiting for those are applied to the part that exists, or lost."""
    start = len(of_prompt(agent, event.session, ""))
    told = late.read(agent, event)
    for place in waiting:
        if (name := place[start:]) == event.id and name:
            continue
        exchange = next((one for one in told if name in one.ids), None)
        kept = store.kept_prompt(agent, event.session, name)
        if _from_record(here, store, agent, event, PendingAnswer(name, kept, exchange)) is None:
            store.lose_early(place, f"its answer {_end(exchange)}")


# ------------------------------------------------------------------------------------------------ what is meant


def _meant(here: Home, store: TurnStore, agent: str, event: PromptEvent, word: str) -> Meant:
    if event.about:
        return _replied_to(store, agent, event)
    told = late.read(agent, event)
    late.answer_ended(here, store, agent, event, told)
    late.complete(here, store, agent, event.session, told)
    running = bool(event.id) and store.kept_prompt(agent, event.session, event.id) is not None
    running = running or any(event.id in one.ids for one in told)
    kept = store.newest_prompt(agent, event.session, event.by)
    exchange, name = _newest(store, agent, event, told, kept)
    if running:
        name = event.id
        exchange = next((one for one in told if name in one.ids), None)
        kept = store.kept_prompt(agent, event.session, name)
    if kept is None and exchange is None:
        return _of_session(store, agent, event)
    place = of_prompt(agent, event.session, name)
    turn = store.at_post(place)
    if turn is not None:
        return Meant(turn, place, running=running)
    if running and not event.ends:
        return Meant(None, place, running=True)
    if any(one.id == name for one in store.ended_prompts(agent, event.session)):
        return Meant(None, place)  # its text is in the agent's record in a moment
    turn = _from_record(here, store, agent, event, PendingAnswer(name, kept, exchange))
    if turn is not None:
        return Meant(turn, place, running=running)
    last = last_of(store, agent, event.session)
    if running:
        why = "was ended by this command, and the agent kept nothing of it"
        return Meant(
            refusal=f"There is nothing to rate: that answer {why}.{_earlier(last, word)}", running=True
        )
    if exchange is not None and exchange.end:
        return Meant(refusal=f"There is nothing to rate: that answer {_end(exchange)}.{_earlier(last, word)}")
    if kept is not None and not kept.parts:
        notice = "What you saw last answers what the agent wrote to itself, which is not kept."
        return Meant(refusal=notice + _earlier(last, word))
    return Meant(None, place)


def _newest(
    store: TurnStore, agent: str, event: PromptEvent, exchanges: list[Exchange], prompt: StoredPrompt | None
) -> tuple[Exchange | None, str]:
    """The exchange that the person saw last, and the name of its prompt. A message that was queued has no event, only an entry."""
    last = exchanges[-1] if exchanges else None
    if last is None or not last.ids or (prompt and prompt.id in last.ids):
        return last, prompt.id if prompt else ""
    known = store.at_post(of_prompt(agent, event.session, last.ids[-1])) is not None
    behind = (
        prompt is None
        or any(prompt.id in one.ids for one in exchanges)
        or (last.at and prompt.created_at < last.at)
    )
    if behind and not known:
        return last, last.ids[-1]
    mine = next((one for one in exchanges if prompt and prompt.id in one.ids), None)
    return mine, prompt.id if prompt else ""


def _replied_to(store: TurnStore, agent: str, event: PromptEvent) -> Meant:
    """The turn that stands in the message replied to, or that answers it; or the place where its answer is to come."""
    place = of_message(agent, event.about)
    if (turn := store.at_post(place)) is not None:
        return Meant(turn, place)
    place = of_prompt(agent, event.session, event.about)
    turn = store.at_post(place)
    if turn is None and store.kept_prompt(agent, event.session, event.about) is None:
        return Meant(refusal=NOT_KNOWN)
    return Meant(turn, place)


def _of_session(store: TurnStore, agent: str, event: PromptEvent) -> Meant:
    """No prompt is kept: the last answer of the session, where it can be no other person's."""
    if event.by and store.newest_prompt(agent, event.session) is not None:
        return Meant(refusal="You have had no answer here yet. Reply to the answer that you mean.")
    last = last_of(store, agent, event.session)
    return Meant(last.id if last else None)


# ------------------------------------------------------------------------------------------ what there is of it


def _from_record(
    here: Home, store: TurnStore, agent: str, event: PromptEvent, pending: PendingAnswer
) -> int | None:
    """The turn of the answer: as far as the agent's own record has it, or our server heard it."""
    name, exchange = pending.name, pending.exchange
    if exchange is not None and exchange.text:
        answer = AnswerEvent(event.session, exchange.blocks[-1], name, cwd=exchange.cwd, model=exchange.model)
        try:
            return record(here, store, agent, answer, exchange)
        except Unusable:
            return None  # nobody knows what it answers
    response = answer_of_server(here, store, event.session, pending.prompt)
    if response is None:
        return None
    try:
        return record(here, store, agent, AnswerEvent(event.session, response, name), exchange)
    except Unusable:
        return None


def answer_of_server(here: Home, store: TurnStore, session: str, prompt: StoredPrompt | None) -> str | None:
    """What our own server heard of the answer to a prompt, before it broke off, if nothing has claimed it."""
    if prompt is None or not prompt.parts:
        return None
    for turn in store.turns(limit=RECENT, session=session):
        if any(":prompt:" in place for place in store.posts_of(turn.id)):
            return None
        if asks(here, turn, prompt) and turn.response.strip():
            return turn.response
    return None


def _end(exchange: Exchange | None) -> str:
    """``… was interrupted, and the agent kept nothing of it``: Codex does so even where the person has read half of it."""
    if exchange is None or exchange.end not in ("interrupted", "failed"):
        return "never came"
    if exchange.end == "interrupted":
        return "was interrupted, and the agent kept nothing of it"
    return (
        f"failed, and the agent kept nothing of it ({exchange.error})"
        if exchange.error
        else "failed, and the agent kept nothing of it"
    )


def _earlier(last: Turn | None, word: str) -> str:
    how = {"good": "good", "bad": "bad", "rate": "rate N"}.get(word)
    return f" `clawback {how} --turn {last.id}` rates the one before." if last and how else ""
