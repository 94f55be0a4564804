"""Feedback on turns."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING

from clawback.errors import NotFound, UsageError
from clawback.store.connection import sqlite3
from clawback.store.database import OWN, Base, now, readable

if TYPE_CHECKING:
    from clawback.records import Feedback

_LAST_USED = """
    coalesce((SELECT rf.feedback_id FROM run_feedback rf WHERE EXISTS (
                  SELECT 1 FROM runs r WHERE r.id = rf.run_id AND r.status IN ('running', 'done', 'stopped') AND r.kind {which} 'prompt'
              ) ORDER BY rf.feedback_id DESC LIMIT 1), 0)
"""
_LAST_TRAINED, _LAST_PROMPTED = _LAST_USED.format(which="!="), _LAST_USED.format(which="=")
"""A run takes all feedback there is, so what is newer than the newest that any run has used is fresh. One that is
under way has used it too: the gate judges before its run has ended, and counts from there. A failed run has used nothing. One look into an index, however many rows there are. Searches for a prompt are counted for themselves: what one has
read is as fresh as before to weights."""

MINE = "f.person = 'owner'"
"""Said by the owner, wherever."""
MOST_SCORES = 1_000
"""Newest scores that are counted by what is usual for the person who gave them."""
_OUTRIGHT = "(f.undone_at IS NULL AND f.kind NOT IN ('judge', 'implicit'))"
_GUESSED = "(f.undone_at IS NULL AND f.kind IN ('judge', 'implicit'))"
"""As the indexes ``feedback_said`` and ``feedback_guessed`` have it. They are named where they are wanted: without statistics SQLite does not see
that of a million rows the last few are asked for."""
MOST_FRESH = 5_000
"""Fresh turns that are counted, unless asked for otherwise."""


class FeedbackTable(Base):
    def add_feedback(self, opinion: Feedback) -> Feedback:
        """Store one observation and return it with its id. The same ``event_id`` again changes nothing.

        Without a ``person`` it is from whoever is behind the source (``identify``, ``person_of``). Without a time it is said now, and newer than
        all that this person has said of the turn, whatever the clock says.

        Raises ``NotFound`` when there is no such turn, ``UsageError`` for an unknown kind or a value outside [-1, 1].
        """
        from clawback.records import FEEDBACK_KINDS

        if opinion.kind not in FEEDBACK_KINDS:
            raise UsageError(
                f"There is no kind of feedback `{opinion.kind}`. There are: {', '.join(FEEDBACK_KINDS)}."
            )
        if not -1 <= opinion.value <= 1:
            raise UsageError(f"A value of {opinion.value:g} is outside -1 to 1.")
        text, source = self.clean(opinion.text), self.clean(opinion.source)
        with self._write() as db:
            person = self.clean(opinion.person) or self.person_behind(source, opinion.kind)
            if opinion.event_id:
                known = db.execute(
                    "SELECT * FROM feedback WHERE event_id = ?", (opinion.event_id,)
                ).fetchone()
                if known:
                    return _feedback(known)
            for turn in {opinion.turn_id, opinion.other_turn_id} - {None}:
                if not db.execute("SELECT 1 FROM turns WHERE id = ?", (turn,)).fetchone():
                    raise NotFound(f"There is no turn {turn}. `clawback turns` lists them.")
            number = db.execute(
                "INSERT INTO feedback (turn_id, other_turn_id, kind, value, text, source, event_id, created_at, person, score, scale)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    opinion.turn_id,
                    opinion.other_turn_id,
                    opinion.kind,
                    opinion.value,
                    text,
                    source,
                    opinion.event_id or None,
                    opinion.created_at or self._moment(opinion.turn_id, person),
                    person,
                    opinion.score,
                    opinion.scale,
                ),
            ).lastrowid
            return _feedback(db.execute("SELECT * FROM feedback WHERE id = ?", (number,)).fetchone())

    def _moment(self, turn_id: int, person: str) -> float:
        rows = self._read(
            "SELECT max(created_at) FROM feedback WHERE turn_id = ? AND person = ?", turn_id, person
        )
        return max(now(), rows[0][0] or 0.0)

    def person_behind(self, source: str, kind: str = "rating") -> str:
        """The person that a source belongs to."""
        from clawback.records import person_of

        rows = self._read("SELECT person FROM identities WHERE source = ?", source)
        return str(rows[0][0]) if rows else person_of(source, kind)

    def identify(self, source: str, person: str) -> int:
        """Record that what comes from this source is that person's, also what came before; returns how many pieces of feedback change hands."""
        with self._write() as db:
            db.execute(
                "INSERT INTO identities VALUES (?, ?) ON CONFLICT (source) DO UPDATE SET person = excluded.person",
                (source, person),
            )
            return db.execute(
                "UPDATE feedback SET person = ? WHERE source = ? AND person != ? AND kind NOT IN ('judge', 'implicit', 'reward')",
                (person, source, person),
            ).rowcount

    def undo_feedback(self, number: int) -> Feedback:
        """Take one observation back (the row stays, marked). Versions that learned from it, and their descendants,
        are marked ``stale``. Raises ``NotFound``; taking back twice changes nothing."""
        with self._write() as db:
            db.execute(
                "UPDATE feedback SET undone_at = ? WHERE id = ? AND undone_at IS NULL", (now(), number)
            )
            row = db.execute("SELECT * FROM feedback WHERE id = ?", (number,)).fetchone()
            if row is None:
                raise NotFound(f"There is no feedback {number}.")
            db.execute(
                """
                WITH RECURSIVE learned(number) AS (
                    SELECT v.number FROM versions v JOIN run_feedback rf ON rf.run_id = v.run_id
                    WHERE rf.feedback_id = ? AND rf.split = 'train'
                    UNION
                    SELECT v.number FROM versions v JOIN learned l ON v.parent = l.number
                )
                UPDATE versions SET stale = 1 WHERE number IN (SELECT number FROM learned)
                """,
                (number,),
            )
            return _feedback(row)

    def feedback(
        self,
        turn_id: int | None = None,
        fresh: bool = False,
        active: bool = True,
        *,
        ids: Collection[int] | None = None,
        newest: int | None = None,
        outright: bool | None = None,
    ) -> list[Feedback]:
        """Oldest first. ``fresh``: in no run that ended; ``active``: not taken back; ``ids``: these alone; ``newest``: so many at most;
        ``outright``: what somebody or an environment said, or (False) votes of judges and guesses."""
        where: list[str] = ["1"]
        values: list[int | str] = []
        if ids is not None:
            where.append("f.id IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(sorted(ids)))
        index = ""
        if outright is not None:
            where.append(_OUTRIGHT if outright else _GUESSED)
            index = f"INDEXED BY {'feedback_said' if outright else 'feedback_guessed'}" if ids is None else ""
        if turn_id is not None:
            where.append("(f.turn_id = ? OR f.other_turn_id = ?)")
            values += [turn_id, turn_id]
        if active:
            where.append("f.undone_at IS NULL")
        if fresh:
            where.append(f"f.id > {_LAST_TRAINED}")
        sql = f"SELECT f.* FROM feedback f {index} WHERE {' AND '.join(where)} ORDER BY f.id"
        if newest is None:
            return [_feedback(row) for row in self._read(sql, *values)]
        return [_feedback(row) for row in reversed(self._read(f"{sql} DESC LIMIT ?", *values, newest))]

    def count_feedback(self) -> int:
        """How much stands: what was not taken back."""
        return int(self._read("SELECT count(*) FROM feedback WHERE undone_at IS NULL")[0][0])

    def count_two_sided(self, most: int) -> int:
        """How much stands that is no plain rating and may speak for one answer and against another: edits, comparisons, rewards. Counting stops at ``most``."""
        sql = "SELECT count(*) FROM (SELECT 1 FROM feedback WHERE undone_at IS NULL AND kind NOT IN ('rating', 'critique', 'judge') LIMIT ?)"
        return int(self._read(sql, most)[0][0])

    def count_all_feedback(self) -> int:
        """How much was ever stored, taken back or not: the number only grows while nothing is deleted."""
        return int(self._read("SELECT coalesce(max(id), 0) FROM feedback")[0][0])

    def last_feedback(self, turn_id: int | None = None, person: str | None = None) -> Feedback | None:
        """The newest that somebody gave and that was not taken back, of one turn and from one person where named.

        What a judge model said comes last and only where a turn is named: "undo" means one's own rating, however many votes
        have come in since. So does what others than the owner said, where no person is named.
        """
        named, of = ("", []) if person is None else ("AND f.person = ?", [person])
        if turn_id is None:
            mine = MINE if person is None else "1"
            rows = self._read(
                f"SELECT f.* FROM feedback f WHERE f.undone_at IS NULL AND {OWN} AND {mine} {named} ORDER BY f.id DESC LIMIT 1",
                *of,
            )
        else:
            rows = self._read(
                f"SELECT f.* FROM feedback f WHERE f.undone_at IS NULL AND f.turn_id = ? {named}"
                f" ORDER BY {OWN} DESC, {MINE} DESC, f.created_at DESC, f.id DESC LIMIT 1",
                turn_id,
                *of,
            )
        return _feedback(rows[0]) if rows else None

    def count_fresh(self, most: int = MOST_FRESH, *, prompts: bool = False) -> int:
        """How many turns have feedback to train on that no run has used: what the training threshold counts.

        Counting stops at ``most``. A critique alone is nothing to train on yet, and side turns never are. A judge's votes
        are trained on, but they start nothing: only what a person or the environment said does. ``prompts``: that no search for a
        prompt has used. Answers to the gate's questions are for the gate.
        """
        from clawback.records import UNLEARNED  # hooks that count nothing need not load it

        unlearned = ", ".join(f"'{ending}'" for ending in sorted(UNLEARNED))
        sql = f"""
            SELECT count(*) FROM (
                SELECT DISTINCT f.turn_id FROM feedback f INDEXED BY feedback_said CROSS JOIN turns t ON t.id = f.turn_id
                WHERE f.id > {_LAST_PROMPTED if prompts else _LAST_TRAINED} AND {_OUTRIGHT} AND f.kind != 'critique' AND t.kind = 'main' AND t.consent != 'no'
                  AND t.agent != 'gate' AND (t.ending NOT IN ({unlearned}) OR f.kind = 'edit')
                LIMIT ?
            )
        """
        return int(self._read(sql, most)[0][0])

    def count_ratings(self) -> tuple[int, int]:
        """How many ratings stand that are good and bad: of one person's of a turn the newest alone, scores by what is usual for that person."""
        row = self._read("SELECT total(good), total(bad) FROM rating_counts")[0]
        moved = self._moved_scores().values()
        return int(row[0]) + sum(good for good, _ in moved), int(row[1]) + sum(bad for _, bad in moved)

    def middles(self) -> dict[tuple[str, str], float]:
        """(person, scale) → the value that is 0 for that person, by their newest scores that stand (``scales.middle``)."""
        return _middles(self._scores())

    def _scores(self) -> list[sqlite3.Row]:
        """The newest scores that stand. One look into an index where there are none."""
        return self._read(
            "SELECT s.version, s.person, s.scale, s.value FROM feedback f INDEXED BY feedback_scores"
            " JOIN standing_ratings s ON s.id = f.id WHERE f.scale != '' AND f.undone_at IS NULL ORDER BY f.id DESC LIMIT ?",
            MOST_SCORES,
        )

    def _moved_scores(self) -> dict[int, tuple[int, int]]:
        """Version → how many more scores are good and bad when they are centred by the person who gave them (``scales``)."""
        rows = self._scores()
        if not rows:
            return {}
        from clawback.scales import centred

        middles = _middles(rows)
        moved: dict[int, tuple[int, int]] = {}
        for row in rows:
            before, after = row["value"], centred(row["value"], middles[row["person"], row["scale"]])
            good, bad = moved.get(row["version"], (0, 0))
            moved[row["version"]] = good + (after > 0) - (before > 0), bad + (after < 0) - (before < 0)
        return moved

    def ratings_by_version(self) -> dict[int, tuple[int, int]]:
        """Version → (good, all) of the ratings that its answers have now."""
        rows = self._read("SELECT version, good, number FROM rating_counts WHERE version >= 0 AND number > 0")
        moved = self._moved_scores()
        return {int(row[0]): (int(row[1]) + moved.get(int(row[0]), (0, 0))[0], int(row[2])) for row in rows}


def _middles(scores: list[sqlite3.Row]) -> dict[tuple[str, str], float]:
    if not scores:
        return {}
    from clawback.scales import middle

    groups: dict[tuple[str, str], list[float]] = {}
    for row in scores:
        groups.setdefault((row["person"], row["scale"]), []).append(row["value"])
    return {group: middle(values) for group, values in groups.items()}


@readable
def _feedback(row: sqlite3.Row) -> Feedback:
    from clawback.records import Feedback  # hooks that make none need not load it

    return Feedback(
        id=row["id"],
        turn_id=row["turn_id"],
        other_turn_id=row["other_turn_id"],
        kind=row["kind"],
        value=row["value"],
        text=row["text"],
        source=row["source"],
        event_id=row["event_id"] or "",
        created_at=row["created_at"],
        undone_at=row["undone_at"],
        person=row["person"],
        score=row["score"],
        scale=row["scale"],
    )
