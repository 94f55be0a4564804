"""The door for agents' hooks: ``clawback-hook claude-code`` reads one event from stdin.

An agent is never held up or broken by us: whatever happens the exit code is 0, with one line in ``logs/hooks.log``
when something was wrong. It runs on every prompt and answer, so only what one row needs is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from clawback.paths import Home, home

if TYPE_CHECKING:
    from clawback.store import Store

MAX_PAYLOAD = 16_000_000
"""Bytes of an event. More is no turn that anybody could train on."""
MAX_LOG = 1_000_000
BUSY_SECONDS = 2.0
"""How long a hook waits for another writer before it gets out of the way."""
AGENT = "claude-code"
CONTEXT_CHARACTERS = 400_000
"""How much of the conversation before a prompt is kept with the turn, newest first."""


class Unusable(Exception):
    """The event does not say what it should; the message never holds any of its content."""


def main() -> None:
    """Read one event, act on it, leave with 0."""
    here = home()
    try:
        if "--home" in sys.argv:
            from pathlib import Path

            here = Home(Path(sys.argv[sys.argv.index("--home") + 1]))
        answer = handle(here, sys.stdin.buffer.read(MAX_PAYLOAD + 1))
        if answer:
            sys.stdout.write(json.dumps(answer))
            sys.stdout.flush()
    except Unusable as reason:
        log(here, f"event left out: {reason}")
    except BaseException as error:  # whatever it is, it must not reach the agent
        log(here, f"event left out: {type(error).__name__} in {_where(error)}")
    # Straight out: closing down the interpreter in order takes milliseconds that nobody gets anything for.
    os._exit(0)


def handle(here: Home, payload: bytes) -> dict[str, Any] | None:
    """Act on one event. What is returned is for the agent to read. Raises ``Unusable``."""
    event = parse(payload)
    name, session = text(event, "hook_event_name", 100), text(event, "session_id", 200)
    if not session:
        raise Unusable("no session_id")
    if name == "UserPromptSubmit":
        return on_prompt(here, session, event)
    if name == "Stop":
        on_stop(here, session, event)
    elif name == "SubagentStop":
        on_subagent_stop(here, session, event)
    return None


def parse(payload: bytes) -> dict[str, Any]:
    """Bytes from anywhere → a JSON object. Raises ``Unusable``."""
    if len(payload) > MAX_PAYLOAD:
        raise Unusable(f"larger than {MAX_PAYLOAD:,} bytes")
    try:
        event = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"not JSON ({type(error).__name__})") from None
    if not isinstance(event, dict):
        raise Unusable("not a JSON object")
    return event


def text(event: dict[str, Any], key: str, limit: int = MAX_PAYLOAD) -> str:
    """A field as text that can be stored ("" when absent). Raises ``Unusable`` for another type or more than the limit."""
    value = event.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > limit:
        raise Unusable(f"{key} is not text of at most {limit:,} characters")
    # Half a surrogate pair is valid JSON but no text.
    return value.encode("utf-8", "replace").decode("utf-8")


# ------------------------------------------------------------------------------------------------------ prompts


def on_prompt(here: Home, session: str, event: dict[str, Any]) -> dict[str, Any] | None:
    """Answer ``/rl …`` ourselves; keep any other prompt until its answer comes."""
    prompt, prompt_id = text(event, "prompt"), text(event, "prompt_id", 200)
    words = command(prompt)
    if words is not None:
        # "block" alone keeps command and reply out of the model's context.
        return {
            "decision": "block",
            "reason": rl(here, session, words, prompt_id),
            "suppressOriginalPrompt": True,
        }
    if prompt.lstrip().startswith(("<task-notification>", "<system-reminder>")):
        prompt = ""  # the agent wrote this to itself: no human asked, so the answer is no turn of theirs
    with connect(here) as store:
        store.put_prompt(AGENT, session, prompt_id, clean(here, prompt))
    return None


def command(prompt: str) -> list[str] | None:
    """``/rl good short and right`` → ``["good", "short and right"]``; None when the prompt is no command of ours."""
    words = prompt.strip().split(maxsplit=2)
    if not words or words[0].lower() not in ("/rl", "rl:", "/clawback:rl"):
        return None
    return words[1:] or ["status"]


def rl(here: Home, session: str, words: list[str], prompt_id: str) -> str:
    """Do what ``/rl`` says and put it in one sentence."""
    from clawback import feedback
    from clawback.errors import ClawbackError

    try:
        with connect(here) as store:
            what, rest = words[0].lower(), (words[1] if len(words) > 1 else "")
            if what == "status":
                return status(store)
            last = store.last_turn(session=f"{AGENT}:{session}")
            if last is None:
                return "Clawback: there is nothing to rate in this conversation yet."
            event_id = f"{AGENT}:rl:{session}:{prompt_id}" if prompt_id else ""
            source = {"source": AGENT, "event_id": event_id}
            if what in ("good", "bad"):
                feedback.rate(store, last.id, 1 if what == "good" else -1, note=clean(here, rest), **source)
                said = f"noted: {what}"
            elif what == "rate" and rest.split()[:1] and rest.split()[0].isdecimal():
                feedback.score(store, last.id, int(rest.split()[0][:3]), **source)
                said = f"noted: {int(rest.split()[0])} of 10"
            elif what == "note" and rest:
                feedback.critique(store, last.id, clean(here, rest), **source)
                said = "noted"
            elif what == "undo":
                taken = feedback.undo(store, last.id)
                return f"Clawback: taken back ({taken.kind}, turn {last.id})."
            else:
                return "Clawback: use /rl good, /rl bad, /rl rate N, /rl note TEXT, /rl undo or /rl status."
            warning = feedback.balance(store).warning
            began = train_if_due(here, store)
        return " ".join(filter(None, [f"Clawback: {said} (turn {last.id}).", warning, began]))
    except ClawbackError as error:
        return f"Clawback: {error}"


def status(store: Store) -> str:
    live = store.live().number
    good, bad = store.count_ratings()
    name = "the base model" if live == 0 else f"version {live}"
    return f"Clawback: {name} is live; {good} good and {bad} bad ratings, {store.count_fresh()} not learned from yet."


def train_if_due(here: Home, store: Store) -> str:
    from clawback.feedback import training_due

    if not training_due(store, here):
        return ""
    # The room that starts processes is above this one: it is called as the command that a person would type.
    import subprocess

    subprocess.Popen(
        [sys.executable, "-m", "clawback.jobs.worker", str(here.root), "--if-due"],
        env={**os.environ, "CLAWBACK_HOME": str(here.root)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return "Training starts in the background."


# ------------------------------------------------------------------------------------------------------ answers


def on_stop(here: Home, session: str, event: dict[str, Any]) -> None:
    """The answer is there: with the prompt that was kept it makes a turn.

    The transcript is not read: when ``Stop`` fires, its last message is often not written yet.
    """
    response, prompt_id = text(event, "last_assistant_message"), text(event, "prompt_id", 200)
    if not response.strip():
        return
    from clawback.records import Message, Turn

    with connect(here) as store:
        prompt = store.prompt(AGENT, session, prompt_id)
        if prompt is None:
            raise Unusable(
                "an answer without a prompt (were the hooks installed half-way through a conversation?)"
            )
        if not prompt:
            return
        name = f"{AGENT}:{session}"
        messages: list[Message] = [*conversation(store, name), {"role": "user", "content": prompt}]
        response = clean(here, response)
        store.add_turn(
            Turn(
                session=name,
                messages=tuple(messages),
                response=response,
                agent=AGENT,
                cwd=text(event, "cwd", 4096),
                event_id=f"{name}:{prompt_id}:{fingerprint(prompt + chr(0) + response)}",
            )
        )


def conversation(store: Store, session: str) -> list[Any]:
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


def on_subagent_stop(here: Home, session: str, event: dict[str, Any]) -> None:
    """A sub-agent's answer: recorded, never trained on."""
    response = text(event, "last_assistant_message")
    if not response.strip():
        return
    from clawback.records import Turn

    agent = text(event, "agent_id", 200)
    with connect(here) as store:
        response = clean(here, response)
        store.add_turn(
            Turn(
                session=f"{AGENT}:{session}",
                messages=(),
                response=response,
                agent=AGENT,
                kind="side",
                cwd=text(event, "cwd", 4096),
                event_id=f"{AGENT}:{session}:side:{agent}:{fingerprint(response)}",
            )
        )


# ------------------------------------------------------------------------------------------------------- shared


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
    return hashlib.blake2b(said.encode(), digest_size=12).hexdigest()


def log(here: Home, line: str) -> None:
    """One line in ``logs/hooks.log``; two files of at most a megabyte are kept. Never raises."""
    try:
        here.create()
        here.logs.mkdir(mode=0o700, exist_ok=True)
        path = here.logs / "hooks.log"
        if path.exists() and path.stat().st_size > MAX_LOG:
            path.replace(path.with_suffix(".log.1"))
        with os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8"
        ) as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {line}\n")
    except Exception:  # noqa: S110  (a full disk must not reach the agent either)
        pass


def _where(error: BaseException) -> str:
    """File and line of an error: enough to find it, and nothing of what was being stored."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else "?"  # noqa: PTH119


if __name__ == "__main__":
    main()
