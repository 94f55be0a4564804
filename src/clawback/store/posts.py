"""Where answers appeared outside, so that what is said there reaches the right turn, in whatever order it comes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from clawback.store.base import now
from clawback.store.feedback import FeedbackTable

if TYPE_CHECKING:
    from clawback.records import Feedback

EARLY_DAYS = 7
"""How long feedback waits for the turn that it is about."""


class Posts(FeedbackTable):
    def put_post(self, place: str, turn_id: int) -> list[Feedback]:
        """This turn's answer stands at ``place`` (a name that its agent gives it). What waited for it is stored now."""
        from clawback.records import Feedback

        with self._write() as db:
            db.execute(
                "INSERT INTO posts VALUES (?, ?) ON CONFLICT (place) DO UPDATE SET turn_id = excluded.turn_id",
                (place, turn_id),
            )
            rows = db.execute("SELECT * FROM early WHERE place = ? ORDER BY created_at", (place,)).fetchall()
            db.execute("DELETE FROM early WHERE place = ?", (place,))
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
                    )
                )
                for row in rows
            ]

    def drop_post(self, place: str) -> None:
        """The place is to be taken anew: an agent that gives its prompts no names has one place a session."""
        with self._write() as db:
            db.execute("DELETE FROM posts WHERE place = ?", (place,))

    def at_post(self, place: str) -> int | None:
        """The turn whose answer stands there."""
        rows = self._read("SELECT turn_id FROM posts WHERE place = ?", place)
        return int(rows[0][0]) if rows else None

    def put_early(self, place: str, given: Feedback) -> None:
        """Keep feedback until its place is known (``turn_id`` is not looked at); after a week it goes."""
        with self._write() as db:
            db.execute(
                "INSERT INTO early VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (
                    given.event_id or os.urandom(8).hex(),
                    place,
                    given.kind,
                    given.value,
                    given.text,
                    given.source,
                    given.created_at or now(),
                ),
            )
            db.execute("DELETE FROM early WHERE created_at < ?", (now() - EARLY_DAYS * 86_400,))

    def undo_event(self, event_id: str) -> Feedback | None:
        """Take back what an outside event said: a reaction that was removed. None: it had said nothing yet."""
        with self._write() as db:
            db.execute("DELETE FROM early WHERE event_id = ?", (event_id,))
            rows = db.execute("SELECT id FROM feedback WHERE event_id = ?", (event_id,)).fetchall()
            return self.undo_feedback(int(rows[0][0])) if rows else None

    def undo_early(self, place: str) -> bool:
        """Take back the newest of what waits for a place. False: nothing does."""
        with self._write() as db:
            done = db.execute(
                "DELETE FROM early WHERE event_id = (SELECT event_id FROM early WHERE place = ?"
                " ORDER BY created_at DESC, event_id LIMIT 1)",
                (place,),
            )
            return bool(done.rowcount)
