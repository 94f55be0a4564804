"""A turn that the server has acknowledged is stored, also where another process holds the database meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest

from clawback import store
from clawback.capture import ingest, served, spool
from clawback.config import PrivacySection
from clawback.errors import StoreBusy
from clawback.inference import recorder
from clawback.paths import Home
from clawback.records import Turn
from clawback.store.connection import sqlite3

from .conftest import Running, Upstream

KEY = "sk-ant-api03-" + "a1B2" * 24
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short for a lock that is held, and before any store is open."""
    monkeypatch.setattr(ingest, "BUSY_SECONDS", 0.01)


@contextmanager
def locked(home: Home) -> Iterator[None]:
    with closing(sqlite3.connect(home.database, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def talk(proxy: Running, upstream: Upstream, count: int, session: str = "") -> None:
    """One request that goes on with the conversation so far."""
    messages: list[dict[str, Any]] = []
    for number in range(1, count + 1):
        messages += [{"role": "user", "content": f"question {number}"}]
        if number < count:
            messages += [{"role": "assistant", "content": f"answer {number} {KEY}"}]
    body = {"choices": [{"message": {"content": f"answer {count} {KEY}"}, "finish_reason": "length"}]}
    upstream.says(json.dumps(body).encode())
    headers = {"x-session-id": session} if session else {}
    asked = {"messages": messages, "tools": []}
    httpx.post(f"{proxy.url}/v1/chat/completions", json=asked, headers=headers).raise_for_status()


def stored(home: Home) -> list[Turn]:
    with store.connect(home.database) as db:
        return list(reversed(db.turns(limit=100)))


def test_what_is_answered_while_the_database_is_locked_is_stored_in_its_conversation(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    talk(proxy, upstream, 1)
    with locked(home):
        talk(proxy, upstream, 2)
        talk(proxy, upstream, 3)
        waiting = [path for path in home.spool.iterdir() if path.name.endswith(spool.SUFFIX)]
        assert len(waiting) == 2
        assert not any(KEY in path.read_text() for path in waiting)
    talk(proxy, upstream, 4)
    turns = stored(home)
    assert [turn.prompt for turn in turns] == [f"question {n}" for n in (1, 2, 3, 4)]
    assert len({turn.session for turn in turns}) == 1, "each goes on with the one before"
    assert [turn.ending for turn in turns] == ["length"] * 4
    assert [[m["content"] for m in turn.next_state] for turn in turns[:-1]] == [
        [f"question {n}"] for n in (2, 3, 4)
    ]
    assert not spool.waiting(home)


def test_whoever_writes_next_stores_what_a_stopped_server_left(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    talk(proxy, upstream, 1)
    with locked(home):
        talk(proxy, upstream, 2, session="S")
    spool.drain(home)
    spool.drain(home)
    assert [(turn.prompt, turn.session == "S") for turn in stored(home)] == [
        ("question 1", False),
        ("question 2", True),
    ]


def test_a_served_turn_comes_back_from_its_file_as_it_was() -> None:
    messages = ({"role": "user", "content": [{"type": "text", "text": "look"}, PICTURE]},)
    turn = Turn("s", messages, "seen", response_ids=(1, 2), response_logprobs=(-0.5, -1.0), version=3,
                calls=({"id": "1", "name": "ls", "arguments": "{}"},), created_at=5.0, ending="stop")  # fmt: skip
    before = served.served_turn(turn, {"x-session-done": "1", "x-session-id": "n"}, {})
    held = json.loads(json.dumps(served.to_json(before, PrivacySection())))
    assert served.from_json(held) == before


def test_tokens_of_a_secret_do_not_wait_on_the_disk() -> None:
    turn = Turn("s", (), f"the key is {KEY}", response_ids=(1, 2), response_logprobs=(-0.5, -1.0))
    after = served.from_json(served.to_json(served.served_turn(turn, {}, {}), PrivacySection()))
    assert KEY not in after.turn.response
    assert (after.turn.response_ids, after.turn.response_logprobs) == (None, None)


def test_of_several_turns_each_is_stored_or_waits_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is bad, so that each is tried on its own, and meanwhile the database is locked."""
    good, bad, late = (served.served_turn(Turn("s", (), text), {}, {}) for text in ("good", "bad", "late"))

    def store_turn(db: store.Store, turn: served.ServedTurn, privacy: PrivacySection) -> int:
        if turn is bad:
            raise ValueError("no turn")
        if turn is late:
            raise StoreBusy("locked")
        return served.store_turn(db, turn, privacy)

    monkeypatch.setattr(recorder, "store_turn", store_turn)
    one = recorder.Recorder(home, PrivacySection())
    with store.connect(home.database) as db:
        assert one._write(db, [good, bad, late]) == [1, None, None]
    assert (one.recorded, one.failed) == (2, 1)
    spool.drain(home)
    assert [turn.response for turn in stored(home)] == ["good", "late"]
