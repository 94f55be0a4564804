"""Trust: nothing acknowledged is lost, nothing is stored twice, and no file is harmed."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from clawback import store
from clawback.errors import Busy, NotFound, StoreError, UsageError
from clawback.paths import Home
from clawback.records import Feedback, Run, Turn, Version
from clawback.store import connection
from clawback.store.pending import PendingPrompt


def a_turn(number: int = 0, **more: object) -> Turn:
    messages = ({"role": "user", "content": f"question {number}"},)
    return Turn(session="s", messages=messages, response=f"answer {number}", **more)  # type: ignore[arg-type]


def a_run(**more: object) -> Run:
    fields = {
        "base": "b",
        "base_revision": "r",
        "algorithm": "auto",
        "recipe": {"x": 1},
        "seed": 0,
        "parent": 0,
    }
    return Run(**(fields | more))  # type: ignore[arg-type]


def test_a_turn_comes_back_as_it_was_stored(home: Home) -> None:
    turn = Turn(
        session="s",
        messages=(
            {"role": "system", "content": "ü"},
            {"role": "user", "content": [{"type": "text", "text": "hi\0🦦"}]},
        ),
        response="yo",
        agent="a",
        kind="main",
        model="m",
        version=3,
        cwd="/x",
        event_id="e",
        created_at=12.5,
        response_ids=(1, 2**40),
        response_logprobs=(-0.1, -1e-30),
    )
    with store.connect(home.database) as db:
        stored = db.add_turn(turn)
    with store.connect(home.database) as db:
        again = db.turn(stored.id)
    assert again == stored
    assert {f: getattr(again, f) for f in Turn.__slots__ if f != "id"} == {
        f: getattr(turn, f) for f in Turn.__slots__ if f != "id"
    }


def test_the_same_event_is_one_turn(home: Home) -> None:
    with store.connect(home.database) as db:
        assert db.add_turn(a_turn(1, event_id="e")).id == db.add_turn(a_turn(2, event_id="e")).id
        assert db.count_turns() == 1


def test_files_are_their_owners_alone(home: Home) -> None:
    with store.connect(home.database) as db:
        db.add_turn(a_turn())
        assert home.root.stat().st_mode & 0o777 == 0o700
        for file in home.root.iterdir():
            assert file.stat().st_mode & 0o077 == 0, file


def test_lists_page_search_and_filter(home: Home) -> None:
    with store.connect(home.database) as db:
        for number in range(1, 31):
            db.add_turn(a_turn(number))
        db.add_feedback(Feedback(7, "rating", 1.0))
        assert [t.id for t in db.turns(limit=3)] == [30, 29, 28]
        assert [t.id for t in db.turns(limit=2, ids=range(28))] == [27, 26]
        assert [t.id for t in db.turns(text="ANSWER 12")] == [12]
        assert [t.id for t in db.turns(rated=True)] == [7]
        assert len(db.turns(limit=50, rated=False)) == 29


def test_the_newest_turn_is_that_of_the_session_or_folder(home: Home) -> None:
    with store.connect(home.database) as db:
        assert db.last_turn() is None
        first = db.add_turn(a_turn(1, cwd="/a"))
        db.add_turn(Turn(session="other", messages=(), response="x", cwd="/b"))
        db.add_turn(Turn(session="s", messages=(), response="title", kind="side", cwd="/a"))
        assert db.last_turn(session="s") == first
        assert db.last_turn(cwd="/a") == first
        assert db.last_turn(cwd="/c") is None


def test_exactly_one_version_is_live_and_the_base_stays(home: Home) -> None:
    with store.connect(home.database) as db:
        for _ in range(3):
            db.add_version(Version(0, "candidate", "b", parent=0))
        db.promote(2)
        db.promote(3)
        db.reject(1)
        assert [(v.number, v.status) for v in db.versions()] == [
            (0, "retired"), (1, "rejected"), (2, "retired"), (3, "live"),
        ]  # fmt: skip
        with pytest.raises(UsageError):
            db.reject(3)
        with pytest.raises(NotFound):
            db.promote(9)
        assert db.live().number == 3
        for harm in ("DELETE FROM versions WHERE number = 0", "UPDATE versions SET status = 'rejected' WHERE number = 0",
                     "UPDATE versions SET status = 'live'"):  # fmt: skip
            with pytest.raises(sqlite3.IntegrityError):
                db._db.execute(harm)


def test_numbers_of_versions_are_never_used_again(home: Home) -> None:
    with store.connect(home.database) as db:
        run = db.start_run(a_run())
        made = db.add_candidate(Version(0, "candidate", "b", parent=0, run_id=run.id))
        assert db.run(run.id).version == made.number == 1
        with pytest.raises(Busy):
            db.forget_training(feedback=False)
        db.update_run(run.id, status="done")
        db.forget_training(feedback=False)
        assert [v.number for v in db.versions()] == [0]
        assert db.runs() == []
        assert db.next_version() == 2


def test_fresh_feedback_is_what_no_finished_run_has_used(home: Home) -> None:
    with store.connect(home.database) as db:
        for number in range(4):
            turn = db.add_turn(a_turn(number))
            db.add_feedback(Feedback(turn.id, "rating", 1.0))
        db.add_feedback(Feedback(1, "critique", text="long"))
        assert db.count_fresh() == 4
        run = db.start_run(a_run(train_ids=(1, 2), held_out_ids=(3,)))
        with pytest.raises(Busy):
            db.start_run(a_run())
        db.update_run(run.id, status="failed", error="x")
        assert db.count_fresh() == 4, "a failed run has used nothing"
        run = db.start_run(a_run(train_ids=(1, 2), held_out_ids=(3,)))
        db.update_run(run.id, status="done", progress={"phase": "done"})
        assert db.count_fresh() == 1
        assert db.splits([1, 2, 3]) == {1: "train", 2: "train", 3: "held_out"}
        found = db.run(run.id)
        assert (found.train_ids, found.held_out_ids, found.recipe, found.status) == (
            (1, 2),
            (3,),
            {"x": 1},
            "done",
        )
        assert found.finished_at is not None


def test_undoing_marks_what_learned_from_it_and_all_its_descendants(home: Home) -> None:
    with store.connect(home.database) as db:
        turn = db.add_turn(a_turn())
        used = db.add_feedback(Feedback(turn.id, "rating", 1.0))
        kept_out = db.add_feedback(Feedback(turn.id, "rating", 1.0, source="web"))
        run = db.start_run(a_run(train_ids=(used.id,), held_out_ids=(kept_out.id,)))
        first = db.add_candidate(Version(0, "candidate", "b", parent=0, run_id=run.id))
        child = db.add_version(Version(0, "candidate", "b", parent=first.number))
        db.undo_feedback(kept_out.id)
        assert not any(v.stale for v in db.versions())
        once = db.undo_feedback(used.id)
        assert db.undo_feedback(used.id) == once
        assert [v.number for v in db.versions() if v.stale] == [first.number, child.number]


def test_small_state_is_kept(home: Home) -> None:
    with store.connect(home.database) as db:
        db.set("ema", {"mean": 0.25})
        db.set("ema", {"mean": 0.5})
        assert db.get("ema") == {"mean": 0.5}
        assert db.get("nothing", 7) == 7


def test_a_prompt_waits_for_its_answer(home: Home) -> None:
    with store.connect(home.database) as db:
        db.put_prompt("a", "s", PendingPrompt("1", "first"))
        db.put_prompt("a", "s", PendingPrompt("2", "second"))
        db.put_prompt("a", "other", PendingPrompt("3", "not this"))
        kept, newest = db.kept_prompt("a", "s", "1"), db.newest_prompt("a", "s")
        assert kept is not None
        assert kept.text == "first"
        assert newest is not None
        assert newest.text == "second"
        assert db.newest_prompt("a", "nobody") is None


def test_what_is_added_to_a_prompt_is_kept_in_order_and_once(home: Home) -> None:
    with store.connect(home.database) as db:
        for said in ("first", "first", "and this", "and that", "and this"):
            db.put_prompt("a", "s", PendingPrompt("1", said))
        kept = db.kept_prompt("a", "s", "1")
        assert kept is not None
        assert kept.parts == ("first", "and this", "and that")


def test_a_backup_is_a_whole_database(home: Home, tmp_path: Path) -> None:
    with store.connect(home.database) as db:
        db.add_turn(a_turn())
        db.backup(tmp_path / "copy.db")
        db.add_turn(a_turn())
    with store.connect(tmp_path / "copy.db") as copy:
        assert copy.count_turns() == 1
        assert copy.integrity() == []
    assert (tmp_path / "copy.db").stat().st_mode & 0o077 == 0
    with store.connect(home.database) as db, pytest.raises(StoreError, match="could not be written"):
        db.backup(tmp_path / "no" / "such" / "folder.db")


# ------------------------------------------------------------------------------------------- files of other times


def test_a_newer_database_is_refused_and_left_byte_for_byte(home: Home) -> None:
    with store.connect(home.database) as db:
        db.add_turn(a_turn())
    with sqlite3.connect(home.database) as raw:
        raw.execute(f"PRAGMA user_version = {connection.newest() + 1}")
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    before = hashlib.sha256(home.database.read_bytes()).hexdigest()
    with pytest.raises(StoreError, match="newer Clawback"):
        store.connect(home.database)
    assert hashlib.sha256(home.database.read_bytes()).hexdigest() == before


def test_an_older_database_is_migrated_and_kept_beside(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.connect(home.database) as db:
        db.add_turn(a_turn(1))
    steps = tmp_path / "migrations"
    steps.mkdir()
    for file in connection.MIGRATIONS.glob("*.sql"):
        (steps / file.name).write_text(file.read_text())
    (steps / f"{connection.newest() + 1:04d}_more.sql").write_text(
        "ALTER TABLE turns ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm';\nCREATE INDEX moods ON turns(mood);\n"
    )
    old = connection.newest()
    monkeypatch.setattr(connection, "MIGRATIONS", steps)
    with store.connect(home.database) as db:
        assert db.turn(1).response == "answer 1"
        assert db._read("SELECT mood FROM turns")[0][0] == "calm"
    with sqlite3.connect(home.database.with_name(f"clawback.db.schema-{old}.backup")) as copy:
        assert copy.execute("PRAGMA user_version").fetchone()[0] == old
        assert copy.execute("SELECT count(*) FROM turns").fetchone()[0] == 1


def test_a_migration_that_fails_changes_nothing(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.connect(home.database).close()
    old = connection.newest()
    steps = tmp_path / "migrations"
    steps.mkdir()
    for file in connection.MIGRATIONS.glob("*.sql"):
        (steps / file.name).write_text(file.read_text())
    (steps / f"{old + 1:04d}_bad.sql").write_text("CREATE TABLE fine (x);\nCREATE TABLE turns (x);\n")
    with monkeypatch.context() as patched:
        patched.setattr(connection, "MIGRATIONS", steps)
        with pytest.raises(StoreError):
            store.connect(home.database)
    with store.connect(home.database) as db:
        assert db._read("PRAGMA user_version")[0][0] == old
        assert db._read("SELECT count(*) FROM sqlite_master WHERE name = 'fine'")[0][0] == 0


def test_a_file_that_is_no_database_is_refused_and_left_alone(home: Home) -> None:
    home.database.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match="damaged"):
        store.connect(home.database)
    assert home.database.read_bytes() == b"not a database at all" * 100


def test_damage_is_found(home: Home) -> None:
    with store.connect(home.database) as db:
        for number in range(200):
            db.add_turn(a_turn(number))
        db._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(home.database.read_bytes())
    rng = random.Random(0)
    for _ in range(400):
        data[rng.randrange(4096, len(data))] ^= 0xFF
    home.database.write_bytes(data)
    try:
        with store.connect(home.database) as db:
            assert db.integrity()
    except StoreError as error:
        assert "damaged" in str(error) or "cannot be used" in str(error)


# --------------------------------------------------------------------------------------------- many, and killed


WRITER = """
import sys
from pathlib import Path
from clawback import feedback, store
from clawback.records import Turn
name, count = sys.argv[2], int(sys.argv[3])
for i in range(count):
    with store.connect(Path(sys.argv[1])) as db:
        turn = db.add_turn(Turn(session=name, messages=({"role": "user", "content": str(i)},), response=f"{name} {i}"))
        feedback.rate(db, turn.id, 1 if i % 2 else -1, event_id=f"{name}:{i}")
    print(turn.id, flush=True)
"""


def writer(home: Home, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(home.database), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_ten_processes_write_at_once_and_no_row_is_lost(home: Home) -> None:
    processes = [writer(home, f"w{n}", 20) for n in range(10)]
    acknowledged = [int(line) for p in processes for line in p.communicate(timeout=120)[0].split()]
    assert all(p.returncode == 0 for p in processes)
    assert len(set(acknowledged)) == 200
    with store.connect(home.database) as db:
        assert sorted(t.id for t in db.turns(limit=1000)) == sorted(acknowledged)
        assert db.count_ratings() == (100, 100)
        assert db.integrity() == []


@pytest.mark.slow
def test_a_writer_killed_anywhere_loses_nothing_that_it_acknowledged(home: Home) -> None:
    rng, acknowledged = random.Random(0), set()
    for attempt in range(40):
        process = writer(home, f"k{attempt}", 10_000)
        assert process.stdout
        for _ in range(rng.randrange(1, 12)):
            acknowledged.add(int(process.stdout.readline()))
        os.kill(process.pid, signal.SIGKILL)
        acknowledged |= {int(x) for x in process.stdout.read().split("\n")[:-1]}
        process.wait()
        with store.connect(home.database) as db:
            assert db.integrity() == []
            assert acknowledged <= {t.id for t in db.turns(limit=100_000)}
            rated = {f.turn_id for f in db.feedback()}
            assert acknowledged <= rated, "a turn is acknowledged after its rating"
