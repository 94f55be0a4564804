"""Wrong keys, full disks and damaged pages: a sentence each, and a way out."""

from __future__ import annotations

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
from clawback.store import connection, copies

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


def damage(database: Path, pages: list[int], rng: random.Random) -> None:
    data = bytearray(database.read_bytes())
    for page in pages:
        data[4096 * (page - 1) : 4096 * page] = rng.randbytes(4096)
    database.write_bytes(data)


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


def test_a_server_makes_the_copy_of_the_day_at_its_first_look(home: Home) -> None:
    from clawback.inference.server import Server

    fill(home, 10)
    server = Server(home)
    server._look()
    (copy,) = connection.daily_copies(home.database)
    copy.unlink()
    server._look()
    assert connection.daily_copies(home.database) == [], "once an hour"


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
