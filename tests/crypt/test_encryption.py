"""The database encrypted in place and back: nothing lost wherever it is killed, nothing readable on the disk, the same errors as before."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

pytest.importorskip("sqlcipher3", reason="needs the extra `crypt`")
pytest.importorskip("pyrage", reason="needs the extra `crypt`")

from clawback import feedback, pictures, store
from clawback.cli import main
from clawback.encryption import keys
from clawback.errors import Busy, NotFound, StoreError, UsageError
from clawback.extensions.crypt import database_encryption
from clawback.paths import Home
from clawback.privacy import age
from clawback.records import Turn
from clawback.store import connection
from clawback.store.connection import newest

WORDS = "The treasure of Abelard"


def fill(home: Home, count: int = 8) -> list[Any]:
    with store.connect(home.database) as db:
        for n in range(count):
            made = db.add_turn(
                Turn(
                    "s",
                    ({"role": "user", "content": f"{WORDS} {n}?"},),
                    f"{WORDS} {n}.",
                    response_ids=(1, 2, n),
                )
            )
            feedback.rate(db, made.id, 1 if n % 2 else -1, note=WORDS)
    return content(home)


def content(home: Home) -> list[Any]:
    with store.connect(home.database) as db:
        assert db.integrity() == []
        return [db.turns(limit=100), db.feedback(), db.versions()]


def raw(home: Home) -> bytes:
    return b"".join(p.read_bytes() for p in home.root.rglob("*") if p.is_file())


def test_there_and_back(home: Home) -> None:
    before = fill(home)
    (home.root / "clawback.db.schema-3.backup").write_bytes(home.database.read_bytes())
    state = database_encryption.encrypt(home, "file")
    assert (state.encrypted, state.storage) == (True, "file")
    assert WORDS.encode() not in raw(home)
    assert b"SQLite format" not in raw(home)
    assert content(home) == before
    with store.connect(home.database) as db:  # what is written now is encrypted, its log too
        db.add_turn(Turn("s", (), f"{WORDS} again."))
        assert WORDS.encode() not in raw(home)
    again = content(home)
    assert not database_encryption.decrypt(home).encrypted
    assert content(home) == again
    assert sqlite3.connect(home.database).execute("PRAGMA user_version").fetchone()[0] == newest()
    assert {p.stat().st_mode & 0o777 for p in (home.database, home.root / keys.KEY_FILE)} == {0o600}
    database_encryption.encrypt(home)  # the same key again
    assert content(home) == again
    with pytest.raises(UsageError, match="already"):
        database_encryption.encrypt(home)


def test_pictures_are_encrypted_with_the_rest(home: Home) -> None:
    seen = b"\x89PNG\r\n\x1a\n" + b"Abelard's portrait" * 40
    said = {"role": "user", "content": [pictures.part_of(seen), {"type": "text", "text": "Who is it?"}]}
    with store.connect(home.database) as db:
        number = db.add_turn(Turn("s", (said,), "Abelard.")).id
    for change in (database_encryption.encrypt, database_encryption.decrypt):
        assert (b"portrait" in raw(home)) == (change is database_encryption.encrypt)
        change(home)
        with store.connect(home.database) as db:
            assert db.turn(number).messages == (said,)
    database_encryption.encrypt(home)
    with store.connect(home.database) as db:
        db.forget([number])
        assert db._read("SELECT * FROM pictures") == []


def at_line(number: int, work: Callable[[], object]) -> bool:
    """Do the work in a process that is killed at the n-th line of it; whether it was."""
    child = os.fork()
    if child == 0:
        seen = 0

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal seen
            if not frame.f_code.co_filename.endswith(
                ("extensions/crypt/database_encryption.py", "encryption/keys.py", "clawback/files.py")
            ):
                return None
            if event == "line":
                seen += 1
                if seen == number:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def killed_at(home: Home, work: Callable[[], object], undo: Callable[[], object], step: int) -> int:
    """Kill it at every ``step``-th line; how many times. What was there is there each time."""
    before, count, number = content(home), 0, 1
    while at_line(number, work):
        assert content(home) == before
        if database_encryption.is_encrypted(home.database) == (work is not undo and _wants_encrypted(work)):
            undo()
        count, number = count + 1, number + step
    assert content(home) == before
    return count


def _wants_encrypted(work: Callable[[], object]) -> bool:
    return work.__name__ == "encrypt"


@pytest.mark.parametrize("step", [40, pytest.param(2, marks=pytest.mark.slow)])
def test_killed_anywhere_nothing_is_lost(home: Home, step: int) -> None:
    fill(home)

    def encrypt() -> None:
        database_encryption.encrypt(home, "file")

    def decrypt() -> None:
        database_encryption.decrypt(home)

    assert killed_at(home, encrypt, decrypt, step) >= 100 // step
    assert database_encryption.is_encrypted(home.database)
    assert killed_at(home, decrypt, encrypt, step) >= 100 // step
    assert not database_encryption.is_encrypted(home.database)


OPEN = """
import sys, time
from clawback import feedback, pictures, store
from pathlib import Path
with store.connect(Path(sys.argv[1]), busy_seconds=60) as db:
    db.turns()
    print("open", flush=True)
    sys.stdin.readline()
    feedback.rate(db, 1, 1.0, note="late")
"""


def other(home: Home) -> subprocess.Popen[str]:
    """Another program that has the database open, and rates once it is told to."""
    return subprocess.Popen(
        [sys.executable, "-c", OPEN, str(home.database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_while_somebody_has_it_open_nothing_is_done(home: Home) -> None:
    before = fill(home)
    with other(home) as program:
        assert program.stdout is not None
        program.stdout.readline()
        with pytest.raises(Busy, match="stop the server"):
            database_encryption.encrypt(home, "file")
        assert content(home) == before
        assert not database_encryption.is_encrypted(home.database)
        program.communicate("\n", timeout=60)
    with store.connect(home.database) as db:
        assert db.feedback()[-1].text == "late"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc for who has a file open")
def test_who_waits_meanwhile_gets_the_new_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tap that comes while the file is replaced is not written to the one that is gone."""
    fill(home)
    export, begun = connection.export, []

    def slowly(*arguments: Any) -> None:
        program = other(home)
        begun.append(program)
        # It waits for the lock: give it as long as it takes to have the old file open.
        descriptors, deadline = Path(f"/proc/{program.pid}/fd"), time.monotonic() + 60
        while time.monotonic() < deadline and not any(
            str(home.database) in str(f.readlink()) for f in descriptors.iterdir() if f.is_symlink()
        ):
            time.sleep(0.01)
        export(*arguments)

    monkeypatch.setattr(connection, "export", slowly)
    database_encryption.encrypt(home, "file")
    begun[0].communicate("\n", timeout=120)
    with store.connect(home.database) as db:
        assert db.feedback()[-1].text == "late"


def test_without_its_key_it_says_where_that_was_looked_for(home: Home) -> None:
    fill(home)
    database_encryption.encrypt(home, "file")
    key = (home.root / keys.KEY_FILE).read_bytes()
    (home.root / keys.KEY_FILE).unlink()
    with pytest.raises(StoreError, match=r"clawback\.key"):
        store.connect(home.database)
    (home.root / keys.KEY_FILE).write_text("00" * 32)
    with pytest.raises(StoreError, match="another database's key"):
        store.connect(home.database)
    (home.root / keys.KEY_FILE).write_bytes(key)
    content(home)


def test_errors_of_the_encrypted_one_are_those_of_the_plain_one(home: Home) -> None:
    fill(home)
    database_encryption.encrypt(home, "file")
    with store.connect(home.database) as db:
        with pytest.raises(NotFound):
            db.turn(99)
        with pytest.raises(NotFound):
            db.turn(2**70)
        with pytest.raises(sqlite3.IntegrityError):
            db._db.execute(
                "INSERT INTO versions (number, status, base, created_at) VALUES (0, 'live', '', 0)"
            )
        with pytest.raises(sqlite3.OperationalError):
            db._db.execute("SELECT nothing")
    data = bytearray(home.database.read_bytes())
    data[5000:6000] = bytes(1000)
    home.database.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        content(home)


def test_a_credential_and_a_keyring(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring
    from keyring.backend import KeyringBackend

    class Memory(KeyringBackend):
        priority = 5  # type: ignore[assignment]
        kept: dict[tuple[str, str], str] = {}

        def get_password(self, service: str, username: str) -> str | None:
            return self.kept.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            self.kept[service, username] = password

        def delete_password(self, service: str, username: str) -> None:
            del self.kept[service, username]

    before = fill(home)
    with pytest.raises(StoreError, match="CREDENTIALS_DIRECTORY"):
        database_encryption.encrypt(home, "credential")
    assert content(home) == before
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (tmp_path / keys.CREDENTIAL).write_text("ab" * 32 + "\n")
    assert database_encryption.encrypt(home, "credential").storage == "credential"
    assert content(home) == before
    database_encryption.decrypt(home)
    (home.root / keys.RECORD).unlink()
    old = keyring.get_keyring()
    keyring.set_keyring(Memory())
    try:
        assert database_encryption.encrypt(home).storage == "keyring"  # the first that works
        assert content(home) == before
        assert not (home.root / keys.KEY_FILE).exists()
        runtime = tmp_path / "run"
        runtime.mkdir(mode=0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        content(home)
        [cache] = runtime.iterdir()
        assert cache.stat().st_mode & 0o777 == 0o600
        Memory.kept.clear()
        content(home)  # from memory
        cache.unlink()
        with pytest.raises(StoreError, match="keyring"):
            store.connect(home.database)
    finally:
        keyring.set_keyring(old)


@pytest.mark.slow
def test_recovery_backup_and_export_are_files_of_age(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyrage

    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    monkeypatch.setenv("CLAWBACK_PASSPHRASE", "correct horse")
    before = fill(home)
    assert main(["encryption", "on", "--key", "file"]) == 0
    me, mine = pyrage.x25519.Identity.generate(), tmp_path / "me.txt"
    mine.write_text(f"# mine\n{me}\n")
    paths = [tmp_path / name for name in ("key.age", "all.age", "turns.age")]
    assert main(["encryption", "recovery", str(paths[0]), "--passphrase"]) == 0
    assert main(["backup", str(paths[1]), "--to", str(me.to_public())]) == 0
    assert main(["export", str(paths[2]), "--to", str(me.to_public())]) == 0
    assert all(age.is_age(p) and WORDS.encode() not in p.read_bytes() for p in paths)
    # The backup is a database that needs no other key.
    plain = Home(tmp_path / "restored")
    plain.create()
    plain.database.write_bytes(age.unlock(paths[1], identity=mine))
    assert content(plain) == before
    other = tmp_path / "other"
    monkeypatch.setenv("CLAWBACK_HOME", str(other))
    assert main(["import", str(paths[2])]) == 2
    assert main(["import", str(paths[2]), "--identity", str(mine)]) == 0
    assert "8 turns" in capsys.readouterr().out
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    (home.root / keys.KEY_FILE).unlink()
    assert main(["turns"]) == 1
    assert main(["encryption", "recover", str(paths[0]), "--passphrase"]) == 0
    assert content(home) == before
    monkeypatch.setenv("CLAWBACK_PASSPHRASE", "wrong")
    assert main(["encryption", "recover", str(paths[0]), "--passphrase"]) == 2
    copy = tmp_path / "copy.db"
    assert main(["backup", str(copy)]) == 0
    assert not copy.read_bytes().startswith(database_encryption.PLAIN)
