"""The store is the one door for secrets, and what a damaged or read-only disk does to it is said in sentences."""

from __future__ import annotations

import os
import random
import sqlite3
from pathlib import Path

import pytest

from clawback import feedback, store
from clawback.capture import text_rows
from clawback.errors import ClawbackError, StoreError
from clawback.extensions import importers
from clawback.records import Feedback, Turn

KEY = "ghp" + "_" + "a1B2" * 9


def turn(**more: object) -> Turn:
    given: dict[str, object] = {
        "session": "s",
        "messages": ({"role": "user", "content": "Hello?"},),
        "response": "Hi.",
    }
    return Turn(**(given | more))  # type: ignore[arg-type]


def test_no_text_reaches_the_disk_with_a_secret_in_it(tmp_path: Path) -> None:
    path = tmp_path / "clawback.db"
    with store.connect(path) as db:
        said = ({"role": "user", "content": [{"type": "text", "text": KEY}], KEY: KEY},)
        made = db.add_turn(
            turn(
                session=f"s:{KEY}",
                messages=said,
                response=f"It is {KEY}.",
                model=KEY,
                calls=({"id": "1", "name": "f", "arguments": KEY},),
            )
        )
        feedback.rate(db, made.id, 1, note=KEY, source=f"web:{KEY}")
        feedback.edit(db, made.id, f"Not {KEY}")
        feedback.critique(db, made.id, f"leaks {KEY}")
        db.put_next_state(made.id, [{"role": "user", "content": KEY}])
        db.put_early("place", Feedback(0, "rating", 1.0, KEY))
        db.put_post("place", made.id)
        db.add_survey(0, 5, KEY, KEY)
    raw = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert KEY.encode() not in raw


def test_where_a_secret_was_in_an_answer_its_tokens_go_as_well(tmp_path: Path) -> None:
    with store.connect(tmp_path / "clawback.db") as db:
        kept = db.add_turn(turn(response_ids=(1, 2), response_logprobs=(-0.5, -0.25)))
        assert (kept.response_ids, kept.response_logprobs) == ((1, 2), (-0.5, -0.25))
        bare = db.add_turn(
            turn(response=f"It is {KEY}.", response_ids=(1, 2), response_logprobs=(-0.5, -0.25))
        )
        assert (bare.response, bare.response_ids, bare.response_logprobs) == ("It is [redacted].", None, None)


def test_who_wants_everything_kept_gets_it(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[privacy]\nredact = false\n")
    with store.connect(tmp_path / "clawback.db") as db:
        assert db.add_turn(turn(response=KEY)).response == KEY


def test_flipped_bits_are_told_of_in_a_sentence(tmp_path: Path) -> None:
    """Whatever bit of the file has turned, reading it answers or raises one of our own errors."""
    path = tmp_path / "clawback.db"
    with store.connect(path) as db:
        for n in range(20):
            made = db.add_turn(turn(response=f"Answer {n}.", response_ids=(1, 2, 3)))
            feedback.rate(db, made.id, 1)
    whole = path.read_bytes()
    chance = random.Random(3)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(8):
            data[chance.randrange(100, len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        try:
            with store.connect(path) as db:
                (
                    db.turns(limit=30),
                    db.feedback(),
                    db.versions(),
                    db.live(),
                    db.runs(limit=5),
                    db.last_turn(),
                    db.sessions(),
                )
        except ClawbackError as error:
            assert str(error).endswith((".", ")", "."))


def test_a_home_that_cannot_be_written_can_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "clawback.db"
    with store.connect(path) as db:
        db.add_turn(turn())
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with store.connect(path) as db:
        assert [t.response for t in db.turns()] == ["Hi."]
        with pytest.raises(StoreError, match="read-only"):
            db.add_turn(turn(session="t"))


def test_a_home_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made"):
        store.connect(tmp_path / "file" / "clawback.db")


def test_an_import_goes_on_past_a_bad_line(tmp_path: Path) -> None:
    file = tmp_path / "turns.jsonl"
    lines = [
        '{"prompt": "a", "response": "1"}',
        '{"prompt": "b", "response": "\\ud800"}',
        "{",
        '{"prompt": "c", "response": "3"}',
    ]
    file.write_text("\n".join(lines) + "\n")
    with store.connect(tmp_path / "clawback.db") as db:
        report = importers.import_file(db, file)
        assert [t.response for t in db.turns()] == ["3", "1"]
    assert [p.split(":")[0] for p in report.problems] == ["line 2", "line 3"]


def test_an_import_reads_no_line_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_rows, "LONGEST", 1000)
    file = tmp_path / "turns.jsonl"
    file.write_text("x" * 5000 + '\n{"prompt": "c", "response": "3"}\n')
    with store.connect(tmp_path / "clawback.db") as db:
        assert len(importers.import_file(db, file).problems) == 1
        assert [t.response for t in db.turns()] == ["3"]
        assert len(importers.import_file(db, Path("/dev/zero")).problems) == 1


def test_a_newer_database_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "clawback.db"
    sqlite3.connect(path).execute("PRAGMA user_version = 1")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(StoreError, match="cannot be brought up to date"):
        store.connect(path)
