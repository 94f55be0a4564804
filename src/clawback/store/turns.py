"""Sessions, turns, and prompts that wait for their answer."""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from clawback.errors import NotFound
from clawback.store.base import OWN, Base, now

if TYPE_CHECKING:
    from clawback.records import Message, Turn

_TURN = """
    SELECT t.*, s.name AS session, b.messages, b.response, b.response_ids, b.response_logprobs,
           b.calls, b.next_state
    FROM turns t JOIN sessions s ON s.id = t.session_id JOIN bodies b ON b.turn_id = t.id
"""


class Turns(Base):
    def add_turn(self, turn: Turn) -> Turn:
        """Store a turn and return it with its id. The same ``event_id`` again gives back the turn stored before."""
        with self._write() as db:
            if turn.event_id and (known := self._by_event(turn.event_id)):
                return known
            created = turn.created_at or now()
            db.execute(
                "INSERT INTO sessions (name, agent, cwd, created_at) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO NOTHING",
                (turn.session, turn.agent, turn.cwd, created),
            )
            number = db.execute(
                "INSERT INTO turns (session_id, agent, kind, model, version, cwd, event_id, created_at)"
                " SELECT id, ?, ?, ?, ?, ?, ?, ? FROM sessions WHERE name = ?",
                (
                    turn.agent,
                    turn.kind,
                    turn.model,
                    turn.version,
                    turn.cwd,
                    turn.event_id or None,
                    created,
                    turn.session,
                ),
            ).lastrowid
            db.execute(
                "INSERT INTO bodies (turn_id, messages, prompt, response, response_ids, response_logprobs, calls)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    number,
                    json.dumps([dict(m) for m in turn.messages], ensure_ascii=False),
                    turn.prompt,
                    turn.response,
                    _pack("q", turn.response_ids),
                    _pack("d", turn.response_logprobs),
                    json.dumps([dict(c) for c in turn.calls], ensure_ascii=False) if turn.calls else None,
                ),
            )
            assert number is not None
            return self.turn(number)

    def _by_event(self, event_id: str) -> Turn | None:
        rows = self._read(_TURN + "WHERE t.event_id = ?", event_id)
        return _turn(rows[0]) if rows else None

    def turn(self, number: int) -> Turn:
        """Raises ``NotFound``."""
        rows = self._read(_TURN + "WHERE t.id = ?", number)
        if not rows:
            raise NotFound(f"There is no turn {number}. `clawback turns` lists them.")
        return _turn(rows[0])

    def last_turn(self, session: str | None = None, cwd: str | None = None) -> Turn | None:
        """The newest main turn, of one session or folder where named."""
        sql = _TURN + "WHERE t.kind = 'main'"
        values: list[str] = []
        if session is not None:
            sql += " AND t.session_id = (SELECT id FROM sessions WHERE name = ?)"
            values.append(session)
        if cwd is not None:
            sql += " AND t.cwd = ?"
            values.append(cwd)
        rows = self._read(sql + " ORDER BY t.id DESC LIMIT 1", *values)
        return _turn(rows[0]) if rows else None

    def turns(
        self,
        limit: int = 20,
        before: int | None = None,
        session: str | None = None,
        text: str | None = None,
        rated: bool | None = None,
        kind: str | None = None,
    ) -> list[Turn]:
        """Newest first. ``before``: only ids under it; ``text``: in the prompt or the response; ``rated``: by somebody, not a judge."""
        where: list[str] = ["1"]
        values: list[int | str] = []
        if before is not None:
            where.append("t.id < ?")
            values.append(before)
        if session is not None:
            where.append("s.name = ?")
            values.append(session)
        if kind is not None:
            where.append("t.kind = ?")
            values.append(kind)
        if text is not None:
            where.append("(instr(lower(b.prompt), lower(?)) OR instr(lower(b.response), lower(?)))")
            values += [text, text]
        if rated is not None:
            exists = (
                f"EXISTS (SELECT 1 FROM feedback f WHERE f.turn_id = t.id AND f.undone_at IS NULL AND {OWN})"
            )
            where.append(exists if rated else f"NOT {exists}")
        sql = f"{_TURN} WHERE {' AND '.join(where)} ORDER BY t.id DESC LIMIT ?"
        return [_turn(row) for row in self._read(sql, *values, limit)]

    def followed_turns(
        self,
        source: str,
        limit: int,
        without: Collection[int] = (),
        last: Collection[int] = (),
        hints: bool = False,
    ) -> list[Turn]:
        """Main turns that something came back to and that ``source`` has said nothing about (taken back or not), newest first.

        ``without``: not these; ``last``: these after all others; ``hints``: also those that a person corrected, whether anything
        came back or not, and none that a person has criticised.
        """
        said = "EXISTS (SELECT 1 FROM feedback f WHERE f.turn_id = t.id AND f.undone_at IS NULL AND f.kind = '{}' AND {})"
        known = "EXISTS (SELECT 1 FROM json_each(b.next_state))"
        if hints:
            known = f"({known} OR {said.format('edit', OWN)}) AND NOT {said.format('critique', OWN)}"
        sql = (
            f"{_TURN} WHERE t.kind = 'main' AND {known}"
            " AND NOT EXISTS (SELECT 1 FROM feedback f WHERE f.turn_id = t.id AND f.source = ?)"
            " AND t.id NOT IN (SELECT value FROM json_each(?))"
            " ORDER BY t.id IN (SELECT value FROM json_each(?)), t.id DESC LIMIT ?"
        )
        lists = [json.dumps(list(numbers)) for numbers in (without, last)]
        return [_turn(row) for row in self._read(sql, source, *lists, limit)]

    def drop_unrated(self, before: float) -> int:
        """Delete turns made before then of which nobody ever said anything; how many."""
        with self._write() as db:
            return db.execute(
                "DELETE FROM turns WHERE created_at < ? AND id NOT IN (SELECT turn_id FROM feedback)"
                " AND id NOT IN (SELECT other_turn_id FROM feedback WHERE other_turn_id IS NOT NULL)",
                (before,),
            ).rowcount

    def count_turns(self) -> int:
        return int(self._read("SELECT count(*) FROM turns")[0][0])

    def put_prompt(self, agent: str, session: str, prompt_id: str, text: str) -> None:
        """Keep a prompt until its answer comes. Those older than a day go, but for the newest 1,000."""
        with self._write() as db:
            db.execute(
                "INSERT INTO prompts VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET text = excluded.text, created_at = excluded.created_at",
                (agent, session, prompt_id, text, now()),
            )
            db.execute(
                "DELETE FROM prompts WHERE rowid <= (SELECT max(rowid) FROM prompts) - 1000 AND created_at < ?",
                (now() - 86_400,),
            )

    def prompt(self, agent: str, session: str, prompt_id: str = "") -> str | None:
        """The prompt that was kept under that name, or the newest of the session. None: there is none.

        It stays: a hook that fires twice must find it again.
        """
        rows = self._read(
            "SELECT text FROM prompts WHERE agent = ? AND session = ? AND (prompt_id = ? OR ? = '')"
            " ORDER BY created_at DESC, rowid DESC LIMIT 1",
            agent,
            session,
            prompt_id,
            prompt_id,
        )
        return str(rows[0]["text"]) if rows else None

    def drop_prompt(self, agent: str, session: str, prompt_id: str) -> None:
        """No answer is coming to it."""
        with self._write() as db:
            db.execute(
                "DELETE FROM prompts WHERE agent = ? AND session = ? AND prompt_id = ?",
                (agent, session, prompt_id),
            )

    def newest_prompt(self, agent: str, session: str) -> tuple[str, str] | None:
        """Id and text of the last prompt of a session, answered or not."""
        rows = self._read(
            "SELECT prompt_id, text FROM prompts WHERE agent = ? AND session = ?"
            " ORDER BY created_at DESC, rowid DESC LIMIT 1",
            agent,
            session,
        )
        return (str(rows[0][0]), str(rows[0][1])) if rows else None


def _pack(code: str, numbers: Sequence[float] | None) -> bytes | None:
    return None if numbers is None else array(code, numbers).tobytes()


def _ids(data: bytes | None) -> tuple[int, ...] | None:
    return None if data is None else tuple(memoryview(data).cast("q"))


def _floats(data: bytes | None) -> tuple[float, ...] | None:
    return None if data is None else tuple(memoryview(data).cast("d"))


def _turn(row: sqlite3.Row) -> Turn:
    messages: list[Message] = json.loads(row["messages"])
    from clawback.records import Turn  # hooks that make none need not load it

    return Turn(
        id=row["id"],
        session=row["session"],
        messages=tuple(messages),
        response=row["response"],
        agent=row["agent"],
        kind=row["kind"],
        model=row["model"],
        version=row["version"],
        cwd=row["cwd"],
        event_id=row["event_id"] or "",
        created_at=row["created_at"],
        response_ids=_ids(row["response_ids"]),
        response_logprobs=_floats(row["response_logprobs"]),
        calls=tuple(json.loads(row["calls"])) if row["calls"] else (),
        next_state=tuple(json.loads(row["next_state"])) if row["next_state"] else (),
    )
