"""An event that a locked database cannot take waits in a file of its own, and is stored once, in order, whatever is killed when."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest

from clawback import store
from clawback.capture import hook, ingest, spool
from clawback.capture.events import AnswerEvent, PromptEvent
from clawback.cli import main
from clawback.encryption import keys
from clawback.errors import StoreBusy, StoreError
from clawback.extensions.crypt import database_encryption
from clawback.paths import Home
from clawback.store import connection
from clawback.store.connection import sqlite3

AGENT = "claude-code"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    monkeypatch.setattr(ingest, "BUSY_SECONDS", 0.01)
    home.config.write_text("[training]\nbackground = false\n")
    with store.connect(home.database):
        pass


@contextmanager
def locked(home: Home) -> Iterator[None]:
    with closing(sqlite3.connect(home.database, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def fire(home: Home, kind: str, name: str, **event: Any) -> str:
    common = {"hook_event_name": kind, "session_id": "s", "prompt_id": name}
    reply = hook.handle(home, AGENT, json.dumps(common | event).encode())
    return str(reply["reason"]) if reply else ""


def ask(home: Home, number: int) -> None:
    fire(home, "UserPromptSubmit", f"p{number}", prompt=f"question {number}")
    fire(home, "Stop", f"p{number}", last_assistant_message=f"answer {number}")


def stored(home: Home) -> list[tuple[str, str]]:
    with store.connect(home.database) as db:
        return [(turn.prompt, turn.response) for turn in reversed(db.turns(limit=100))]


def expected(*numbers: int) -> list[tuple[str, str]]:
    return [(f"question {number}", f"answer {number}") for number in numbers]


def test_what_comes_while_the_database_is_locked_is_stored_by_the_next_event(home: Home) -> None:
    ask(home, 1)
    with locked(home):
        ask(home, 2)
        reply = fire(home, "UserPromptSubmit", "r", prompt="/rl bad too long")
        assert reply == f"Clawback: {spool.ACCEPTED}"
    ask(home, 3)
    assert stored(home) == expected(1, 2, 3)
    with store.connect(home.database) as db:
        assert [(db.turn(f.turn_id).response, f.value, f.text) for f in db.feedback()] == [
            ("answer 2", -1.0, "too long")
        ]
    assert not spool.waiting(home)


def test_a_command_stores_what_waits(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    with locked(home):
        ask(home, 1)
    assert main(["turns"]) == 0
    assert stored(home) == expected(1)


def test_files_are_the_owners_alone_and_hold_no_secret(home: Home) -> None:
    key = "sk-ant-api03-" + "a1B2" * 24
    with locked(home):
        fire(home, "UserPromptSubmit", "p", prompt=f"use {key}")
    [path] = home.spool.glob(f"*{spool.SUFFIX}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.spool.stat().st_mode) == 0o700
    assert key not in path.read_text()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("status", "in use"),
        ("frobnicate", "not understood"),
        ("rate 99", "1 to 10"),
        ("undo", spool.ACCEPTED),
    ],
)
def test_only_what_can_be_done_later_is_accepted(home: Home, words: str, answer: str) -> None:
    with locked(home):
        assert answer in fire(home, "UserPromptSubmit", "r", prompt=f"/rl {words}")
    assert spool.waiting(home) == (words == "undo")


def test_a_rating_that_comes_to_nothing_later_is_told_of(home: Home) -> None:
    with locked(home):
        fire(home, "UserPromptSubmit", "r", prompt="/rl good")
    told = fire(home, "UserPromptSubmit", "r2", prompt="/rl status")
    assert "(good) came to nothing: there is nothing to rate in this conversation yet." in told
    assert "came to nothing" not in fire(home, "UserPromptSubmit", "r3", prompt="/rl status")


def test_a_rating_means_what_was_seen_when_it_was_given(home: Home, tmp_path: Any) -> None:
    """By the time it is stored, the agent's record goes on."""
    path = tmp_path / "session.jsonl"

    def write(kind: str, name: str, text: str) -> None:
        message = {"id": f"m{name}", "role": kind, "model": "m", "content": [{"type": "text", "text": text}]}
        with path.open("a") as file:
            file.write(
                json.dumps({"type": kind, "promptId": name, "sessionId": "s", "message": message}) + "\n"
            )

    def turn(name: str) -> None:
        fire(home, "UserPromptSubmit", name, prompt=f"question {name}", transcript_path=str(path))
        write("user", name, f"question {name}")
        write("assistant", name, f"answer {name}")
        fire(home, "Stop", name, last_assistant_message=f"answer {name}", transcript_path=str(path))

    with locked(home):
        turn("1")
        fire(home, "UserPromptSubmit", "r", prompt="/rl bad", transcript_path=str(path))
        turn("2")
    spool.drain(home)
    assert stored(home) == expected(1, 2)
    with store.connect(home.database) as db:
        assert [db.turn(f.turn_id).response for f in db.feedback()] == ["answer 1"]


def test_there_is_a_limit_and_it_is_said(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MOST_EVENTS", 2)
    with locked(home):
        ask(home, 1)
        with pytest.raises(StoreBusy, match="too long"):
            spool.deliver(home, AGENT, PromptEvent("s", "one more", "p9"))
        assert "too long" in fire(home, "UserPromptSubmit", "r", prompt="/rl good")
    ask(home, 2)
    assert stored(home) == expected(1, 2)


def test_names_keep_the_order_though_the_clock_is_set_back(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(10**18, 0, -(10**15)))
    monkeypatch.setattr(spool.time, "time_ns", lambda: next(clock))
    with locked(home):
        for number in (1, 2, 3):
            ask(home, number)
    spool.drain(home)
    assert stored(home) == expected(1, 2, 3)


def test_a_file_that_is_none_of_ours_holds_nothing_up(home: Home) -> None:
    with locked(home):
        ask(home, 1)
    for number, content in enumerate(
        (b"", b"[]", b'{"agent": "x", "kind": "Home", "event": {}}', b"\xff\xfe")
    ):
        (home.spool / f"{number:020d}-1-x{spool.SUFFIX}").write_bytes(content)
    spool.drain(home)
    assert stored(home) == expected(1)
    assert not spool.waiting(home)


@pytest.mark.parametrize("statement", range(0, 60, 5))
def test_killed_at_any_statement_each_event_is_stored_once(home: Home, statement: int) -> None:
    """Without names for prompts, a second storing of the same event would show."""
    agent = "gemini-cli"
    with locked(home):
        for number in (1, 2):
            with suppress(StoreBusy):
                spool.deliver(home, agent, PromptEvent("s", f"question {number}", last=True))
                spool.deliver(home, agent, AnswerEvent("s", f"answer {number}", prompt=f"question {number}"))
                spool.deliver(home, agent, PromptEvent("s", f"/rl note note {number}"))
    child = os.fork()
    if child == 0:
        left = statement

        def count(_: Any, event: str, called: Any) -> None:
            nonlocal left
            if event == "c_call" and called.__name__ in ("execute", "unlink", "remove"):
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.setprofile(count)
            spool.drain(home)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    spool.drain(home)
    assert stored(home) == expected(1, 2)
    with store.connect(home.database) as db:
        assert sorted(f.text for f in db.feedback()) == ["note 1", "note 2"]
        assert db.early() == []


# ------------------------------------------------------------------------------------------------ an encrypted home


@pytest.fixture
def encrypted(home: Home) -> Home:
    pytest.importorskip("sqlcipher3")
    ask(home, 1)
    database_encryption.encrypt(home, "file")
    return home


@contextmanager
def locked_encrypted(home: Home) -> Iterator[None]:
    key = keys.load(home.database)
    with closing(connection.open_encrypted(home.database, key, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def test_what_waits_in_an_encrypted_home_is_encrypted(encrypted: Home) -> None:
    with locked_encrypted(encrypted):
        ask(encrypted, 2)
        assert fire(encrypted, "UserPromptSubmit", "r", prompt="/rl bad") == f"Clawback: {spool.ACCEPTED}"
        files = list(encrypted.spool.iterdir())
        assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600] * len(files)
        content = b"".join(path.read_bytes() for path in files if path.is_file())
        assert len([path for path in files if path.name.endswith(spool.SEALED)]) == 3
        assert not any(word in content for word in (b"question", b"answer", b"bad", b"SQLite"))
    ask(encrypted, 3)
    assert stored(encrypted) == expected(1, 2, 3)
    with store.connect(encrypted.database) as db:
        assert [(db.turn(f.turn_id).response, f.value) for f in db.feedback()] == [("answer 2", -1.0)]
    assert not spool.waiting(encrypted)


def test_what_waits_when_a_home_is_encrypted_does_not_stay_readable(home: Home) -> None:
    pytest.importorskip("sqlcipher3")
    with locked(home):
        ask(home, 1)
    database_encryption.encrypt(home, "file")
    assert not spool.waiting(home)
    assert stored(home) == expected(1)


def test_what_waits_when_a_home_is_decrypted_is_stored(encrypted: Home) -> None:
    with locked_encrypted(encrypted):
        ask(encrypted, 2)
    database_encryption.decrypt(encrypted)
    spool.drain(encrypted)
    assert stored(encrypted) == expected(1, 2)


def test_a_file_of_another_key_holds_nothing_up_and_stays(encrypted: Home) -> None:
    encrypted.spool.mkdir(exist_ok=True)
    other = encrypted.spool / f"{1:020d}-1-x{spool.SEALED}"
    other.write_bytes(os.urandom(8192))
    with locked_encrypted(encrypted):
        ask(encrypted, 2)
    spool.drain(encrypted)
    assert stored(encrypted) == expected(1, 2)
    assert [path.suffix for path in encrypted.spool.iterdir() if path.name != "lock"] == [".unreadable"]


def test_without_the_key_nothing_is_written_in_plain_text(encrypted: Home) -> None:
    with locked_encrypted(encrypted):
        encrypted.database.with_name(keys.KEY_FILE).unlink()
        with pytest.raises(StoreError, match="key"):
            spool.keep(encrypted, AGENT, PromptEvent("s", "question 2", "p2"))
    assert not spool.waiting(encrypted)
