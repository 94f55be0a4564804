"""Events that the database could not take because another process held it: kept as files, and taken in order by whoever can write next.

``$CLAWBACK_HOME/spool/`` holds one file an event (mode 0600, written beside and renamed). Where the database is
encrypted each file is a small encrypted database with the same key. Whoever takes them
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
    from collections.abc import Callable

    from clawback.capture.events import Event
    from clawback.capture.served import ServedTurn
    from clawback.config import PrivacySection
    from clawback.records import JsonObject
    from clawback.store import Store

MOST_EVENTS, MOST_BYTES = 5_000, 200_000_000
"""How much is kept. What comes after that is refused: the database has been held for hours."""
SUFFIX = ".event"
SEALED = f".sealed{SUFFIX}"
"""How names of encrypted files end."""
SERVED = "ServedTurn"
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

    if words[0] in command.ASKS:
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
    """Write an event to its own file, without secrets.

    Raises ``StoreBusy`` where too many wait, or the disk takes none; ``StoreError`` where the key is not there.
    """
    _keep(here, {"agent": agent, "kind": type(event).__name__, "event": _clean(here, event)})


def keep_served(here: Home, served: ServedTurn, privacy: PrivacySection) -> None:
    """The same for an exchange that our server heard."""
    from clawback.capture.served import to_json

    _keep(here, {"kind": SERVED, "at": time.time(), "event": to_json(served, privacy)})


def _keep(here: Home, record: JsonObject) -> None:
    from clawback.encryption import keys

    try:
        here.create()
        here.spool.mkdir(mode=0o700, exist_ok=True)
        names = _names(here)
        size = sum((here.spool / name).stat().st_size for name in names)
        if len(names) >= MOST_EVENTS or size > MOST_BYTES:
            raise StoreBusy("The database has been in use for too long, and no more events can wait for it.")
        last = int(names[-1].split("-")[0]) if names else 0
        # A clock that was set back must not put an event before those that came before it.
        name = f"{max(time.time_ns(), last + 1):020d}-{os.getpid()}-{os.urandom(4).hex()}"
        data = json.dumps(record, ensure_ascii=False).encode("utf-8", "replace")
        if keys.encrypted(here.database):
            _write_sealed(here, here.spool / f"{name}{SEALED}", data)
            return
        from clawback.files import replace

        replace(here.spool / f"{name}{SUFFIX}", data)
    except OSError as error:
        raise StoreBusy(
            f"The database is in use, and the event cannot wait in {here.spool}: {error}."
        ) from error


def _write_sealed(here: Home, path: Path, data: bytes) -> None:
    """A file that the home's key opens: written beside, synced, renamed."""
    from contextlib import closing

    from clawback.encryption import keys
    from clawback.store import connection
    from clawback.store.connection import sqlite3

    key = keys.load(here.database)
    beside = path.with_name(f".{path.name}.new")
    try:
        os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(connection.open_encrypted(beside, key, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = MEMORY")
            db.execute("BEGIN")
            db.execute("CREATE TABLE event (data BLOB)")
            db.execute("INSERT INTO event VALUES (?)", (data,))
            db.execute("COMMIT")
        beside.replace(path)
    except sqlite3.Error as error:
        raise OSError(str(error)) from error
    finally:
        beside.unlink(missing_ok=True)


def _read_sealed(here: Home, path: Path) -> bytes:
    """Raises ``ValueError`` for a file that the home's key does not open, ``StoreError`` where there is no key."""
    from contextlib import closing

    from clawback.encryption import keys
    from clawback.store import connection
    from clawback.store.connection import sqlite3

    if not path.exists():
        raise FileNotFoundError(path)
    try:
        with closing(connection.open_encrypted(path, keys.load(here.database))) as db:
            return bytes(db.execute("SELECT data FROM event").fetchone()[0])
    except (sqlite3.Error, TypeError) as error:
        raise ValueError(str(error)) from error


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
    mark, sealed = f"spool:{path.name}", path.name.endswith(SEALED)
    try:
        record = json.loads(_read_sealed(here, path) if sealed else path.read_bytes())
        take = _taker(here, record)
    except FileNotFoundError:
        return
    except (ValueError, LookupError, TypeError, AttributeError):
        if sealed:  # another key may open it
            path.replace(path.with_suffix(".unreadable"))
        else:
            path.unlink(missing_ok=True)
        return
    try:
        with ingest.connect(here) as store, store.together():
            if store.obeyed(mark) is None:
                store.put_obeyed(mark, "")
                take(store)
    except StoreError:
        raise
    except Exception as error:
        from clawback.capture import hook

        hook.log(here, hook.why(error))
    path.unlink(missing_ok=True)


def _taker(here: Home, record: JsonObject) -> Callable[[Store], object]:
    """What stores the event of a file. Raises what a file that is none of ours brings about."""
    if record["kind"] == SERVED:
        from clawback import config
        from clawback.capture import served

        turn, at = served.from_json(record["event"]), float(record["at"])
        privacy = config.load(here.config).privacy
        return lambda store: served.store_turn(store, turn, privacy, seen_at=at)
    kind: Any = getattr(events, record["kind"])
    event: Event = kind(**{k: tuple(v) if k == "work" else v for k, v in record["event"].items()})
    agent = record["agent"]
    return lambda store: ingest.take_into(here, store, agent, event)


def _names(here: Home) -> list[str]:
    return sorted(name for name in os.listdir(here.spool) if name.endswith(SUFFIX))  # noqa: PTH208


def _clean(here: Home, event: Event) -> JsonObject:
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
