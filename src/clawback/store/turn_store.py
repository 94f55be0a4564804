"""The part of the store that capture and a rating need: turns, prompts, sessions, feedback, and which version is live.

A session knows which turn a request continues from, what came after it, and the state of each conversation.

An agent's hook opens this much and no more: half of the store's tables are about runs, episodes, rules, raters and deletion.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.errors import NotFound
from clawback.store.connection import BUSY_SECONDS, open_database
from clawback.store.database import OWN, Base, now
from clawback.store.pending import PromptTable
from clawback.store.turns import Turns
from clawback.store.version_tables import Versions

if TYPE_CHECKING:
    from clawback.records import Message, Session


_SESSION = f"""
    SELECT s.name, s.agent, s.cwd, s.created_at, s.done_at,
           count(CASE t.kind WHEN 'main' THEN 1 END) AS main, count(CASE t.kind WHEN 'side' THEN 1 END) AS side,
           count(t.value) AS rated, avg(t.value) AS reward
    FROM (SELECT * FROM sessions {{}}) s LEFT JOIN (
        SELECT t.session_id, t.kind, (
            SELECT coalesce(avg(CASE WHEN f.kind NOT IN ('edit', 'critique') THEN f.value END), avg(f.value))
            FROM feedback f WHERE f.turn_id = t.id AND f.undone_at IS NULL AND {OWN}
                AND (f.kind != 'rating' OR f.id IN (SELECT id FROM standing_ratings r WHERE r.turn_id = t.id))
        ) AS value
        FROM turns t
    ) t ON t.session_id = s.id
    GROUP BY s.id ORDER BY s.id DESC
"""
"""Of the sessions that are chosen in the braces, and of no others."""


class Sessions(Base):
    def at_place(self, places: Sequence[bytes]) -> tuple[int, int, str] | None:
        """The last of ``places`` that is known: its index, the turn there, and the name of that turn's session."""
        for index in range(len(places) - 1, -1, -1):
            rows = self._read(
                "SELECT p.turn_id, s.name FROM places p JOIN turns t ON t.id = p.turn_id"
                " JOIN sessions s ON s.id = t.session_id WHERE p.place = ?",
                places[index],
            )
            if rows:
                return index, int(rows[0][0]), str(rows[0][1])
        return None

    def put_next_state(self, turn_id: int, messages: Sequence[Message]) -> None:
        """What came back after a turn, without pictures: the next turn has those. The first value is kept: a request that is sent again says nothing new."""
        if any(isinstance(m.get("content"), (list, tuple)) for m in messages):
            from clawback.pictures import marked

            messages = marked(messages)
        with self._write() as db:
            db.execute(
                "UPDATE bodies SET next_state = ? WHERE turn_id = ? AND next_state IS NULL",
                (json.dumps([dict(m) for m in self.clean(list(messages))], ensure_ascii=False), turn_id),
            )

    def finish_session(self, name: str) -> None:
        """Mark a session as finished. Raises ``NotFound``."""
        with self._write() as db:
            done = db.execute("UPDATE sessions SET done_at = ? WHERE name = ?", (now(), self.clean(name)))
            if not done.rowcount:
                raise NotFound(f"There is no session {name!r}. `clawback turns sessions` lists them.")

    def sessions(self, limit: int = 20) -> list[Session]:
        """Newest first."""
        rows = self._read(_SESSION.format("ORDER BY id DESC LIMIT ?"), limit)
        from clawback.records import Session  # hooks that make none need not load it

        return [Session(**dict(row)) for row in rows]

    def session(self, name: str) -> Session:
        """Raises ``NotFound``."""
        rows = self._read(_SESSION.format("WHERE name = ?"), name)
        if not rows:
            raise NotFound(f"There is no session {name!r}. `clawback turns sessions` lists them.")
        from clawback.records import Session  # hooks that make none need not load it

        return Session(**dict(rows[0]))

    def conversations(self, prefix: str, limit: int) -> list[tuple[str, float, int, int]]:
        """(name, time of the newest turn, number of answers, first turn) of the sessions whose name begins so, the newest first."""
        rows = self._read(
            "SELECT s.name, max(t.created_at) AS newest, count(*) AS answers, min(t.id) AS first"
            " FROM sessions s JOIN turns t ON t.session_id = s.id WHERE s.name GLOB ? AND t.kind = 'main'"
            " GROUP BY s.id ORDER BY newest DESC, s.id DESC LIMIT ?",
            f"{prefix}*",
            limit,
        )
        return [(str(r["name"]), float(r["newest"]), int(r["answers"]), int(r["first"])) for r in rows]

    def going_on(self, since: float) -> set[str]:
        """Names of sessions that may still go on: nobody said that they are done, and a main turn is newer than ``since``."""
        rows = self._read(
            "SELECT DISTINCT s.name FROM sessions s JOIN turns t ON t.session_id = s.id"
            " WHERE s.done_at IS NULL AND t.kind = 'main' AND t.created_at > ?",
            since,
        )
        return {str(row[0]) for row in rows}

    def ended_sessions(self, since: float, until: float) -> list[tuple[int, list[int]]]:
        """(version, main turns) of the sessions that began after ``since`` and are over: done, or silent since ``until``.
        In the order in which they ended; those that two versions answered are left out."""
        rows = self._read(
            """
            SELECT min(t.version) AS version, group_concat(t.id) AS turns, max(t.created_at) AS last, s.done_at AS done
            FROM sessions s JOIN turns t ON t.session_id = s.id
            WHERE s.created_at > ? AND t.kind = 'main' AND t.version IS NOT NULL
            GROUP BY s.id HAVING min(t.version) = max(t.version) AND (done IS NOT NULL OR last <= ?)
            ORDER BY coalesce(done, last), s.id
            """,
            since,
            until,
        )
        return [(int(r["version"]), [int(i) for i in r["turns"].split(",")]) for r in rows]


class TurnStore(Turns, PromptTable, Sessions, Versions):
    """One connection to the database. A context manager; not for use by two threads at once.

    Each call that writes is one transaction, and has reached the disk when it returns.
    """


def open_turns(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> TurnStore:
    """As ``store.connect``."""
    return TurnStore(path, open_database(path, busy_seconds=busy_seconds))
