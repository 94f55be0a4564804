"""A home of every earlier schema is brought up to date with all that it holds, and works on."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from clawback import feedback, store
from clawback.paths import Home
from clawback.store import connection

TURNS = 4
RATINGS = {1: 1.0, 2: -1.0, 3: 5 / 9}
"""Turn → its rating as the first schema stored it; the third is an 8 of 10."""


def write_old_home(home: Home, version: int) -> None:
    """A database as the Clawback of that schema left it, with rows in the tables that every schema has."""
    home.create()
    with closing(sqlite3.connect(home.database, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        for file in sorted(connection.MIGRATIONS.glob("[0-9]*.sql"))[:version]:
            for statement in connection._statements(file.read_text("utf-8")):
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {version}")
        db.execute(
            "INSERT INTO sessions (id, name, agent, cwd, created_at) VALUES (1, 's', 'codex', '/w', 1.0)"
        )
        for turn in range(1, TURNS + 1):
            db.execute(
                "INSERT INTO turns (id, session_id, agent, kind, model, cwd, event_id, created_at) "
                "VALUES (?, 1, 'codex', 'main', 'm', '/w', ?, ?)",
                (turn, f"event-{turn}", 100.0 + turn),
            )
            messages = json.dumps([{"role": "user", "content": f"question {turn}"}])
            db.execute(
                "INSERT INTO bodies (turn_id, messages, prompt, response) VALUES (?, ?, ?, ?)",
                (turn, messages, f"question {turn}", f"ünswer {turn}"),
            )
        for turn, value in RATINGS.items():
            _add_feedback(db, turn, "rating", value)
        _add_feedback(db, 4, "edit", 0.0, "better")
        _add_feedback(db, 1, "preference", 1.0, other=2)
        _add_feedback(db, 3, "rating", -1.0, undone=1)
        db.execute("INSERT INTO state (key, value) VALUES ('mark', '7')")
        db.execute(
            "INSERT INTO prompts (agent, session, prompt_id, text, created_at) VALUES ('codex', 's2', 'p', 'waits', 104.0)"
        )
        db.execute(
            "INSERT INTO runs (id, status, base, base_revision, algorithm, recipe, seed, parent, created_at) "
            "VALUES (1, 'done', 'b', 'r', 'auto', '{}', 0, 0, 105.0)"
        )
        db.execute("INSERT INTO run_feedback (run_id, feedback_id, split) VALUES (1, 1, 'train')")
        db.execute("UPDATE versions SET status = 'retired' WHERE number = 0")
        db.execute(
            "INSERT INTO versions (number, status, base, parent, run_id, path, created_at) VALUES (1, 'live', 'b', 0, 1, 'versions/0001', 106.0)"
        )


def _add_feedback(
    db: sqlite3.Connection,
    turn: int,
    kind: str,
    value: float,
    text: str = "",
    *,
    other: int | None = None,
    undone: float | None = None,
) -> None:
    db.execute(
        "INSERT INTO feedback (turn_id, other_turn_id, kind, value, text, source, created_at, undone_at) VALUES (?, ?, ?, ?, ?, 'cli', ?, ?)",
        (turn, other, kind, value, text, 200.0 + turn + value, undone),
    )


@pytest.mark.parametrize("version", range(1, connection.newest()))
def test_a_home_of_an_earlier_schema_works_on(home: Home, version: int) -> None:
    write_old_home(home, version)
    with store.connect(home.database) as db:
        turns = [db.turn(number) for number in range(1, TURNS + 1)]
        assert [(t.prompt, t.response, t.agent, t.cwd) for t in turns] == [
            (f"question {n}", f"ünswer {n}", "codex", "/w") for n in range(1, TURNS + 1)
        ]
        assert [(f.turn_id, f.kind) for f in db.feedback()] == [
            (1, "rating"), (2, "rating"), (3, "rating"), (4, "edit"), (1, "preference"),
        ]  # fmt: skip
        assert {s.turn_id for s in feedback.samples(db)} == {1, 2, 3, 4}
        assert db.live().number == 1
        assert [run.id for run in db.runs()] == [1]
        assert db.kept_prompt("codex", "s2", "p").text == "waits"  # type: ignore[union-attr]
        assert db.get("mark") == 7
        feedback.rate(db, 4, -1.0)  # and goes on
        counts = db._read("SELECT total(good), total(bad), total(number) FROM rating_counts")[0]
        assert tuple(counts) == (2, 2, 4)
        assert db._read("PRAGMA foreign_key_check") == []
        assert db._read("PRAGMA integrity_check")[0][0] == "ok"
    copy = home.database.with_name(f"{home.database.name}.schema-{version}.backup")
    with closing(sqlite3.connect(copy)) as old:
        assert old.execute("PRAGMA user_version").fetchone()[0] == version
        assert old.execute("SELECT count(*) FROM feedback").fetchone()[0] == len(RATINGS) + 3
