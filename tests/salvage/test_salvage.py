"""What can be read of a damaged database is saved into a new one, and nothing readable is lost."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

import pytest

from clawback import plugins, store
from clawback.cli import areas, main
from clawback.errors import StoreError
from clawback.extensions.crypt import database_encryption
from clawback.extensions.salvage import damaged_database, salvage_pages
from clawback.paths import Home
from clawback.records import Turn
from clawback.store import copies
from clawback.store.connection import DAMAGED
from tests.store.test_troubles import content, damage, fill


@pytest.mark.parametrize("seed", range(5))
def test_four_bad_pages_without_a_copy_cost_what_was_on_them_and_what_hangs_below(
    home: Home, seed: int
) -> None:
    fill(home, 200)
    turns, notes = content(home)
    rng = random.Random(seed)
    pages = home.database.stat().st_size // 4096
    damage(home.database, rng.sample(range(pages // 2, pages + 1), 4), rng)  # past the tables' first pages
    report = damaged_database.salvage(home.database)
    found, said = content(home)
    assert report.copy is None
    assert set(found.items()) <= set(turns.items())
    assert set(said.items()) <= set(notes.items())
    assert len(found) >= len(turns) // 4
    with store.connect(home.database) as db:
        assert db.integrity() == []
        assert sum(db.count_ratings()) == len(said)


@pytest.mark.parametrize("seed", range(5))
def test_four_bad_pages_cost_nothing_that_the_newest_copy_has(home: Home, seed: int) -> None:
    fill(home, 400)
    turns, notes = content(home)
    with store.connect(home.database) as db:
        assert copies.copy_if_due(db, 3)
    rng = random.Random(seed)
    pages = home.database.stat().st_size // 4096
    bad = rng.sample(range(1, pages + 1), 4)
    damage(home.database, bad, rng)
    broken = home.database.read_bytes()
    report = damaged_database.salvage(home.database)
    assert report.damaged.read_bytes() == broken
    found, said = content(home)
    assert set(found.items()) <= set(turns.items())
    assert set(said.items()) <= set(notes.items())
    # The copy has what was on the bad pages, and what hung below them.
    assert len(found) == len(turns)
    assert len(said) == len(notes)
    with store.connect(home.database) as db:
        assert db.integrity() == []
        assert db.count_turns() == len(found)
        assert sum(db.count_ratings()) == len(said)
        assert db.live().number == 0
        new = db.add_turn(Turn("new", ({"role": "user", "content": "q"},), "a", agent="t"))
        assert new.id > max(found)
    if report.leftovers:
        rows = [json.loads(line) for line in report.leftovers.read_text().splitlines()]
        assert len(rows) == report.aside
        assert report.leftovers.stat().st_mode & 0o777 == 0o600
    assert not list(home.root.glob("*.salvage-*"))


def test_what_a_sound_database_holds_is_all_there_afterwards(home: Home) -> None:
    fill(home, 120)
    with store.connect(home.database) as db:
        before = {t: db._read(f'SELECT * FROM "{t}"') for t in damaged_database._tables(db._db)}
        derived = {t: db._read(f'SELECT * FROM "{t}" ORDER BY 1') for t in damaged_database.DERIVED}
    report = damaged_database.salvage(home.database)
    assert not report.damaged_parts
    assert not report.aside
    with store.connect(home.database) as db:
        for table, rows in before.items():
            assert sorted(map(tuple, rows), key=repr) == sorted(
                map(tuple, db._read(f'SELECT * FROM "{table}"')), key=repr
            ), table
        for table, rows in derived.items():
            kept = [tuple(row) for row in rows if tuple(row)[1:] != (0, 0, 0)]
            now = [
                tuple(row)
                for row in db._read(f'SELECT * FROM "{table}" ORDER BY 1')
                if tuple(row)[1:] != (0, 0, 0)
            ]
            assert kept == now, table


def test_ratings_of_a_turn_that_is_gone_are_written_to_a_file(home: Home) -> None:
    fill(home, 6)
    with sqlite3.connect(home.database) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute("UPDATE bodies SET messages = 'no JSON {' WHERE turn_id = 2")
        raw.execute("DELETE FROM sessions WHERE id = 1")
    raw.close()
    report = damaged_database.salvage(home.database)
    turns, notes = content(home)
    assert sorted(turns) == [1, 3, 4, 5, 6]
    assert sorted(notes.values()) == ["note 3", "note 5"]
    assert report.leftovers is not None
    rows = [json.loads(line) for line in report.leftovers.read_text().splitlines()]
    assert [row["row"]["text"] for row in rows if row["table"] == "feedback"] == ["note 1"]
    with store.connect(home.database) as db:
        assert db.turn(1).session == "salvaged-1"


def test_an_encrypted_database_is_salvaged_encrypted(home: Home) -> None:
    fill(home, 200)
    database_encryption.encrypt(home, "file")
    turns, _ = content(home)
    pages = home.database.stat().st_size // 4096
    damage(home.database, [pages // 2, pages - 3], random.Random(1))
    report = damaged_database.salvage(home.database)
    found, _ = content(home)
    assert set(found.items()) <= set(turns.items())
    assert len(found) > 60
    assert b"Otters" not in home.database.read_bytes()
    assert database_encryption.is_encrypted(home.database)
    assert report.damaged.exists()


def test_without_its_contents_a_database_of_this_schema_is_read_by_a_new_ones(home: Home) -> None:
    fill(home, 40)
    turns, notes = content(home)
    damage(home.database, [1], random.Random(0))
    damaged_database.salvage(home.database)
    assert content(home) == (turns, notes)


def test_of_what_is_no_database_the_file_is_left_as_it_was(home: Home) -> None:
    fill(home, 40)
    broken = random.Random(0).randbytes(home.database.stat().st_size)
    home.database.write_bytes(broken)
    with pytest.raises(StoreError):
        damaged_database.salvage(home.database)
    assert home.database.read_bytes() == broken
    assert sorted(p.name for p in home.root.iterdir()) == ["clawback.db"]


def test_the_sentence_names_salvage_and_the_newest_copy(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(home, 200)
    with store.connect(home.database) as db:
        copy = copies.copy_if_due(db, 3)
    pages = home.database.stat().st_size // 4096
    damage(home.database, list(range(2, pages, 2)), random.Random(0))
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    assert main(["turns"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "clawback data salvage" in said
    assert str(copy) in said
    assert main(["salvage"]) == 0
    assert "Saved:" in capsys.readouterr().out
    assert main(["turns"]) == 0


def test_the_report_as_json_names_the_files(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(home, 200)
    with store.connect(home.database) as db:
        copy = copies.copy_if_due(db, 3)
    pages = home.database.stat().st_size // 4096
    damage(home.database, list(range(2, pages, 2)), random.Random(0))
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    assert main(["data", "salvage", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["intact"], report["saved"]["turns"] + report["from_copy"]["turns"]) == (False, 200)
    assert report["copy"] == str(copy)
    assert report["leftovers"] is None
    assert Path(report["damaged"]).is_file()


@pytest.mark.parametrize("command", [["data", "salvage"], ["data", "salvage", "--json"]])
def test_a_database_without_damage_stays_as_it_is(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    fill(home, 20)
    before = home.database.read_bytes()
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    assert main(command) == 0
    said = capsys.readouterr().out
    assert '"intact": true' in said if "--json" in command else "Nothing is damaged." in said
    assert home.database.read_bytes() == before
    assert not list(home.root.glob("clawback.db.*"))


def test_a_row_that_cannot_be_read_is_damage(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(home, 20)
    with sqlite3.connect(home.database) as raw:
        raw.execute("UPDATE bodies SET messages = 'no JSON {' WHERE turn_id = 2")
    raw.close()
    with store.connect(home.database) as db:
        assert db.integrity() == [], "SQLite sees nothing of it"
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    assert main(["data", "salvage"]) == 0
    assert "Saved: 19 turns" in capsys.readouterr().out
    assert len(list(home.root.glob("clawback.db.damaged-*"))) == 1


def test_salvage_reads_what_sqlite_reads() -> None:
    assert salvage_pages.varint(bytes([0x81, 0x01]), 0) == (129, 2)
    assert salvage_pages.varint(bytes([0xFF] * 9), 0) == ((1 << 64) - 1, 9)
    assert DAMAGED


@pytest.mark.parametrize("command", [["data", "salvage"], ["salvage"], ["data", "salvage", "--json"]])
def test_without_the_extension_the_command_is_refused_by_its_name(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    fill(home, 4)
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    monkeypatch.setattr(plugins, "_has_extension", lambda name: name != "salvage")
    monkeypatch.delitem(areas.data.members, "salvage")  # type: ignore[attr-defined]  # read when its file is imported
    assert main(command) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert (
        "`clawback data salvage` needs the extension `salvage`, which this installation is without" in message
    )
    assert len(content(home)[0]) == 4
