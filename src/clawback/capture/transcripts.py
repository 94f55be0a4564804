"""Reads the newest part of an agent's own record of a session.

Hooks report less: there is no event for an interrupted answer, only the last of several text blocks, no tool
calls, and no event for a message that was queued while the agent was at work. Claude Code's last message is
often not in its record yet when ``Stop`` fires.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable

from clawback.capture.exchanges import Exchange
from clawback.plugins import TRANSCRIPTS, load_value, where

__all__ = ["Exchange", "exchange_of", "reader", "recent"]

TAILS = (400_000, 8_000_000)
"""Bytes read from the end of a record: first the former, and the latter where the exchange begins before it."""
Reader = Callable[[Iterable[str]], list[Exchange]]


def reader(agent: str) -> Reader | None:
    """What reads the lines of an agent's own records; None for an agent whose records are not supported."""
    value = where(TRANSCRIPTS, agent)
    read: Reader | None = load_value(value) if value else None
    return read


def recent(agent: str, path: str, prompt_id: str = "", size: int = 0) -> list[Exchange]:
    """The newest exchanges of a session, oldest first, including that of the given prompt if the record has it.

    Empty for an agent whose records are not supported, and for a missing record. Raises nothing. ``size``: only
    this many bytes of the record are read, as many as there were when something happened.
    """
    read = reader(agent) if path else None
    if read is None:
        return []
    exchanges: list[Exchange] = []
    for most in TAILS:
        lines, complete = _tail(path, most, size)
        exchanges = read(lines)
        if complete or any(
            one.requests or one.notice for one in exchanges if not prompt_id or prompt_id in one.ids
        ):
            break
    return exchanges


def exchange_of(exchanges: Iterable[Exchange], prompt_id: str) -> Exchange | None:
    """The exchange of a prompt; for an agent that does not name its prompts the newest."""
    listed = list(exchanges)
    if not prompt_id:
        return listed[-1] if listed else None
    return next((one for one in listed if prompt_id in one.ids), None)


def _tail(path: str, most: int, size: int = 0) -> tuple[list[str], bool]:
    """The last lines of a file, and whether these are all. A line that is cut at the front is left out."""
    try:
        # Whoever tells of a path may tell of a pipe, which must not hold us up.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError):
        return [], True
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return [], True
        end = min(size, status.st_size) if size else status.st_size
        start = max(0, end - most)
        file.seek(start)
        lines = file.read(end - start).decode("utf-8", "replace").split("\n")
    return lines[1:] if start else lines, start == 0
