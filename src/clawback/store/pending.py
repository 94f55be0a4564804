"""What waits: prompts for their answer (hooks report the two separately), and feedback for the turn that it is about.

Where answers appeared outside Clawback is kept, so that feedback there reaches the right turn, in whatever order the two arrive.
"""

# No `from __future__ import annotations`: named tuples would compile each of theirs, in every hook (capture/events.py).

import json
import os
from typing import TYPE_CHECKING, NamedTuple

from clawback.store.connection import sqlite3
from clawback.store.database import now
from clawback.store.feedback import FeedbackTable

if TYPE_CHECKING:
    from clawback.records import Feedback


class StoredPrompt(NamedTuple):
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
WAITS = 86_400.0
"""Seconds for which feedback waits for the turn that it is about."""
TOLD = 7 * 86_400.0
"""Seconds for which it is told that it waited in vain."""
NEVER_CAME = "its answer did not come within a day"


class Early(NamedTuple):
    """Feedback whose turn is not known yet. ``lost``: why the turn will not come; "" while it is expected."""

    post: str
    kind: str
    value: float
    text: str
    created_at: float
    lost: str
    score: float | None = None
    scale: str = ""

    @property
    def summary(self) -> str:
        """``good``, ``bad``, a number of ten, or what kind of words it was."""
        if self.kind != "rating":
            return "a note"
        if self.score is not None:
            return f"{self.score:g} of {self.scale.rpartition('-')[2]}"
        return "good" if self.value > 0 else "bad"


class PendingPrompt(NamedTuple):
    """A prompt that waits for its answer. ``prompt_id``: the agent's own, "" where it has none; ``by``: who wrote it, where it is not the owner."""

    prompt_id: str
    text: str
    by: str = ""
    notice: bool = False
    """A word of the agent's own program, not of a person."""
    at: float = 0.0
    """When it was asked; 0: now."""


class PromptTable(FeedbackTable):
    def put_prompt(self, agent: str, session: str, prompt: PendingPrompt) -> None:
        """Keep a prompt until its answer comes; more text under the same id was added while the agent was at work.

        Those older than a day go, but for the newest 1,000.
        """
        with self._write() as db:
            prompt_id, text = prompt.prompt_id, prompt.text
            known = self.kept_prompt(agent, session, prompt_id) if prompt_id else None
            if known is None:
                db.execute(
                    "INSERT OR REPLACE INTO prompts (agent, session, prompt_id, text, created_at, person, notice)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (agent, session, prompt_id, text, prompt.at or now(), prompt.by, prompt.notice),
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

    def kept_prompt(self, agent: str, session: str, prompt_id: str) -> StoredPrompt | None:
        """The prompt of that name. It stays: a hook that fires twice must find it again."""
        rows = self._read(
            "SELECT * FROM prompts WHERE agent = ? AND session = ? AND prompt_id = ?",
            agent,
            session,
            prompt_id,
        )
        return _kept_prompt(rows[0]) if rows else None

    def newest_prompt(self, agent: str, session: str, by: str | None = None) -> StoredPrompt | None:
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

    def request_before(self, agent: str, session: str, created_at: float) -> StoredPrompt | None:
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

    def ended_prompts(self, agent: str, session: str) -> list[StoredPrompt]:
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

    # ----------------------------------------------------------------------------- feedback whose turn is not known yet

    def put_post(self, post: str, turn_id: int) -> list["Feedback"]:
        """Record that this turn's answer is at ``post`` (a name that its agent gives it). Feedback that waited for it is stored now."""
        from clawback.records import Feedback

        with self._write() as db:
            db.execute(
                "INSERT INTO posts VALUES (?, ?) ON CONFLICT (place) DO UPDATE SET turn_id = excluded.turn_id",
                (post, turn_id),
            )
            # What was given up may be here after all.
            rows = db.execute("SELECT * FROM early WHERE place = ? ORDER BY created_at", (post,)).fetchall()
            db.execute("DELETE FROM early WHERE place = ?", (post,))
            return [
                self.add_feedback(
                    Feedback(
                        turn_id,
                        row["kind"],
                        row["value"],
                        row["text"],
                        source=row["source"],
                        event_id=row["event_id"],
                        created_at=row["created_at"],
                        person=row["person"],
                        score=row["score"],
                        scale=row["scale"],
                    )
                )
                for row in rows
            ]

    def drop_post(self, post: str) -> None:
        """The place is to be taken anew: an agent that gives its prompts no names has one place a session."""
        with self._write() as db:
            db.execute("DELETE FROM posts WHERE place = ?", (post,))

    def posts_of(self, turn_id: int) -> list[str]:
        """The places of a turn's answer."""
        return [str(row[0]) for row in self._read("SELECT place FROM posts WHERE turn_id = ?", turn_id)]

    def at_post(self, post: str) -> int | None:
        """The turn whose answer is at this place."""
        rows = self._read("SELECT turn_id FROM posts WHERE place = ?", post)
        return int(rows[0][0]) if rows else None

    def put_early(self, post: str, opinion: "Feedback") -> None:
        """Keep feedback until its place is known (``turn_id`` is not looked at), for a day at most."""
        with self._write() as db:
            db.execute(
                "INSERT INTO early (event_id, place, kind, value, text, source, created_at, person, score, scale)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (
                    opinion.event_id or os.urandom(8).hex(),
                    post,
                    opinion.kind,
                    opinion.value,
                    self.clean(opinion.text),
                    self.clean(opinion.source),
                    opinion.created_at or now(),
                    self.clean(opinion.person) or self.person_behind(opinion.source, opinion.kind),
                    opinion.score,
                    opinion.scale,
                ),
            )
            self._grow_old(db)

    def early(self, place_starts: str = "") -> list[Early]:
        """Feedback that waits, and feedback lost in the last week, oldest first; at places with this prefix."""
        rows = self._read(
            "SELECT place, kind, value, text, created_at, lost, score, scale FROM early"
            " WHERE substr(place, 1, length(?)) = ? AND created_at >= ? ORDER BY created_at, event_id",
            place_starts,
            place_starts,
            self.trusted_time(WAITS) - WAITS - TOLD,
        )
        prompts = [Early(*row) for row in rows]
        late = self.trusted_time(WAITS) - WAITS
        return [e._replace(lost=e.lost or (NEVER_CAME if e.created_at < late else "")) for e in prompts]

    def waits_at(self, place_starts: str) -> list[str]:
        """Places with this prefix where feedback waits. One query, and cheap where nothing does."""
        rows = self._read(
            "SELECT DISTINCT place FROM early WHERE lost = '' AND substr(place, 1, length(?)) = ?",
            place_starts,
            place_starts,
        )
        return [str(row[0]) for row in rows]

    def lose_early(self, post: str, why: str) -> None:
        """Mark what waits there as lost."""
        with self._write() as db:
            db.execute("UPDATE early SET lost = ? WHERE place = ? AND lost = ''", (why, post))

    def untold(self, place_starts: str) -> list[Early]:
        """Lost feedback at places with this prefix that the person has not been told of; it is marked as told."""
        waiting = self._read("SELECT lost != '' AS lost, created_at FROM early WHERE told_at IS NULL")
        if not waiting:
            return []
        late = self.trusted_time(WAITS) - WAITS
        if not any(row["lost"] or row["created_at"] < late for row in waiting):
            return []
        with self._write() as db:
            self._grow_old(db)
            lost_prompts = [e for e in self.early(place_starts) if e.lost]
            new = db.execute(
                "UPDATE early SET told_at = ? WHERE lost != '' AND told_at IS NULL AND substr(place, 1, length(?)) = ?"
                " RETURNING place, created_at",
                (now(), place_starts, place_starts),
            ).fetchall()
            keys = {(row[0], row[1]) for row in new}
            return [e for e in lost_prompts if (e.post, e.created_at) in keys]

    def _grow_old(self, db: sqlite3.Connection) -> None:
        late = self.deletion_time(WAITS) - WAITS
        db.execute("UPDATE early SET lost = ? WHERE lost = '' AND created_at < ?", (NEVER_CAME, late))
        db.execute("DELETE FROM early WHERE created_at < ?", (late - TOLD,))

    def undo_event(self, event_id: str) -> "Feedback | None":
        """Take back what an outside event said: a reaction that was removed. None: it had said nothing yet."""
        with self._write() as db:
            db.execute("DELETE FROM early WHERE event_id = ?", (event_id,))
            rows = db.execute("SELECT id FROM feedback WHERE event_id = ?", (event_id,)).fetchall()
            return self.undo_feedback(int(rows[0][0])) if rows else None

    def undo_early(self, post: str, person: str | None = None) -> bool:
        """Take back the newest of what waits for a place (of one person's where named). False: nothing does."""
        by, whose = ("", []) if person is None else ("AND person IN (?, '')", [person])
        with self._write() as db:
            done = db.execute(
                f"DELETE FROM early WHERE event_id = (SELECT event_id FROM early WHERE place = ? AND lost = '' {by}"
                " ORDER BY created_at DESC, event_id LIMIT 1)",
                (post, *whose),
            )
            return bool(done.rowcount)


def _kept_prompt(row: sqlite3.Row) -> StoredPrompt:
    parts = (row["text"], *json.loads(row["steering"]))
    return StoredPrompt(
        row["prompt_id"],
        tuple(part for part in parts if part),
        row["person"],
        bool(row["notice"]),
        row["created_at"],
    )
