"""How answers were used, and how long conversations lasted: the implicit measures of an A/B comparison."""

# No `from __future__ import annotations`: named tuples would compile each of theirs, in every hook (capture/events.py).

from typing import Literal, NamedTuple, get_args

from clawback.errors import NotFound, UsageError
from clawback.store.base import Base, now

Use = Literal["click", "copy", "accept"]
USES: tuple[Use, ...] = get_args(Use)


class Engagement(NamedTuple):
    """One conversation that one version answered."""

    version: int
    turns: int
    used: int
    """Turns of which a link was opened, or that were copied or taken over."""
    again: int
    """Turns after which the same was asked again."""
    seconds: float
    """From the first answer to the last."""


class UsageTable(Base):
    def add_use(self, turn_id: int, kind: Use) -> None:
        """Raises ``NotFound``, ``UsageError``."""
        if kind not in USES:
            raise UsageError("kind is click, copy or accept.")
        with self._write() as db:
            if not db.execute("SELECT 1 FROM turns WHERE id = ?", (turn_id,)).fetchone():
                raise NotFound(f"There is no turn {turn_id}. `clawback turns` lists them.")
            db.execute(
                "INSERT INTO uses (turn_id, kind, created_at) VALUES (?, ?, ?)", (turn_id, kind, now())
            )

    def engagement(self, since: float = 0.0) -> list[Engagement]:
        """Conversations that began after ``since`` and that one version alone answered, oldest first."""
        rows = self._read(
            """
            SELECT min(t.version) AS version, count(*) AS turns, max(t.created_at) - min(t.created_at) AS seconds,
                   sum(EXISTS (SELECT 1 FROM uses u WHERE u.turn_id = t.id)) AS used,
                   sum(EXISTS (SELECT 1 FROM feedback f WHERE f.turn_id = t.id AND f.kind = 'implicit' AND f.other_turn_id IS NULL AND f.undone_at IS NULL)) AS again
            FROM sessions s JOIN turns t ON t.session_id = s.id
            WHERE s.created_at > ? AND t.kind = 'main' AND t.version IS NOT NULL
            GROUP BY s.id HAVING min(t.version) = max(t.version) ORDER BY s.id
            """,
            since,
        )
        return [Engagement(r["version"], r["turns"], r["used"], r["again"], r["seconds"]) for r in rows]

    def surveys_over_time(self) -> list[tuple[float, int, int]]:
        """(when, version, score), oldest first."""
        rows = self._read("SELECT created_at, version, score FROM surveys ORDER BY created_at, id")
        return [(row[0], int(row[1]), int(row[2])) for row in rows]
