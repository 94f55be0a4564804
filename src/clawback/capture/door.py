"""The one door: what an agent tells becomes rows, and a command becomes a sentence. Every adapter's events come through here.

A rating reaches the answer that it was meant for, or none. An answer is known by the places where it stands: the
prompt that it answers, the message that shows it. What is said about a place before its answer is here waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawback.capture.events import Answer, Event, Prompt, Reaction, Shown, SideAnswer
from clawback.paths import Home

if TYPE_CHECKING:
    from clawback.store import Store

BUSY_SECONDS = 2.0
"""How long an agent's event waits for another writer before it gets out of the way."""
CONTEXT_CHARACTERS = 400_000
"""How much of the conversation before a prompt is kept with the turn, newest first."""
SIGNS = {"👍": 1, "👎": -1, "❤": 1, "❤️": 1, "🎉": 1, "+1": 1, "-1": -1, "thumbsup": 1, "thumbsdown": -1}
"""Reactions that rate, by sign or by name."""


class Unusable(Exception):
    """The event does not say what it should; the message never holds any of its content."""


def take(here: Home, agent: str, event: Event) -> str | None:
    """Act on one event. What is returned answers a command: it is to be shown to the person, and no model asked.

    Raises ``Unusable`` for an answer to nothing and a message of no answer, ``ClawbackError`` where the store cannot be used.
    """
    if isinstance(event, Prompt):
        return _prompt(here, agent, event)
    if isinstance(event, Answer):
        _answer(here, agent, event)
    elif isinstance(event, Shown):
        _shown(here, agent, event)
    elif isinstance(event, SideAnswer):
        _side(here, agent, event)
    else:
        _reaction(here, agent, event)
    return None


# ------------------------------------------------------------------------------------------------------ prompts


def _prompt(here: Home, agent: str, event: Prompt) -> str | None:
    if event.text.lstrip()[:3].lower() in (
        "/rl",
        "rl:",
        "/cl",
    ):  # most are no command, and need not load what reads them
        from clawback.feedback import command

        if (words := command.parse(event.text)) is not None:
            return "Clawback: " + _command(here, agent, event, words)
    with connect(here) as store, store.together():
        said = clean(here, event.text)
        store.put_prompt(agent, event.session, event.id, said)
        if not event.id:
            store.drop_post(_of_prompt(agent, event.session, ""))
    return None


def _command(here: Home, agent: str, event: Prompt, words: list[str]) -> str:
    """The last answer of the conversation is meant; one that is still on its way is waited for, not mistaken."""
    from clawback.errors import ClawbackError
    from clawback.feedback import command

    event_id = f"{agent}:rl:{event.session}:{event.id}" if event.id else ""
    try:
        with connect(here) as store:
            turn, place = None, ""
            if event.about:
                turn, place = _replied_to(store, agent, event)
                if turn is None and not place and words[0] != "status":
                    return "That message is no answer that is known here. Reply to the answer that you mean."
            elif (asked := store.newest_prompt(agent, event.session)) is not None:
                if not asked[1] and words[0] != "status":
                    return (
                        "The last answer was to a notice that the agent wrote to itself, which is not kept. "
                        "`clawback good --turn N` rates an earlier one."
                    )
                place = _of_prompt(agent, event.session, asked[0])
                turn = store.at_post(place)
            elif last := store.last_turn(session=f"{agent}:{event.session}"):
                turn = last.id
            said = command.run(
                store,
                [clean(here, word) for word in words],
                turn,
                place=place,
                source=f"{agent}:{event.by}" if event.by else agent,
                event_id=event_id,
            )
            began = train_if_due(here, store) if said.rated else ""
    except ClawbackError as error:
        return str(error)
    return " ".join(filter(None, [said.text, began]))


def _replied_to(store: Store, agent: str, event: Prompt) -> tuple[int | None, str]:
    """The turn that stands in the message replied to, or that answers it; or the place where its answer is to come."""
    turn = store.at_post(_of_message(agent, event.about))
    if turn is not None:
        return turn, _of_message(agent, event.about)
    place = _of_prompt(agent, event.session, event.about)
    return store.at_post(place), place if store.prompt(agent, event.session, event.about) else ""


# ------------------------------------------------------------------------------------------------------ answers


def _answer(here: Home, agent: str, event: Answer) -> None:
    """With the prompt that was kept it makes a turn; a server that recorded the same answer has made it already."""
    if not event.text.strip():
        return
    with connect(here) as store:
        prompt = event.prompt
        if prompt is None:
            prompt = store.prompt(agent, event.session, event.prompt_id)
        if prompt is None:
            raise Unusable(
                "an answer without a prompt (was the agent set up half-way through a conversation?)"
            )
        if not prompt:
            return
        with store.together():
            if event.prompt is not None:
                store.put_prompt(agent, event.session, event.prompt_id, clean(here, prompt))
            number = _recorded(store, here, event) or _stored(store, here, agent, event, prompt)
            places = [_of_prompt(agent, event.session, event.prompt_id)]
            places += [_of_message(agent, event.message)] if event.message else []
            waited = [given for place in places for given in store.put_post(place, number)]
        if waited:
            train_if_due(here, store)


def _shown(here: Home, agent: str, event: Shown) -> None:
    """What was said about the message before finds its answer now."""
    with connect(here) as store:
        turn = store.at_post(_of_prompt(agent, event.session, event.prompt_id))
        if turn is None:
            raise Unusable("a message that shows no answer that is here")
        if store.put_post(_of_message(agent, event.message), turn):
            train_if_due(here, store)


def _recorded(store: Store, here: Home, event: Answer) -> int | None:
    """The turn that our own server recorded of this very answer, with the tokens as they were sampled."""
    last = store.last_turn(session=event.session)
    return last.id if last and last.response.strip() == clean(here, event.text).strip() else None


def _stored(store: Store, here: Home, agent: str, event: Answer, prompt: str) -> int:
    from clawback.records import Message, Turn

    name, response, prompt = f"{agent}:{event.session}", clean(here, event.text), clean(here, prompt)
    before = store.last_turn(session=name)
    messages: list[Message] = [*_conversation(store, name), {"role": "user", "content": prompt}]
    turn = Turn(
        session=name,
        messages=tuple(messages),
        response=response,
        agent=agent,
        model=event.model,
        cwd=event.cwd,
        event_id=f"{name}:{event.prompt_id}:{fingerprint(prompt + chr(0) + response)}",
    )
    number = store.add_turn(turn).id
    if (
        before is not None and number > before.id
    ):  # an answer that is told twice is not what came back after itself
        _next_state(store, before.id, prompt)
    return number


def _next_state(store: Store, turn_id: int, said: str) -> None:
    """The prompt is what came back after the answer before it. Noted with its own answer: nobody waits for that."""
    from clawback.feedback.implicit import notice
    from clawback.records import Message

    came: list[Message] = [{"role": "user", "content": said}]
    store.put_next_state(turn_id, came)
    notice(store, turn_id, came)


def _conversation(store: Store, session: str) -> list[Any]:
    """What was said before in the session, newest first until the limit, then in order."""
    last = store.last_turn(session=session)
    if last is None:
        return []
    messages = [*last.messages, {"role": "assistant", "content": last.response}]
    room = CONTEXT_CHARACTERS
    for start in range(len(messages) - 1, -1, -1):
        room -= len(str(messages[start].get("content", "")))
        if room < 0:
            return messages[start + 1 :]
    return messages


def _side(here: Home, agent: str, event: SideAnswer) -> None:
    if not event.text.strip():
        return
    from clawback.records import Turn

    name = f"{agent}:{event.session}"
    with connect(here) as store:
        response = clean(here, event.text)
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


# ---------------------------------------------------------------------------------------------------- reactions


def _reaction(here: Home, agent: str, event: Reaction) -> None:
    name = f"{agent}:reaction:{event.id or f'{event.message}:{event.by}:{event.value}'}"
    with connect(here) as store:
        with store.together():
            if not event.at:
                rated = _react(store, agent, event, name)
            else:
                rated = _react_in_order(store, agent, event, name)
        if rated:
            train_if_due(here, store)


def _react_in_order(store: Store, agent: str, event: Reaction, name: str) -> bool:
    at, given = store.get(name, (0.0, ""))
    if event.at <= at:
        return False
    rated = False
    if bool(given) != bool(event.value):
        # Given, taken away and given again is three events: each rating has a name of its own.
        event_id = given or f"{name}:{event.at:.6f}"
        rated = _react(store, agent, event, event_id)
        given = event_id if event.value else ""
    store.set(name, (event.at, given))
    return rated


def _react(store: Store, agent: str, event: Reaction, event_id: str) -> bool:
    """Whether there is something new to learn from."""
    from clawback.records import Feedback

    if event.value == 0:
        store.undo_event(event_id)
        return False
    source = f"{agent}:{event.by}" if event.by else agent
    place = _of_message(agent, event.message)
    turn = store.at_post(place)
    given = Feedback(turn or 0, "rating", float(event.value), source=source, event_id=event_id)
    if turn is None:
        store.put_early(place, given)
    else:
        store.add_feedback(given)
    return turn is not None


# ------------------------------------------------------------------------------------------------------- shared


def _of_prompt(agent: str, session: str, prompt_id: str) -> str:
    return f"{agent}:prompt:{session}:{prompt_id}"


def _of_message(agent: str, message: str) -> str:
    return f"{agent}:message:{message}"


def connect(here: Home) -> Store:
    from clawback import store

    here.create()
    return store.connect(here.database, busy_seconds=BUSY_SECONDS)


def clean(here: Home, said: str) -> str:
    """The text as it may be stored: without secrets, and not longer than the settings allow."""
    redacting, limit = True, 2_000_000
    try:
        # Reading settings costs more than all the rest; only who changed these has to pay for it.
        if b"[privacy]" in here.config.read_bytes():
            from clawback import config

            privacy = config.load(here.config).privacy
            redacting, limit = privacy.redact, privacy.max_turn_bytes
    except FileNotFoundError:
        pass
    if redacting:
        from clawback.capture.redact import redact

        said = redact(said)
    return said if len(said) <= limit else said[len(said) - limit :]


def fingerprint(said: str) -> str:
    import hashlib  # brings OpenSSL along, which a prompt has no use for

    return hashlib.blake2b(said.encode(), digest_size=12).hexdigest()


def train_if_due(here: Home, store: Store) -> str:
    """Start a run where enough is fresh, and say so; else ""."""
    from clawback.feedback import training_due

    if not training_due(store, here):
        return ""
    # The room that starts processes is above this one: it is called as the command that a person would type.
    import os
    import subprocess
    import sys

    subprocess.Popen(
        [sys.executable, "-m", "clawback.jobs.worker", str(here.root), "--if-due"],
        env={**os.environ, "CLAWBACK_HOME": str(here.root)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return "Training starts in the background."
