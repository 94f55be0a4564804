"""People who were invited to rate, and the turns that each is asked about."""

# No `from __future__ import annotations`: named tuples would compile each of theirs, in every hook (capture/events.py).

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

from clawback.errors import NotFound, UsageError
from clawback.store.connection import sqlite3
from clawback.store.database import Base, now

Role = Literal["owner", "rater", "viewer"]
ROLES: tuple[Role, ...] = get_args(Role)
MARK = "cbr_"
"""How the tokens of invited people begin, so that one is known for what it is wherever it turns up."""
TOKEN = re.compile(rf"{MARK}[A-Za-z0-9_-]{{43}}")
ADDRESSED = re.compile(rf"(?:([a-z0-9][a-z0-9-]{{0,38}})\.)?({TOKEN.pattern})")
"""A token as a client shows it: on a server of several people's homes the home's name comes first (``ada.cbr_…``)."""
PREFIX = "rater:"
"""Before the name, in the ``source`` of what an invited person says."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")


class Invited(NamedTuple):
    """One person with a token of their own."""

    name: str
    role: Role
    created_at: float
    removed_at: float | None = None

    @property
    def source(self) -> str:
        """The source, and the person, of what they say."""
        return PREFIX + self.name


class Assigned(NamedTuple):
    """One turn that a rater is asked about; ``rated``: by that rater."""

    rater: str
    turn_id: int
    rated: bool


class RaterTable(Base):
    def invite(self, name: str, role: Role, *, again: bool = False) -> str:
        """The new token, which is told this once. ``again``: a new one for somebody who is known; the old one is good for nothing then.

        Raises ``UsageError`` for a name that cannot be used, or is taken.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot be a rater's name: small letters, digits, dots, dashes; 32 at most."
            )
        if role not in ROLES:
            raise UsageError(f"There is no role {role!r}: owner, rater or viewer.")
        import secrets  # loads hashlib, of which no hook has a use

        token = MARK + secrets.token_urlsafe(32)
        with self._write() as db:
            known = db.execute("SELECT removed_at FROM raters WHERE name = ?", (name,)).fetchone()
            if known is not None and known["removed_at"] is None and not again:
                raise UsageError(
                    f"{name} is invited already; --again makes a new token and ends the old one."
                )
            db.execute(
                "INSERT INTO raters VALUES (?, ?, ?, ?, NULL) ON CONFLICT (name) DO UPDATE SET"
                " role = excluded.role, token = excluded.token, removed_at = NULL",
                (name, role, _hash(token), now()),
            )
        return token

    def remove_rater(self, name: str) -> Invited:
        """Invalidate the person's token and remove their open assignments. Their ratings stay."""
        with self._write() as db:
            rater = self.rater(name)
            db.execute("UPDATE raters SET token = '', removed_at = ? WHERE name = ?", (now(), name))
            db.execute("DELETE FROM assignments WHERE rater = ? AND turn_id NOT IN"
                       " (SELECT turn_id FROM feedback WHERE person = ?)", (name, rater.source))  # fmt: skip
        return rater

    def rater(self, name: str) -> Invited:
        """Raises ``NotFound`` for somebody who is not invited."""
        rows = self._read("SELECT * FROM raters WHERE name = ? AND removed_at IS NULL", name)
        if not rows:
            raise NotFound(f"There is no rater {name!r}. `clawback raters list` names them.")
        return _invited(rows[0])

    def invited(self, *, removed: bool = False) -> list[Invited]:
        """By name."""
        rows = self._read(
            f"SELECT * FROM raters {'' if removed else 'WHERE removed_at IS NULL'} ORDER BY name"
        )
        return [_invited(row) for row in rows]

    def holder(self, token: str) -> Invited | None:
        """The person a token belongs to."""
        if not TOKEN.fullmatch(token):
            return None
        rows = self._read("SELECT * FROM raters WHERE token = ? AND removed_at IS NULL", _hash(token))
        return _invited(rows[0]) if rows else None

    # ------------------------------------------------------------------------------------------------ assignments

    def assign(self, pairs: Iterable[tuple[str, int]]) -> int:
        """Assign pairs of (rater, turn); returns how many are new."""
        with self._write() as db:
            before = db.execute("SELECT count(*) FROM assignments").fetchone()[0]
            for name, turn in pairs:
                self.rater(name)
                if not db.execute("SELECT 1 FROM turns WHERE id = ?", (turn,)).fetchone():
                    raise NotFound(f"There is no turn {turn}. `clawback turns` lists them.")
                db.execute("INSERT OR IGNORE INTO assignments VALUES (?, ?, ?)", (name, turn, now()))
            return int(db.execute("SELECT count(*) FROM assignments").fetchone()[0] - before)

    def assigned(self, rater: str | None = None, turn_id: int | None = None) -> list[Assigned]:
        """In the order in which they were given."""
        where, values = ["1"], []
        if rater is not None:
            where.append("a.rater = ?")
            values.append(rater)
        if turn_id is not None:
            where.append("a.turn_id = ?")
            values.append(str(turn_id))
        rows = self._read(
            f"SELECT a.rater, a.turn_id, EXISTS (SELECT 1 FROM feedback f WHERE f.undone_at IS NULL AND f.person = '{PREFIX}' || a.rater"
            " AND (f.turn_id = a.turn_id OR f.other_turn_id = a.turn_id)) AS rated"
            f" FROM assignments a WHERE {' AND '.join(where)} ORDER BY a.created_at, a.turn_id",
            *values,
        )
        return [Assigned(row["rater"], int(row["turn_id"]), bool(row["rated"])) for row in rows]


def _hash(token: str) -> str:
    from hashlib import sha256  # no hook has a use for it

    return sha256(token.encode()).hexdigest()


def _invited(row: sqlite3.Row) -> Invited:
    return Invited(row["name"], row["role"], row["created_at"], row["removed_at"])
