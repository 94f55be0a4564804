"""The whole store: what capture writes (``turn_store``), the tables of runs, episodes, rules and raters, and permanent deletion, which goes through all of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from clawback.errors import NotFound, UsageError
from clawback.store.connection import BUSY_SECONDS, open_database, sqlite3
from clawback.store.database import Base, now
from clawback.store.invitations import RaterTable
from clawback.store.picture_table import numbers
from clawback.store.rule_tables import RuleTable
from clawback.store.run_tables import EpisodeTable, Runs
from clawback.store.turn_store import TurnStore

if TYPE_CHECKING:
    from clawback.records import JsonObject

# No `from __future__ import annotations`: named tuples would compile each of theirs, in every hook (capture/events.py).


FORGOTTEN = "[forgotten]"
"""Stands in later turns' messages where a forgotten one was quoted."""
PROMPTS = 256
"""A run draws answers to at most so many of the newest prompts."""
_MANY = 500

_LEARNED = """
    WITH RECURSIVE learned(number) AS (
        SELECT v.number FROM versions v JOIN run_feedback rf ON rf.run_id = v.run_id
        WHERE rf.split = 'train' AND rf.feedback_id IN (SELECT value FROM json_each(?))
        UNION
        SELECT v.number FROM versions v WHERE v.run_id IN (SELECT value FROM json_each(?))
        UNION
        SELECT v.number FROM versions v JOIN learned l ON v.parent = l.number
    )
    SELECT number FROM learned WHERE number != 0 ORDER BY number
"""


class Deleted(NamedTuple):
    """What is gone, by numbers."""

    turns: tuple[int, ...]
    feedback: tuple[int, ...]
    versions: tuple[int, ...]
    """Those that learned from it."""


class ForgottenRows(NamedTuple):
    """One entry of the record of deletions."""

    at: float
    kind: str
    turns: tuple[int, ...]
    feedback: tuple[int, ...]
    versions: tuple[int, ...]


class Forgetting(Base):
    def turns_to_prune(
        self,
        *,
        until: float | None = None,
        keep: int | None = None,
        version: int | None = None,
        rated: bool = False,
    ) -> list[int]:
        """Turns that *all* of the given rules name: made before then, not among the newest ``keep``, answered by ``version`` or an older one.
        Turns with feedback only with ``rated``."""
        where, values = ["1"], []
        if until is not None:
            where.append("t.created_at < ?")
            values.append(until)
        if keep is not None:
            where.append("t.id NOT IN (SELECT id FROM turns ORDER BY id DESC LIMIT ?)")
            values.append(keep)
        if version is not None:
            where.append("t.version <= ?")
            values.append(version)
        if not rated:
            where.append("t.id NOT IN (SELECT turn_id FROM feedback)")
            where.append("t.id NOT IN (SELECT other_turn_id FROM feedback WHERE other_turn_id IS NOT NULL)")
        rows = self._read(f"SELECT t.id FROM turns t WHERE {' AND '.join(where)} ORDER BY t.id", *values)
        return [int(row[0]) for row in rows]

    def turns_of_session(self, name: str) -> list[int]:
        """All of them, oldest first. Raises ``NotFound``."""
        rows = self._read(
            "SELECT t.id FROM turns t JOIN sessions s ON s.id = t.session_id WHERE s.name = ? ORDER BY t.id",
            name,
        )
        if not rows:
            raise NotFound(f"There is no session {name!r}. `clawback turns sessions` lists them.")
        return [int(row[0]) for row in rows]

    def feedback_of_person(self, person: str) -> list[int]:
        """What that person said, or what came from the source of that name, taken back or not."""
        sql = "SELECT id FROM feedback WHERE person = ? OR source = ? ORDER BY id"
        return [int(r[0]) for r in self._read(sql, person, person)]

    def turns_of_person(self, source: str) -> list[int]:
        """Turns whose question that person asked, as far as it is known: a chat channel keeps who asked each."""
        rows = self._read(
            "SELECT DISTINCT t.id FROM turns t JOIN sessions s ON s.id = t.session_id JOIN bodies b ON b.turn_id = t.id"
            " JOIN prompts p ON p.person = ? AND (p.session = s.name OR p.agent || ':' || p.session = s.name) AND p.text = b.prompt"
            " ORDER BY t.id",
            source,
        )
        return [int(row[0]) for row in rows]

    def forget(
        self,
        turns: Collection[int] = (),
        feedback: Collection[int] = (),
        *,
        person: str = "",
        kind: str = "turns",
        erase: bool = True,
    ) -> Deleted:
        """Delete turns, all that was said about them, this feedback, and what is kept of a person; in one transaction, and wiped from the file.

        Versions that learned from it are marked ``stale``. With ``erase`` also those whose run may have drawn answers to a deleted turn's
        prompt, and later turns that quote a deleted one (an agent sends the whole conversation each time) read ``[forgotten]`` there.
        A stop of Clawback half-way leaves everything as it was.
        """
        gone = [self.turn_row(number) for number in sorted(set(turns))]
        self._db.execute("PRAGMA secure_delete = ON")
        with self._write() as db:
            said = self._feedback_about([t["id"] for t in gone]) | set(feedback)
            asked = [run for t in gone for run in self._runs_with_prompt(t)] if erase else []
            rows = db.execute(_LEARNED, (json.dumps(sorted(said)), json.dumps(sorted(set(asked)))))
            versions = tuple(int(row[0]) for row in rows.fetchall())
            _in(db, "UPDATE versions SET stale = 1 WHERE number IN ({})", versions)
            _in(db, "DELETE FROM run_feedback WHERE feedback_id IN ({})", said)
            _in(db, "DELETE FROM feedback WHERE id IN ({})", said)
            numbers = {t["id"] for t in gone}
            for turn in gone if erase else ():
                self._blank(db, turn, numbers)
            _in(db, "DELETE FROM turns WHERE id IN ({})", [t["id"] for t in gone])
            db.execute("DELETE FROM sessions WHERE id NOT IN (SELECT session_id FROM turns)")
            if person:
                db.execute("DELETE FROM surveys WHERE person = ?", (person,))
                db.execute("DELETE FROM prompts WHERE person = ?", (person,))
                db.execute("DELETE FROM rules WHERE author = ?", (person,))
                db.execute("DELETE FROM early WHERE source = ? OR person = ?", (person, person))
                db.execute("DELETE FROM identities WHERE source = ? OR person = ?", (person, person))
                db.execute("DELETE FROM raters WHERE 'rater:' || name = ?", (person,))
            done = Deleted(tuple(t["id"] for t in gone), tuple(sorted(said)), versions)
            if gone or said or person:
                db.execute(
                    "INSERT INTO forgotten (at, kind, turns, feedback, versions) VALUES (?, ?, ?, ?, ?)",
                    (now(), kind, *(json.dumps(list(part)) for part in done)),
                )
        self.wipe()
        return done

    def wipe(self) -> None:
        """Nothing deleted is left in the file or its log; another connection that reads meanwhile puts it off to the next checkpoint."""
        self._read("PRAGMA wal_checkpoint(TRUNCATE)")

    def forgotten(self) -> list[ForgottenRows]:
        """The record of deletions, oldest first."""
        rows = self._read("SELECT at, kind, turns, feedback, versions FROM forgotten ORDER BY id")
        return [ForgottenRows(r[0], r[1], *(tuple(json.loads(part)) for part in r[2:])) for r in rows]

    def delete_version(self, number: int) -> None:
        """Take a version out: its descendants descend from its parent then. Raises ``UsageError`` for the base and the live one."""
        with self._write() as db:
            rows = db.execute("SELECT status, parent FROM versions WHERE number = ?", (number,)).fetchall()
            if not rows:
                raise NotFound(f"There is no version {number}. `clawback versions` lists them.")
            if number == 0 or rows[0]["status"] == "live":
                raise UsageError(
                    f"Version {number} is {'the base model' if number == 0 else 'live'} and stays."
                )
            parent = rows[0]["parent"] or 0
            db.execute("UPDATE versions SET parent = ? WHERE parent = ?", (parent, number))
            db.execute("UPDATE runs SET parent = ? WHERE parent = ?", (parent, number))
            db.execute("UPDATE runs SET version = NULL WHERE version = ?", (number,))
            db.execute("DELETE FROM versions WHERE number = ?", (number,))

    # ------------------------------------------------------------------------------------------------------ parts

    def turn_row(self, number: int) -> sqlite3.Row:
        rows = self._read(
            "SELECT t.*, b.prompt, b.response, b.messages FROM turns t JOIN bodies b ON b.turn_id = t.id WHERE t.id = ?",
            number,
        )
        if not rows:
            raise NotFound(f"There is no turn {number}. `clawback turns` lists them.")
        return rows[0]

    def _feedback_about(self, turns: Iterable[int]) -> set[int]:
        numbers = json.dumps(list(turns))
        rows = self._read(
            "SELECT id FROM feedback WHERE turn_id IN (SELECT value FROM json_each(?))"
            " OR other_turn_id IN (SELECT value FROM json_each(?))",
            numbers,
            numbers,
        )
        return {int(row[0]) for row in rows}

    def _runs_with_prompt(self, turn: sqlite3.Row) -> list[int]:
        """Runs that began when this was one of the newest conversations."""
        if turn["kind"] != "main":
            return []
        rows = self._read(
            "SELECT r.id FROM runs r WHERE r.created_at >= ? AND (SELECT count(*) FROM turns t WHERE t.id > ? AND t.kind = 'main'"
            " AND t.created_at <= r.created_at) < ?",
            turn["created_at"],
            turn["id"],
            PROMPTS,
        )
        return [int(row[0]) for row in rows]

    def _blank(self, db: sqlite3.Connection, turn: sqlite3.Row, gone: Collection[int]) -> None:
        """Take a turn's words out of the other turns that quote it, out of what came back to the one before, and out of what waits; and out of its session
        the pictures that it brought."""
        self._blank_pictures(db, turn)
        quoted = json.dumps(turn["response"], ensure_ascii=False)[1:-1]
        rows = db.execute(
            "SELECT b.turn_id, b.messages, b.next_state FROM bodies b JOIN turns t ON t.id = b.turn_id"
            " WHERE t.id != ? AND (t.session_id = ? OR (? != '' AND instr(b.messages, ?) > 0))",
            (turn["id"], turn["session_id"], quoted, quoted),
        ).fetchall()
        for row in (r for r in rows if r["turn_id"] not in gone):
            messages = _without(json.loads(row["messages"]), turn["prompt"], turn["response"])
            state = json.loads(row["next_state"]) if row["next_state"] else None
            came = None if state is None else _without(state, turn["prompt"], turn["response"], alone=True)
            if messages is not None or came is not None:
                from clawback.records import Turn

                conversation = messages if messages is not None else json.loads(row["messages"])
                prompt = Turn("", tuple(conversation), "").prompt
                db.execute(
                    "UPDATE bodies SET messages = ?, prompt = ?, next_state = ? WHERE turn_id = ?",
                    (
                        json.dumps(conversation, ensure_ascii=False),
                        prompt,
                        json.dumps(state if came is None else came, ensure_ascii=False)
                        if state is not None
                        else None,
                        row["turn_id"],
                    ),
                )
                db.execute(
                    "DELETE FROM turn_pictures WHERE turn_id = ? AND number NOT IN (SELECT value FROM json_each(?))",
                    (row["turn_id"], json.dumps(numbers(conversation))),
                )
        db.execute("DELETE FROM prompts WHERE text = ? AND text != ''", (turn["prompt"],))

    def _blank_pictures(self, db: sqlite3.Connection, turn: sqlite3.Row) -> None:
        """The rows of a session lose the pictures that a turn's question brought: where their number stands in messages, a mark is read."""
        said = json.loads(turn["messages"])
        last = max((i for i, m in enumerate(said) if m.get("role") == "assistant"), default=-1)
        own = numbers(said[last + 1 :])
        db.execute(
            "DELETE FROM turn_pictures WHERE turn_id IN (SELECT id FROM turns WHERE session_id = ?) AND picture_id IN"
            " (SELECT picture_id FROM turn_pictures WHERE turn_id = ? AND number IN (SELECT value FROM json_each(?)))",
            (turn["session_id"], turn["id"], json.dumps(own)),
        )


def _without(
    messages: list[JsonObject], prompt: str, response: str, alone: bool = False
) -> list[JsonObject] | None:
    """The messages with a turn's words blanked: its answer, and the question right before it (``alone``: that question by itself); None where
    nothing of it is there."""
    from clawback.records import shown_text, text_of  # hooks load the store, and need none of this

    conversation, changed = [dict(m) for m in messages], False
    for place, message in enumerate(conversation):
        if message.get("role") == "assistant" and response and text_of(message.get("content")) == response:
            conversation[place] = message | {"content": FORGOTTEN}
            changed = True
            before = next(
                (i for i in range(place - 1, -1, -1) if conversation[i].get("role") == "user"), None
            )
            if before is not None and prompt and prompt in shown_text(conversation[before].get("content")):
                conversation[before] = conversation[before] | {"content": FORGOTTEN}
        elif (
            alone
            and message.get("role") == "user"
            and prompt
            and prompt in shown_text(message.get("content"))
        ):
            conversation[place] = message | {"content": FORGOTTEN}
            changed = True
    return conversation if changed else None


def _in(db: sqlite3.Connection, sql: str, numbers: Collection[int]) -> None:
    """One statement for many numbers."""
    ordered = sorted(numbers)
    for start in range(0, len(ordered), _MANY):
        some = ordered[start : start + _MANY]
        db.execute(sql.format(", ".join("?" * len(some))), some)


class Store(TurnStore, EpisodeTable, RaterTable, RuleTable, Runs, Forgetting):
    """One connection to the database. A context manager; not for use by two threads at once.

    Each call that writes is one transaction, and has reached the disk when it returns.
    """


def connect(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> Store:
    """Open the database of that path, made or brought up to date where needed.

    Raises ``StoreError`` when it is damaged, newer than this program, or locked for longer than ``busy_seconds``.
    """
    return Store(path, open_database(path, busy_seconds=busy_seconds))
