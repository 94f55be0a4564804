"""Events that the database could not take because another process held it: kept as files, and taken in order by whoever can write next.

``$CLAWBACK_HOME/spool/`` holds one file an event (mode 0600, written beside and renamed). Whoever takes them
(a hook, the server, a command, a bot) holds a lock, stores an event and the name of its file in one
transaction, and deletes the file after that: killed at any instant, each event is stored exactly once.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.capture import events, ingest
from clawback.errors import ClawbackError, StoreBusy, StoreError
from clawback.paths import Home

if TYPE_CHECKING:
    from clawback.capture.events import Event

MOST_EVENTS, MOST_BYTES = 5_000, 200_000_000
"""How much is kept. What comes after that is refused: the database has been held for hours."""
SUFFIX = ".event"
ACCEPTED = "Noted. The database is in use; this is stored as soon as it can be written."


def deliver(here: Home, agent: str, event: Event) -> str | None:
    """As ``ingest.take``; an event that the database cannot take now is kept, behind those that wait already."""
    try:
        if waiting(here):
            with suppress(OSError):  # a file that cannot be read holds nobody up
                drain(here)
        return ingest.take(here, agent, event)
    except StoreBusy as error:
        words = ingest.command_of(event)
        if words is None:
            keep(here, agent, event)
            return None
        return "Clawback: " + _keep_command(here, agent, event, words, error)


def _keep_command(here: Home, agent: str, event: Event, words: list[str], error: StoreBusy) -> str:
    """Keep a rating, and say so. What cannot be understood, or asks something, is answered now."""
    from clawback.feedback import command

    if words[0] == "status":
        return str(error)
    try:
        if words[0] != "undo":
            command.understood(words[0], words[1] if len(words) > 1 else "")
        keep(here, agent, event)
    except ClawbackError as refusal:
        return str(refusal)
    return ACCEPTED


def waiting(here: Home) -> bool:
    """Whether any events wait. One look at a folder."""
    try:
        with os.scandir(here.spool) as entries:
            return any(entry.name.endswith(SUFFIX) for entry in entries)
    except OSError:
        return False


def keep(here: Home, agent: str, event: Event) -> None:
    """Write an event to its own file, without secrets. Raises ``StoreBusy`` where too many wait, or the disk takes none."""
    try:
        here.create()
        here.spool.mkdir(mode=0o700, exist_ok=True)
        names = _names(here)
        size = sum((here.spool / name).stat().st_size for name in names)
        if len(names) >= MOST_EVENTS or size > MOST_BYTES:
            raise StoreBusy("The database has been in use for too long, and no more events can wait for it.")
        last = int(names[-1].split("-")[0]) if names else 0
        # A clock that was set back must not put an event before those that came before it.
        name = f"{max(time.time_ns(), last + 1):020d}-{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}"
        record = {"agent": agent, "kind": type(event).__name__, "event": _clean(here, event)}
        from clawback.files import replace

        replace(here.spool / name, json.dumps(record, ensure_ascii=False).encode())
    except OSError as error:
        raise StoreBusy(
            f"The database is in use, and the event cannot wait in {here.spool}: {error}."
        ) from error


def drain(here: Home) -> None:
    """Store the events that wait, oldest first. Raises ``StoreBusy`` where the database, or another who does this, holds them up."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(here.spool / "lock", timeout=ingest.BUSY_SECONDS, mode=0o600):
            while names := _names(here):
                for name in names:
                    _store(here, here.spool / name)
            with suppress(ClawbackError, ImportError, OSError), ingest.connect(here) as store:
                ingest.train_if_due(here, store)
    except Timeout:
        raise StoreBusy("The events that wait for the database are being stored; try again.") from None


def drain_if_waiting(here: Home) -> None:
    """The same for commands and the server, where nothing depends on it: what cannot be stored yet goes on waiting."""
    if waiting(here):
        with suppress(ClawbackError, OSError):
            drain(here)


def _store(here: Home, path: Path) -> None:
    """One event. An event that tells too little, now as then, is left out; where the database fails it stays."""
    mark = f"spool:{path.name}"
    try:
        record = json.loads(path.read_bytes())
        kind: Any = getattr(events, record["kind"])
        event: Event = kind(**{k: tuple(v) if k == "work" else v for k, v in record["event"].items()})
    except FileNotFoundError:
        return
    except (ValueError, LookupError, TypeError, AttributeError):
        path.unlink(missing_ok=True)
        return
    try:
        with ingest.connect(here) as store, store.together():
            if store.obeyed(mark) is None:
                store.put_obeyed(mark, "")
                ingest.take_into(here, store, record["agent"], event)
    except StoreError:
        raise
    except Exception as error:
        from clawback.capture import hook

        hook.log(here, hook.why(error))
    path.unlink(missing_ok=True)


def _names(here: Home) -> list[str]:
    return sorted(name for name in os.listdir(here.spool) if name.endswith(SUFFIX))  # noqa: PTH208


def _clean(here: Home, event: Event) -> dict[str, Any]:
    """The event's fields as they may lie on a disk, with how much of the transcript there was, and when."""
    fields = event._asdict()
    for name in ("text", "prompt"):
        if fields.get(name):
            fields[name] = ingest.clean(here, fields[name])
    if fields.get("work"):
        from clawback.redact import redact_all

        fields["work"] = redact_all(fields["work"])
    if "size" in fields:
        fields["at"] = fields["at"] or time.time()
        with suppress(OSError):
            fields["size"] = Path(fields["transcript"]).stat().st_size if fields["transcript"] else 0
    return fields
