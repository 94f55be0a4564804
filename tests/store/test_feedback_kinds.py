"""Kinds of feedback are a list in records alone; the database of an older release loses its own list of them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from clawback import store
from clawback.errors import UsageError
from clawback.records import FEEDBACK_KINDS, Feedback, Turn
from clawback.store import connection

TURN = Turn(session="s", messages=({"role": "user", "content": "Hi"},), response="Yes")
MIGRATION = "feedback_kinds.sql"


def test_every_kind_is_stored_and_no_other(tmp_path: Path) -> None:
    with store.connect(tmp_path / "clawback.db") as db:
        turn = db.add_turn(TURN)
        for kind in FEEDBACK_KINDS:
            assert db.add_feedback(Feedback(turn.id, kind, 1.0)).kind == kind  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="no kind of feedback `applause`"):
            db.add_feedback(Feedback(turn.id, "applause", 1.0))  # type: ignore[arg-type]


def test_a_new_kind_needs_no_migration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file of an older release, while another connection of it is open."""
    older, path = tmp_path / "migrations", tmp_path / "clawback.db"
    older.mkdir()
    number = next(int(file.name[:4]) for file in connection.MIGRATIONS.glob(f"*_{MIGRATION}"))
    for file in connection.MIGRATIONS.glob("*.sql"):
        if int(file.name[:4]) < number:
            (older / file.name).write_text(file.read_text())
    with monkeypatch.context() as patched:
        patched.setattr(connection, "MIGRATIONS", older)
        with store.connect(path) as db:
            turn = db.add_turn(TURN)
            db.add_feedback(Feedback(turn.id, "rating", 1.0))
    monkeypatch.setattr("clawback.records.FEEDBACK_KINDS", (*FEEDBACK_KINDS, "applause"))
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT count(*) FROM feedback").fetchone() == (1,)
        with store.connect(path) as db:
            db.add_feedback(Feedback(turn.id, "applause", 1.0))  # type: ignore[arg-type]
            assert [opinion.kind for opinion in db.feedback()] == ["rating", "applause"]
            assert db.integrity() == []
        added = "INSERT INTO feedback (turn_id, kind, value, source, created_at) VALUES (?, 'applause', 1, 'x', 1)"
        assert other.execute(added, (turn.id,)).rowcount == 1
        assert other.execute("SELECT good FROM rating_counts").fetchall() == [(1,)]
    other.close()
