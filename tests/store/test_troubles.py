"""Wrong keys, full disks and damaged pages: a sentence each, and a way out."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from clawback import feedback, store
from clawback.cli import main
from clawback.encryption import keys
from clawback.errors import StoreError
from clawback.extensions.crypt import database_encryption
from clawback.files import replace
from clawback.paths import Home
from clawback.privacy import erasure
from clawback.records import Turn
from clawback.salvage import copies, damaged_database, salvage_pages
from clawback.store import connection
from clawback.store.connection import DAMAGED

DAY = 86_400.0


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    return home


def fill(home: Home, turns: int = 60) -> None:
    with store.connect(home.database) as db:
        with db.together():  # one transaction: one fsync
            for number in range(turns):
                text = f"Answer {number}. " + "Otters eat fish. " * (number % 7)
                asked = ({"role": "user", "content": f"Question {number}?"},)
                turn = db.add_turn(Turn(f"s{number % 5}", asked, text, agent="test"))
                if number % 2:
                    feedback.rate(db, turn.id, 1 if number % 4 == 1 else -1, note=f"note {number}")
        db._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def content(home: Home) -> tuple[dict[int, str], dict[int, str]]:
    with store.connect(home.database) as db:
        return {t.id: t.response for t in db.turns(limit=10_000)}, {f.id: f.text for f in db.feedback()}


# ---------------------------------------------------------------------------------------------------------- the key


@pytest.mark.parametrize("wrong", ["00" * 32, "5e" * 32])
def test_a_wrong_key_is_called_a_wrong_key_and_nobody_is_told_to_overwrite_anything(
    home: Home, wrong: str
) -> None:
    fill(home, 4)
    database_encryption.encrypt(home, "file")
    right = (home.root / keys.KEY_FILE).read_bytes()
    (home.root / keys.KEY_FILE).write_text(wrong)
    with pytest.raises(StoreError) as caught:
        store.connect(home.database)
    said = str(caught.value)
    assert "another database's key" in said
    assert "encryption recover" in said
    assert str(home.root / keys.KEY_FILE) in said
    assert "is damaged" not in said
    assert "put a backup" not in said
    (home.root / keys.KEY_FILE).write_bytes(right)
    assert len(content(home)[0]) == 4


def test_a_lost_record_of_the_encryption_is_named(home: Home) -> None:
    fill(home, 4)
    database_encryption.encrypt(home, "file")
    record = (home.root / keys.RECORD).read_bytes()
    (home.root / keys.RECORD).unlink()
    with pytest.raises(StoreError, match=r"probably encrypted.*encryption\.json"):
        store.connect(home.database)
    (home.root / keys.RECORD).write_bytes(record)
    assert len(content(home)[0]) == 4


def test_recovering_by_another_key_changes_nothing(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pyrage = pytest.importorskip("pyrage")
    from clawback.privacy import age

    identity = pyrage.x25519.Identity.generate()
    (tmp_path / "mine.txt").write_text(f"{identity}\n")
    mine = ["--identity", str(tmp_path / "mine.txt")]
    fill(home, 4)
    database_encryption.encrypt(home, "file")
    right = (home.root / keys.KEY_FILE).read_text().strip()
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    for name, key in (("wrong", "ab" * 32), ("right", right)):
        age.lock(tmp_path / name, key.encode(), to=[str(identity.to_public())])
    assert main(["encryption", "recover", str(tmp_path / "wrong"), *mine]) == 2
    assert "Nothing was changed" in capsys.readouterr().err.replace("\n", " ")
    assert (home.root / keys.KEY_FILE).read_text().strip() == right
    (home.root / keys.KEY_FILE).write_text("cd" * 32)
    assert main(["encryption", "recover", str(tmp_path / "right"), *mine]) == 0
    assert (home.root / f"{keys.KEY_FILE}.before").read_text() == "cd" * 32
    assert len(content(home)[0]) == 4


# ------------------------------------------------------------------------------------------------------- a full disk

ON_A_FULL_DISK = """
import os, subprocess, sys
from pathlib import Path
mounted = Path(sys.argv[1])
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(mounted)]).returncode:
    sys.exit(77)
from clawback import store
from clawback.errors import ClawbackError
from clawback.cli import main
from clawback.records import Turn
from clawback import feedback, config
os.environ["CLAWBACK_HOME"] = str(mounted)
def turn(n): return Turn("s", ({"role": "user", "content": "q"},), f"Answer {n}.", agent="t")
if sys.argv[2] == "wal":  # killed: what was written last is in the log alone
    child = os.fork()
    if child == 0:
        db = store.connect(mounted / "clawback.db")
        for n in range(3): db.add_turn(turn(n))
        os._exit(9)
    os.waitpid(child, 0)
else:
    with store.connect(mounted / "clawback.db") as db:
        for n in range(3): db.add_turn(turn(n))
with (mounted / "fill").open("wb", buffering=0) as file:
    try:
        while True: file.write(b"x" * 4096)
    except OSError: pass
for name in ("clawback.db-shm",): (mounted / name).unlink(missing_ok=True)
with (mounted / "fill").open("ab", buffering=0) as file:
    try:
        while True: file.write(b"x" * 512)
    except OSError: pass
print("STATUS", main(["status"]), flush=True)
print("TURNS", main(["turns"]), flush=True)
print("GOOD", main(["good", "--turn", "1"]), flush=True)
print("SET", main(["config", "set", "training.threshold", "9"]), flush=True)
print("LEFT", sorted(p.name for p in mounted.iterdir() if ".new" in p.name or p.name.startswith(".full")), flush=True)
(mounted / "fill").unlink()
print("AGAIN", main(["good", "--turn", "1"]), flush=True)
with store.connect(mounted / "clawback.db") as db:
    print("COUNT", db.count_turns(), db.count_ratings(), db.integrity(), flush=True)
"""


@pytest.mark.skipif(not shutil.which("unshare"), reason="mounts a small disk of its own")
@pytest.mark.parametrize("left", ["closed", "wal"])
def test_a_full_disk_is_called_full_and_can_be_read(tmp_path: Path, left: str) -> None:
    (tmp_path / "disk").mkdir()
    done = subprocess.run(
        ["unshare", "-rm", sys.executable, "-c", ON_A_FULL_DISK, str(tmp_path / "disk"), left],
        capture_output=True, text=True, check=False, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("this machine lets nobody mount a disk")
    out = done.stdout
    assert "STATUS 0" in out, out + done.stderr
    assert "3 captured" in out
    assert "TURNS 0" in out
    assert "GOOD 1" in out
    assert "is full: make room" in " ".join(done.stderr.split())
    assert "I/O error" not in done.stderr
    assert "LEFT []" in out
    assert "AGAIN 0" in out
    assert "COUNT 3 (1, 0) []" in out


def test_a_write_that_fails_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.toml"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            replace(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["config.toml"]
    assert path.read_text() == "old"


def test_a_disk_with_room_is_not_called_full(tmp_path: Path) -> None:
    assert not connection.is_full(tmp_path)
    assert list(tmp_path.iterdir()) == []
    said = connection.describe(tmp_path / "clawback.db", sqlite3.OperationalError("disk I/O error"))
    assert "cannot be used: disk I/O error" in said


# ------------------------------------------------------------------------------------------------------------ salvage


def damage(database: Path, pages: list[int], rng: random.Random) -> None:
    data = bytearray(database.read_bytes())
    for page in pages:
        data[4096 * (page - 1) : 4096 * page] = rng.randbytes(4096)
    database.write_bytes(data)


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


# ------------------------------------------------------------------------------------------------------------- copies


def test_a_copy_a_day_if_something_changed_and_no_more_than_that(home: Home) -> None:
    fill(home, 10)
    now = home.database.stat().st_mtime
    made = []
    with store.connect(home.database) as db:
        for day in range(6):
            os.utime(home.database, (now + day * DAY, now + day * DAY))
            path = copies.copy_if_due(db, 3, now + day * DAY + 60)
            assert path is not None
            os.utime(path, (now + day * DAY + 60,) * 2)
            made.append(path)
            assert copies.copy_if_due(db, 3, now + day * DAY + 3600) is None
        assert copies.copy_if_due(db, 3, now + 9 * DAY) is None  # nothing has changed since
        assert copies.copy_if_due(db, 0, now + 99 * DAY) is None
    assert connection.daily_copies(home.database) == made[-3:]
    with store.connect(made[-1]) as copy:
        assert copy.count_turns() == 10
    assert made[-1].stat().st_mode & 0o777 == 0o600


def test_damage_pushes_no_good_copy_out(home: Home) -> None:
    fill(home, 200)
    with store.connect(home.database) as db:
        good = copies.copy_if_due(db, 1)
    pages = home.database.stat().st_size // 4096
    damage(home.database, list(range(pages // 2, pages - 1)), random.Random(0))
    later = home.database.stat().st_mtime + 2 * DAY
    os.utime(home.database, (later, later))
    with pytest.raises(StoreError, match="salvage"), store.connect(home.database) as db:
        copies.copy_if_due(db, 1, later + DAY)
    assert connection.daily_copies(home.database) == [good]


def test_copies_are_encrypted_and_forgotten_with_the_database(home: Home) -> None:
    fill(home, 10)
    with store.connect(home.database) as db:
        copy = copies.copy_if_due(db, 3)
    assert copy is not None
    database_encryption.encrypt(home, "file")
    assert b"SQLite format 3" not in copy.read_bytes()
    with store.connect(home.database) as db:
        erasure.erase(db, home, erasure.ErasureRequest(turns=(1,)))
    assert not copy.exists()


def test_salvage_reads_what_sqlite_reads() -> None:
    assert salvage_pages.varint(bytes([0x81, 0x01]), 0) == (129, 2)
    assert salvage_pages.varint(bytes([0xFF] * 9), 0) == ((1 << 64) - 1, 9)
    assert DAMAGED
