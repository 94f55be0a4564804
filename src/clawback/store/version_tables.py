"""The numbered policies, which one is live, and how its answers were received: surveys, uses, how long conversations lasted."""

# No `from __future__ import annotations`: named tuples would compile each of theirs, in every hook (capture/events.py).

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from clawback.errors import Busy, NotFound, StoreError, UsageError
from clawback.store.connection import sqlite3
from clawback.store.database import Base, now, readable

if TYPE_CHECKING:
    from clawback.records import Version


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


class Versions(Base):
    def next_version(self) -> int:
        """The number that the next version will have. Numbers are never used twice."""
        row = self._read(
            "SELECT max(coalesce((SELECT max(number) FROM versions), 0), ?) + 1", self.get("last_version", 0)
        )
        return int(row[0][0])

    def add_version(self, version: "Version") -> "Version":
        """Store a candidate (``number`` 0 gives it the next one) and return it."""
        with self._write() as db:
            number = version.number or self.next_version()
            db.execute(
                "INSERT INTO versions (number, status, base, base_revision, parent, run_id, path, created_at, report,"
                " prompt, origin) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    number,
                    version.status,
                    version.base,
                    version.base_revision,
                    version.parent,
                    version.run_id,
                    self._from_home(version.path),
                    version.created_at or now(),
                    None if version.report is None else json.dumps(dict(version.report)),
                    self.clean(version.prompt),
                    json.dumps(self.clean(dict(version.origin)), ensure_ascii=False),
                ),
            )
            self.set("last_version", number)
            return self.version(number)

    def version(self, number: int) -> "Version":
        """Raises ``NotFound``."""
        rows = self._read("SELECT * FROM versions WHERE number = ?", number)
        if not rows:
            raise NotFound(f"There is no version {number}. `clawback versions` lists them.")
        return self._version(rows[0])

    def versions(self, newest: int = -1) -> list["Version"]:
        """Oldest first; the first is version 0, the base model. ``newest``: only so many of the last."""
        rows = self._read("SELECT * FROM versions ORDER BY number DESC LIMIT ?", newest)
        return [self._version(row) for row in reversed(rows)]

    def live(self) -> "Version":
        """The version that answers now. There always is one."""
        rows = self._read("SELECT * FROM versions WHERE status = 'live'")
        if not rows:
            raise StoreError(
                f"The database {self.path} is damaged: no version is live. `clawback data salvage` mends it."
            )
        return self._version(rows[0])

    def has_prompts(self) -> bool:
        """Whether any version has a prompt."""
        return bool(self._read("SELECT 1 FROM versions WHERE prompt != '' LIMIT 1"))

    def waiting(self, *, prompts: bool = False) -> tuple[int, int] | None:
        """The newest version that the gate has not decided about, and how many of its questions (``count_gate_answers``) have to be answered before
        it is judged again; None where all is decided. ``prompts``: of those that a search for a prompt made, or else of those that were trained."""
        kind = "coalesce((SELECT r.kind FROM runs r WHERE r.id = versions.run_id), 'prompt')"
        rows = self._read(
            "SELECT number, json_extract(report, '$.again_at') AS wanted FROM versions"
            f" WHERE status = 'candidate' AND wanted > 0 AND {kind} {'=' if prompts else '!='} 'prompt' ORDER BY number DESC LIMIT 1"
        )
        return (int(rows[0]["number"]), int(rows[0]["wanted"])) if rows else None

    def count_gate_answers(self, version: int) -> int:
        """How often the gate's questions about a version were answered: comparisons, and answers that were rated by themselves."""
        rows = self._read(
            "SELECT count(DISTINCT f.turn_id) FROM sessions s CROSS JOIN turns t ON t.session_id = s.id CROSS JOIN feedback f ON f.turn_id = t.id"
            " WHERE s.name >= ? AND s.name < ? AND f.undone_at IS NULL AND f.kind IN ('preference', 'rating')",
            f"gate:{version}:",
            f"gate:{version};",
        )
        return int(rows[0][0])

    def set_report(self, number: int, report: Mapping[str, object]) -> None:
        """Keep what the gate found, whether it passed or not."""
        with self._write() as db:
            db.execute("UPDATE versions SET report = ? WHERE number = ?", (json.dumps(dict(report)), number))

    def reject(self, number: int) -> None:
        """A candidate that the gate did not pass. Raises ``UsageError`` for any other version."""
        with self._write() as db:
            changed = db.execute(
                "UPDATE versions SET status = 'rejected' WHERE number = ? AND status = 'candidate'", (number,)
            )
            if not changed.rowcount:
                raise UsageError(f"Version {number} is not a candidate, so it cannot be rejected.")

    def reopen(self, number: int) -> None:
        """A rejected version that somebody wants all the same is a candidate again."""
        with self._write() as db:
            db.execute(
                "UPDATE versions SET status = 'candidate' WHERE number = ? AND status = 'rejected'", (number,)
            )

    def promote(self, number: int) -> "Version":
        """Make a version live and retire the one that was, in one transaction. Raises ``NotFound``."""
        with self._write() as db:
            self.version(number)
            db.execute(
                "UPDATE versions SET status = 'retired' WHERE status = 'live' AND number != ?", (number,)
            )
            db.execute(
                "UPDATE versions SET status = 'live', promoted_at = ? WHERE number = ?", (now(), number)
            )
            return self.version(number)

    def add_candidate(self, version: "Version") -> "Version":
        """Enter the version that a run made, and name it in the run, in one transaction."""
        with self._write() as db:
            candidate = self.add_version(version)
            db.execute("UPDATE runs SET version = ? WHERE id = ?", (candidate.number, version.run_id))
            return candidate

    def accept_sentences(self, sentences: Iterable[str], version: int) -> None:
        """Sentences of a version's prompt that the person has seen and said yes to."""
        with self._write() as db:
            db.executemany(
                "INSERT OR IGNORE INTO accepted_sentences VALUES (?, ?, ?)",
                [(self.clean(sentence), version, now()) for sentence in sentences],
            )

    def accepted_sentences(self) -> set[str]:
        """Those of all versions."""
        return {str(row[0]) for row in self._read("SELECT sentence FROM accepted_sentences")}

    def add_survey(self, version: int, score: int, person: str = "", text: str = "") -> None:
        """How somebody found a version after using it: 1 to 5. Raises ``NotFound``, ``UsageError``."""
        if not 1 <= score <= 5:
            raise UsageError(f"A survey's score is from 1 to 5, not {score}.")
        with self._write() as db:
            self.version(version)
            db.execute(
                "INSERT INTO surveys (version, score, person, text, created_at) VALUES (?, ?, ?, ?, ?)",
                (version, score, self.clean(person), self.clean(text), now()),
            )

    def surveys(self) -> dict[int, list[int]]:
        """Version → its scores, oldest first."""
        scores: dict[int, list[int]] = {}
        for row in self._read("SELECT version, score FROM surveys ORDER BY id"):
            scores.setdefault(int(row[0]), []).append(int(row[1]))
        return scores

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

    def forget_training(self, *, feedback: bool) -> None:
        """Remove every run and every version but the base model, which must be live; with ``feedback`` all that was
        said about turns as well. Numbers are not used again. Raises ``Busy`` while a run is under way."""
        with self._write() as db:
            if db.execute("SELECT 1 FROM runs WHERE status = 'running'").fetchone():
                raise Busy("A run is training. Wait for it, or stop it first: `clawback status` shows it.")
            db.execute("UPDATE versions SET run_id = NULL, parent = NULL")
            db.execute("UPDATE runs SET version = NULL, parent = 0")
            db.execute("DELETE FROM runs")
            db.execute("DELETE FROM versions WHERE number != 0")
            db.execute("DELETE FROM state WHERE key != 'last_version'")
            if feedback:
                db.execute("DELETE FROM feedback")

    @readable
    def _version(self, row: sqlite3.Row) -> "Version":
        from clawback.records import Version  # hooks that make none need not load it

        return Version(
            number=row["number"],
            status=row["status"],
            base=row["base"],
            base_revision=row["base_revision"],
            parent=row["parent"],
            run_id=row["run_id"],
            path=str(self.path.parent / row["path"]) if row["path"] else "",
            created_at=row["created_at"],
            promoted_at=row["promoted_at"],
            report=None if row["report"] is None else json.loads(row["report"]),
            stale=bool(row["stale"]),
            prompt=row["prompt"],
            origin=json.loads(row["origin"]),
        )

    def _from_home(self, path: str) -> str:
        """A path as it is kept: from the folder of the database, so that a home may be moved or copied."""
        place, home = Path(path), self.path.parent
        return str(place.relative_to(home)) if path and place.is_relative_to(home) else path
