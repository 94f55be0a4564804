"""Prompts that wait for their answer: hooks report the two separately."""

# No `from __future__ import annotations`: named tuples would compile each of theirs, in every hook (capture/events.py).

import json
from typing import NamedTuple

from clawback.store.base import now
from clawback.store.clock import Clock
from clawback.store.driver import sqlite3


class Kept(NamedTuple):
    """A prompt as it is kept."""

    id: str
    parts: tuple[str, ...]
    """What was asked, then what was added while the agent was at work on it."""
    by: str = ""
    notice: bool = False
    """The agent wrote it to itself, about work that somebody had asked for before."""
    created_at: float = 0.0

    @property
    def text(self) -> str:
        return "\n\n".join(self.parts)


DAY = 86_400.0
MONTH = 30 * DAY
KEPT_PROMPTS = 1000


class PromptTable(Clock):
    def put_prompt(
        self,
        agent: str,
        session: str,
        prompt_id: str,
        text: str,
        *,
        by: str = "",
        notice: bool = False,
        at: float = 0.0,
    ) -> None:
        """Keep a prompt until its answer comes; more text under the same id was added while the agent was at work.

        Those older than a day go, but for the newest 1,000. ``at``: when it was asked, by default now.
        """
        with self._write() as db:
            known = self.kept_prompt(agent, session, prompt_id) if prompt_id else None
            if known is None:
                db.execute(
                    "INSERT OR REPLACE INTO prompts (agent, session, prompt_id, text, created_at, person, notice)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (agent, session, prompt_id, text, at or now(), by, notice),
                )
            elif text and text not in known.parts:  # a hook that fires twice adds nothing
                first, *more = (*known.parts, text)
                db.execute(
                    "UPDATE prompts SET text = ?, steering = ? WHERE agent = ? AND session = ? AND prompt_id = ?",
                    (first, json.dumps(more, ensure_ascii=False), agent, session, prompt_id),
                )
            last = db.execute("SELECT max(rowid) FROM prompts").fetchone()[0] or 0
            if last > KEPT_PROMPTS:
                old = self.deletion_time(DAY) - DAY
                db.execute(
                    "DELETE FROM prompts WHERE rowid <= ? AND created_at < ?", (last - KEPT_PROMPTS, old)
                )

    def kept_prompt(self, agent: str, session: str, prompt_id: str) -> Kept | None:
        """The prompt of that name. It stays: a hook that fires twice must find it again."""
        rows = self._read(
            "SELECT * FROM prompts WHERE agent = ? AND session = ? AND prompt_id = ?",
            agent,
            session,
            prompt_id,
        )
        return _kept_prompt(rows[0]) if rows else None

    def newest_prompt(self, agent: str, session: str, by: str | None = None) -> Kept | None:
        """The last prompt of a session, answered or not. ``by``: of that person, or what nobody had asked for."""
        rows = self._read(
            "SELECT * FROM prompts WHERE agent = ? AND session = ? AND (? IS NULL OR person = ? OR (person = '' AND text = ''))"
            " ORDER BY created_at DESC, rowid DESC LIMIT 1",
            agent,
            session,
            by,
            by,
        )
        return _kept_prompt(rows[0]) if rows else None

    def request_before(self, agent: str, session: str, created_at: float) -> Kept | None:
        """What the person had last asked by then."""
        rows = self._read(
            "SELECT * FROM prompts WHERE agent = ? AND session = ? AND text != '' AND NOT notice AND created_at <= ?"
            " ORDER BY created_at DESC, rowid DESC LIMIT 1",
            agent,
            session,
            created_at,
        )
        return _kept_prompt(rows[0]) if rows else None

    def end_prompt(self, agent: str, session: str, prompt_id: str, ended: bool = True) -> None:
        """Mark that the answer to a prompt is complete though its text is not known yet, or remove the mark."""
        with self._write() as db:
            db.execute(
                "UPDATE prompts SET ended = ? WHERE agent = ? AND session = ? AND prompt_id = ?",
                (ended, agent, session, prompt_id),
            )

    def ended_prompts(self, agent: str, session: str) -> list[Kept]:
        """Prompts whose answer is complete and whose text is not known yet, oldest first."""
        rows = self._read(
            "SELECT * FROM prompts WHERE agent = ? AND session = ? AND ended ORDER BY created_at, rowid",
            agent,
            session,
        )
        return [_kept_prompt(row) for row in rows]

    def drop_prompt(self, agent: str, session: str, prompt_id: str) -> None:
        """No answer is coming to it."""
        with self._write() as db:
            db.execute(
                "DELETE FROM prompts WHERE agent = ? AND session = ? AND prompt_id = ?",
                (agent, session, prompt_id),
            )

    def obeyed(self, event_id: str) -> str | None:
        """What was replied to a command that has been obeyed already."""
        rows = self._read("SELECT reply FROM obeyed WHERE event_id = ?", event_id)
        return str(rows[0][0]) if rows else None

    def put_obeyed(self, event_id: str, reply: str) -> None:
        with self._write() as db:
            db.execute("INSERT OR IGNORE INTO obeyed VALUES (?, ?, ?)", (event_id, reply, now()))
            # A name of the spool is kept longer: its file may still be there.
            for rows, period in (("event_id LIKE 'spool:%'", MONTH), ("event_id NOT LIKE 'spool:%'", DAY)):
                db.execute(
                    f"DELETE FROM obeyed WHERE {rows} AND at < ?", (self.deletion_time(period) - period,)
                )


def _kept_prompt(row: sqlite3.Row) -> Kept:
    parts = (row["text"], *json.loads(row["steering"]))
    return Kept(
        row["prompt_id"],
        tuple(part for part in parts if part),
        row["person"],
        bool(row["notice"]),
        row["created_at"],
    )
