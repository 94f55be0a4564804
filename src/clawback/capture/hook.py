"""The entry point of agents' hooks: ``clawback-hook AGENT`` reads one event from stdin.

Hooks never block or break the agent: whatever happens the exit code is 0, with one line in ``logs/hooks.log``
when something was wrong. A hook runs on every prompt and answer, so only what storing one row needs is
imported.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from clawback.capture.events import AnswerEvent, PromptEvent
from clawback.capture.ingest import Unusable, command_of, connect
from clawback.capture.spool import deliver
from clawback.paths import Home, home

if TYPE_CHECKING:
    from clawback.capture.agent_integration import AgentIntegration
    from clawback.capture.events import Event
    from clawback.records import JsonObject

    Respond = Callable[[Home, AgentIntegration, Event], JsonObject | None]

MAX_PAYLOAD = 16_000_000
"""Bytes of an event. More is no turn that anybody could train on."""
MAX_LOG = 1_000_000
ORDER_SECONDS = 8.0
"""How long ``/rl rollback`` may take: agents give a hook ten."""


def main(respond: Respond | None = None) -> None:
    """Read one event, act on it, and exit with code 0.

    Args:
        respond: what a higher layer adds to an event that is stored (``rules.hook``).
    """
    here = home()
    try:
        arguments = sys.argv[1:]
        if "--home" in arguments:
            from pathlib import Path

            place = arguments.index("--home")
            here = Home(Path(arguments[place + 1]))
            del arguments[place : place + 2]
        if arguments == ["status-line"]:
            from clawback.plugins import HOOKS, load

            payload = b"" if sys.stdin.isatty() else sys.stdin.buffer.read(MAX_PAYLOAD)
            sys.stdout.write(load(HOOKS, "status-line")(here, payload))
            sys.stdout.flush()
            os._exit(0)
        # An agent that has no stdin to give (Codex's `notify`) puts its event behind the last word.
        payload = arguments[1].encode() if len(arguments) > 1 else sys.stdin.buffer.read(MAX_PAYLOAD + 1)
        answer = handle(here, arguments[0] if arguments else "claude-code", payload, respond)
        if answer:
            sys.stdout.write(json.dumps(answer))
            sys.stdout.flush()
    except BaseException as error:  # whatever it is, it must not reach the agent
        log(here, why(error))
    # Straight out: closing down the interpreter in order takes milliseconds that nobody gets anything for.
    os._exit(0)


def handle(here: Home, agent: str, payload: bytes, respond: Respond | None = None) -> JsonObject | None:
    """Act on one event of an agent. The return value is output for the agent.

    Raises ``Unusable`` for an incomplete event, ``UsageError`` for an unknown agent.
    """
    from clawback.capture import agent_integration

    known = agent_integration.find(agent)
    event = known.parse(parse(payload))
    if isinstance(event, PromptEvent) and (said := _ordered(here, agent, event)):
        return known.reply(said)
    return act(here, known, event, respond)


def _ordered(here: Home, agent: str, event: PromptEvent) -> str:
    """What became of ``/rl train``, ``rollback``, ``reset`` a comparison, or a word about the news; "" for anything else. The module that does it is in a higher layer."""
    words = command_of(event)
    if words is None:
        return ""
    from clawback.feedback.command import COMPARES, NEWS, ORDERS

    if words[0] not in ORDERS:
        return ""
    import subprocess

    from clawback import config
    from clawback.runs import trigger

    paths = [path for path in sys.path if path]
    program = f"import sys; sys.path[:0] = {paths!r}; import runpy; runpy.run_module('clawback.admin.remote_commands', run_name='__main__')"
    event_words = [event.text, event.session, event.by, event.name]
    asked = [sys.executable, "-I", "-c", program, str(here.root), agent, *event_words]
    done = subprocess.run(
        asked, capture_output=True, text=True, encoding="utf-8", timeout=ORDER_SECONDS, check=False,
        env=trigger.environment(here, trigger.key_variables(config.load(here.config))),
    )  # fmt: skip
    terminal = "inbox --rate" if words[0] in COMPARES else words[0]
    terminal = "status" if words[0] in NEWS else terminal
    return (
        done.stdout.strip()
        or f"Clawback: `{words[0]}` could not be done here; run `clawback {terminal}` in a terminal."
    )


def act(
    here: Home, agent: AgentIntegration, event: Event | None, respond: Respond | None = None
) -> JsonObject | None:
    """Act on an event that an agent's adapter has parsed; the return value is output for the agent."""
    if event is None:
        return None
    said = deliver(here, agent.name, event)
    if said is not None:
        return agent.reply(said)
    if isinstance(event, AnswerEvent) and event.cwd:
        _note_survived(here, event.cwd)
    return _responded(here, agent, event, respond) or agent.ask(here, event)


def _note_survived(here: Home, folder: str) -> None:
    """What became of earlier edits in that folder, where the person wants to know. The event is stored: an error costs one line in the log."""
    try:
        if _notes_survived(here):
            from clawback.capture import survived

            with connect(here) as store:
                survived.notice(store, folder)
    except Exception as error:
        log(here, why(error).replace("event left out", "survived left out"))


def _notes_survived(here: Home) -> bool:
    try:
        if b"survived" not in here.config.read_bytes():
            return False
    except FileNotFoundError:
        return False
    from clawback.config import load

    return load(here.config).capture.survived


def _responded(
    here: Home, agent: AgentIntegration, event: Event, respond: Respond | None
) -> JsonObject | None:
    """What ``respond`` adds. The event is stored: an error here costs one line in the log."""
    try:
        return respond(here, agent, event) if respond else None
    except Exception as error:
        log(here, why(error).replace("event left out", "rules left out"))
        return None


def parse(payload: bytes) -> JsonObject:
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


def why(error: BaseException) -> str:
    """One line about what went wrong: enough to find it, and nothing of what was being stored."""
    if isinstance(error, Unusable):
        return f"event left out: {error}"
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    where = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else "?"  # noqa: PTH119
    return f"event left out: {type(error).__name__} in {where}"


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


if __name__ == "__main__":
    main()
