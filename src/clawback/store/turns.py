"""Turns: requests and answers."""

from __future__ import annotations

import json
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clawback.errors import NotFound
from clawback.store.connection import sqlite3
from clawback.store.database import OWN, RATED, now, readable
from clawback.store.picture_table import PictureTable, put_back, shows_pictures, taken_out

if TYPE_CHECKING:
    from clawback.records import Ending, Message, Turn

_TURN = """
    SELECT t.*, s.name AS session, b.messages, b.response, b.response_ids, b.response_logprobs,
           b.calls, b.next_state, b.thinking
    FROM turns t JOIN sessions s ON s.id = t.session_id JOIN bodies b ON b.turn_id = t.id
"""
_TURN_OF_RATED = _TURN.replace(
    "FROM turns t", "FROM feedback f CROSS JOIN turns t ON t.id = f.turn_id"
).replace(" JOIN s", " CROSS JOIN s")
SEARCHED = 5_000
"""Turns that one look of a search reads: what is found there is shown before the rest is read."""
FOLLOWED = 20_000
"""Newest turns that a judge is asked about."""


class Turns(PictureTable):
    def add_turn(self, turn: Turn, seen_at: float | None = None, stored: int = 0) -> Turn:
        """Store a turn and return it with its id. The same ``event_id`` again gives back the turn stored before.

        Args:
            seen_at: when its answer came before a person's eyes; by default now. Without a folder it has its session's.
            stored: how many of its first messages come from here, and are without secrets already.
        """
        with self._write():
            return self.turn(self.insert_turn(turn, seen_at, stored))

    def insert_turn(
        self, turn: Turn, seen_at: float | None = None, stored: int = 0, places: Iterable[bytes] = ()
    ) -> int:
        """``add_turn``; returns the number of the turn alone. ``places``: where its conversation is after it, by each wording of the
        answer. A place that two turns share belongs to the newer one."""
        turn, shown = self._clean_turn(turn, stored)
        with self._write() as db:
            if turn.event_id and (known := self._by_event(turn.event_id)):
                return known.id
            created = turn.created_at or now()
            db.execute(
                "INSERT INTO sessions (name, agent, cwd, created_at) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO NOTHING",
                (turn.session, turn.agent, turn.cwd, created),
            )
            number = db.execute(
                "INSERT INTO turns (session_id, agent, kind, model, version, cwd, event_id, created_at, seen_at, vouched, consent, licence, ending)"
                " SELECT id, ?, ?, ?, ?, coalesce(nullif(?, ''), cwd), ?, ?, ?, ?, ?, ?, ? FROM sessions WHERE name = ?",
                (
                    turn.agent,
                    turn.kind,
                    turn.model,
                    turn.version,
                    turn.cwd,
                    turn.event_id or None,
                    created,
                    now() if seen_at is None else seen_at,
                    turn.vouched,
                    turn.consent,
                    turn.licence,
                    turn.ending,
                    turn.session,
                ),
            ).lastrowid
            db.execute(
                "INSERT INTO bodies (turn_id, messages, prompt, response, response_ids, response_logprobs, calls, thinking)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    number,
                    json.dumps([dict(m) for m in turn.messages], ensure_ascii=False),
                    turn.prompt,
                    turn.response,
                    _pack("q", turn.response_ids),
                    _pack("d", turn.response_logprobs),
                    json.dumps([dict(c) for c in turn.calls], ensure_ascii=False) if turn.calls else None,
                    turn.thinking,
                ),
            )
            assert number is not None
            if shown:
                self._link_pictures(db, "turn", number, shown)
            db.executemany(
                "INSERT INTO places VALUES (?, ?) ON CONFLICT (place) DO UPDATE SET turn_id = excluded.turn_id",
                [(place, number) for place in places],
            )
            return number

    def _clean_turn(self, turn: Turn, stored: int) -> tuple[Turn, list[bytes]]:
        """Without secrets, and what was thought apart from what was said. Where one was in the answer its token ids go as well: training would learn it from
        them. And the pictures, which are stored apart."""
        from dataclasses import replace

        from clawback.thinking import split_thinking, without_end

        # Whoever brings a turn may hand on what its model thought as a part of what it said.
        inline, response = split_thinking(turn.response)
        response = without_end(response) if inline else response
        thinking = "\n".join(part for part in (turn.thinking, inline) if part)
        messages, shown = taken_out(turn.messages)
        answer = [response, thinking, list(turn.calls)]
        names = [turn.session, turn.model, turn.event_id, turn.licence]
        clean_answer, clean_names, new_messages = self.clean([answer, names, messages[stored:]])
        response, thinking, calls = clean_answer
        session, model, event_id, licence = clean_names
        if clean_answer != answer:
            turn = replace(turn, response_ids=None, response_logprobs=None)
        cleaned = replace(
            turn,
            session=session,
            model=model,
            event_id=event_id,
            licence=licence,
            messages=(*messages[:stored], *new_messages),
            response=response,
            thinking=thinking,
            calls=tuple(calls),
        )
        return cleaned, shown

    def _by_event(self, event_id: str) -> Turn | None:
        rows = self._read(_TURN + "WHERE t.event_id = ?", event_id)
        return self._with_pictures(rows)[0] if rows else None

    def turn_of_event(self, event_id: str) -> Turn | None:
        """The turn that this outside event brought."""
        return self._by_event(event_id)

    def turn(self, number: int) -> Turn:
        """Raises ``NotFound``."""
        rows = self._read(_TURN + "WHERE t.id = ?", number)
        if not rows:
            raise NotFound(f"There is no turn {number}. `clawback turns` lists them.")
        return self._with_pictures(rows)[0]

    def ending(self, number: int) -> Ending:
        """Why a turn's answer ended, "" where there is no such turn."""
        rows = self._read("SELECT ending FROM turns WHERE id = ?", number)
        ending: Ending = rows[0][0] if rows else ""
        return ending

    def turns_by_id(self, numbers: Collection[int]) -> dict[int, Turn]:
        """Those of these numbers that there are."""
        listed = json.dumps(sorted(set(numbers)))
        rows = self._read(f"{_TURN} WHERE t.id IN (SELECT value FROM json_each(?)) ORDER BY t.id", listed)
        return {turn.id: turn for turn in self._with_pictures(rows)}

    def turns_of(self, sessions: str) -> list[Turn]:
        """Those of all sessions whose names begin like this, oldest first."""
        last = sessions[:-1] + chr(ord(sessions[-1]) + 1)
        rows = self._read(
            f"{_TURN} WHERE t.session_id IN (SELECT id FROM sessions WHERE name >= ? AND name < ?) ORDER BY t.id",
            sessions,
            last,
        )
        return self._with_pictures(rows)

    def authors(self, numbers: Iterable[int]) -> dict[int, tuple[str, int | None]]:
        """Turn → its agent, and the version that answered if it was ours."""
        listed = json.dumps(sorted(set(numbers)))
        rows = self._read(
            "SELECT id, agent, version FROM turns WHERE id IN (SELECT value FROM json_each(?))", listed
        )
        return {row["id"]: (row["agent"], row["version"]) for row in rows}

    def _with_pictures(self, rows: Sequence[sqlite3.Row]) -> list[Turn]:
        """With their pictures."""
        seeing = [row["id"] for row in rows if shows_pictures(row["messages"])]
        parts = self._pictures_of("turn", seeing) if seeing else {}
        return [_turn(row, parts.get(row["id"])) for row in rows]

    def last_turn(self, session: str | None = None, cwd: str | None = None) -> Turn | None:
        """The main turn whose answer a person saw last, of one session or folder where named; without a session only of those
        that somebody vouches for."""
        sql = _TURN + "WHERE t.kind = 'main'"
        values: list[str] = []
        if session is None:
            sql += " AND t.vouched"
        if session is not None:
            sql += " AND t.session_id = (SELECT id FROM sessions WHERE name = ?)"
            values.append(session)
        if cwd is not None:
            sql += " AND t.cwd = ?"
            values.append(cwd)
        rows = self._read(sql + " ORDER BY t.seen_at DESC, t.id DESC LIMIT 1", *values)
        return _turn(rows[0]) if rows else None

    def last_unvouched(self) -> Turn | None:
        """The newest main turn that nobody vouches for, where it is newer than all that somebody does."""
        rows = self._read(
            _TURN
            + "WHERE t.kind = 'main' AND NOT t.vouched AND t.id > (SELECT coalesce(max(id), 0) FROM turns"
            " WHERE kind = 'main' AND vouched) ORDER BY t.seen_at DESC, t.id DESC LIMIT 1"
        )
        return _turn(rows[0]) if rows else None

    def seen(self, number: int) -> None:
        """A hook reports that the person sees this answer now: it belongs to their conversation, and is vouched for."""
        with self._write() as db:
            db.execute(
                "UPDATE turns SET seen_at = ?, kind = 'main', vouched = 1 WHERE id = ?", (now(), number)
            )

    def complete(self, number: int, response: str, ending: Ending = "") -> None:
        """Store the whole of an answer of which only a part was known, and why it ended where that is known.

        The tokens sampled for the part are removed.
        """
        with self._write() as db:
            db.execute(
                "UPDATE bodies SET response = ?, response_ids = NULL, response_logprobs = NULL WHERE turn_id = ?",
                (response, number),
            )
            if ending:
                db.execute("UPDATE turns SET ending = ? WHERE id = ?", (ending, number))

    def name_ending(self, number: int, ending: Ending) -> None:
        """Store why an answer ended, where that says more than what was known of it."""
        if not ending:
            return
        from clawback.endings import more_telling

        with self._write() as db:
            known = self.ending(number)
            if more_telling(known, ending) != known:
                db.execute("UPDATE turns SET ending = ? WHERE id = ?", (ending, number))

    def name_model(self, number: int, model: str) -> None:
        """Store which model answered, where nothing was known of it."""
        with self._write() as db:
            db.execute(
                "UPDATE turns SET model = ? WHERE id = ? AND model = ''", (self.clean(model)[:200], number)
            )

    def lacks_record(self, session: str, since: float = 0.0) -> bool:
        """Whether of one of the newest main turns of a session it is not known which model answered, or (of one made
        since then) why it ended."""
        rows = self._read(
            "SELECT model, ending, created_at FROM turns WHERE session_id = (SELECT id FROM sessions WHERE name = ?) AND kind = 'main'"
            " ORDER BY id DESC LIMIT 3",
            session,
        )
        return any(not row["model"] or (not row["ending"] and row["created_at"] >= since) for row in rows)

    def put_work(self, number: int, stored: Sequence[Message], work: Sequence[Message]) -> None:
        """Store the messages of a turn anew: those that are stored already, and the tool calls and results that followed them."""
        messages = [dict(m) for m in (*stored, *self.clean(list(work)))]
        with self._write() as db:
            if not shows_pictures(self._read("SELECT messages FROM bodies WHERE turn_id = ?", number)[0][0]):
                db.execute(
                    "UPDATE bodies SET messages = ? WHERE turn_id = ?",
                    (json.dumps(messages, ensure_ascii=False), number),
                )

    def drop_side(self, number: int) -> None:
        """Delete a side turn that nobody has said anything about."""
        with self._write() as db:
            db.execute(
                "DELETE FROM turns WHERE id = ? AND kind = 'side'"
                " AND NOT EXISTS (SELECT 1 FROM feedback f WHERE f.turn_id = turns.id OR f.other_turn_id = turns.id)",
                (number,),
            )

    def name_folder(self, session: str, cwd: str) -> None:
        """A session of which no folder was known is in this one, and so are its turns."""
        with self._write() as db:
            if db.execute("UPDATE sessions SET cwd = ? WHERE name = ? AND cwd = ''", (cwd, session)).rowcount:
                db.execute(
                    "UPDATE turns SET cwd = ? WHERE cwd = '' AND session_id = (SELECT id FROM sessions WHERE name = ?)",
                    (cwd, session),
                )

    def turns(
        self,
        limit: int = 20,
        ids: range | None = None,
        session: str | None = None,
        text: str | None = None,
        rated: bool | None = None,
        kind: str | None = None,
    ) -> list[Turn]:
        """Newest first, with marks in place of their pictures. ``ids``: only those; ``text``: in the prompt or the response; ``rated``: by somebody; judges
        and guesses do not count."""
        # Those that were rated are few: then they lead to the turns, not the turns to them.
        lead = bool(rated) and session is None
        number = "f.turn_id" if lead else "t.id"
        where: list[str] = ["1"]
        values: list[int | str] = []
        if ids is not None:
            where.append(f"{number} >= ? AND {number} < ?")
            values += [ids.start, ids.stop]
        if session is not None:
            where.append("t.session_id = (SELECT id FROM sessions WHERE name = ?)")
            values.append(session)
        if kind in ("main", "side"):
            where.append(f"t.kind = '{kind}'")  # written out, so that the index of that kind alone is used
        if text is not None:
            where.append("(instr(lower(b.prompt), lower(?)) OR instr(lower(b.response), lower(?)))")
            values += [text, text]
        said = f"f.turn_id = t.id AND f.undone_at IS NULL AND {RATED}"
        if rated is not None and not lead:
            where.append(f"{'' if rated else 'NOT '}EXISTS (SELECT 1 FROM feedback f WHERE {said})")
        chosen = " AND ".join(where)
        sql = (
            f"{_TURN_OF_RATED} WHERE {said} AND {chosen} GROUP BY f.turn_id ORDER BY f.turn_id DESC LIMIT ?"
            if lead
            else f"{_TURN} WHERE {chosen} ORDER BY t.id DESC LIMIT ?"
        )
        return [_turn(row) for row in self._read(sql, *values, limit)]

    def search(
        self,
        text: str,
        limit: int,
        before_id: int | None = None,
        rated: bool | None = None,
        kind: str | None = None,
        *,
        look: int = SEARCHED,
    ) -> tuple[list[Turn], int]:
        """Of the newest ``look`` turns under ``before_id`` those with this text, newest first; and where to go on, 0 at the end."""
        if before_id is None:
            before_id = int(self._read("SELECT coalesce(max(id), 0) + 1 FROM turns")[0][0])
        since = max(before_id - look, 0)
        matches = self.turns(limit, range(since, before_id), None, text, rated, kind)
        return matches, matches[-1].id if matches and len(matches) == limit else since if since > 1 else 0

    def followed_turns(
        self,
        source: str,
        limit: int,
        without: Collection[int] = (),
        last: Collection[int] = (),
        hints: bool = False,
    ) -> list[Turn]:
        """Main turns that somebody vouches for, that something came back to and that ``source`` has said nothing about (taken back or not), newest first.

        Only the newest are looked at: a judge need not read again and again what it has passed by. ``without``: not these; ``last``: these after all others; ``hints``: also those that a person corrected, whether anything
        came back or not, and none that a person has criticised.
        """
        said = "EXISTS (SELECT 1 FROM feedback f WHERE f.turn_id = t.id AND f.undone_at IS NULL AND f.kind = '{}' AND {})"
        known = "EXISTS (SELECT 1 FROM json_each(b.next_state))"
        newest = f"t.id > (SELECT coalesce(max(id), 0) FROM turns) - {FOLLOWED}"
        if hints:
            known = f"({known} OR {said.format('edit', OWN)}) AND NOT {said.format('critique', OWN)}"
        sql = (
            f"{_TURN} WHERE {newest} AND t.kind = 'main' AND t.vouched AND {known}"
            " AND NOT EXISTS (SELECT 1 FROM feedback f WHERE f.turn_id = t.id AND f.source = ?)"
            " AND t.id NOT IN (SELECT value FROM json_each(?))"
            " ORDER BY t.id IN (SELECT value FROM json_each(?)), t.id DESC LIMIT ?"
        )
        lists = [json.dumps(list(numbers)) for numbers in (without, last)]
        return [_turn(row) for row in self._read(sql, source, *lists, limit)]

    def drop_unrated(self, until: float) -> int:
        """Delete turns made before then of which nobody ever said anything; how many."""
        with self._write() as db:
            return db.execute(
                "DELETE FROM turns WHERE created_at < ? AND NOT EXISTS (SELECT 1 FROM feedback f WHERE f.turn_id = turns.id)"
                " AND NOT EXISTS (SELECT 1 FROM feedback f WHERE f.other_turn_id = turns.id)",
                (until,),
            ).rowcount

    def count_tokens(self, since: float) -> int:
        """Tokens of answers that were sampled here since then."""
        sql = "SELECT total(length(b.response_ids)) / 8 FROM turns t JOIN bodies b ON b.turn_id = t.id WHERE t.created_at >= ?"
        return int(self._read(sql, since)[0][0])

    def count_turns(self) -> int:
        return int(self._read("SELECT number FROM counts WHERE name = 'turns'")[0][0])


def _pack(code: str, numbers: Sequence[float] | None) -> bytes | None:
    return None if numbers is None else array(code, numbers).tobytes()


def _ids(data: bytes | None) -> tuple[int, ...] | None:
    return None if data is None else tuple(memoryview(data).cast("q"))


def _floats(data: bytes | None) -> tuple[float, ...] | None:
    return None if data is None else tuple(memoryview(data).cast("d"))


@readable
def _turn(row: sqlite3.Row, pictures: Mapping[int, Mapping[str, Any]] | None = None) -> Turn:
    messages: list[Message] = json.loads(row["messages"])
    if shows_pictures(row["messages"]):
        messages = put_back(messages, pictures)
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
        vouched=bool(row["vouched"]),
        consent=row["consent"],
        licence=row["licence"],
        thinking=row["thinking"],
        ending=row["ending"],
    )
