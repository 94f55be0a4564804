"""A rating waits for no answer that cannot come, and who gave it is told; a busy server is asked again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import closing, contextmanager
from typing import Any

import pytest

from clawback import config, store
from clawback.capture import ingest, server_proof, spool
from clawback.capture.events import PromptEvent
from clawback.extensions.channels import channel
from clawback.extensions.channels.channel import Desk, Heard
from clawback.inference import wire
from clawback.paths import Home
from clawback.store.connection import sqlite3
from tests.serve.conftest import Running

OWNER = "1"


class Chat:
    """One conversation with a bot, and what it posted there."""

    def __init__(self, home: Home) -> None:
        self.home, self.posted = home, []
        self.desk = Desk(home, "x", config.ChannelSection(owners=(OWNER,)), 1000)

    async def send(self, text: str) -> str:
        self.posted.append(text)
        return f"m{len(self.posted)}"

    async def says(self, id: str, text: str, session: str = "c") -> str:
        await self.desk.hear(Heard(session, id, OWNER, text, direct=True), self.send)
        return self.posted[-1]


def waiting(home: Home) -> list[str]:
    with store.connect(home.database) as db:
        return [early.post for early in db.early() if not early.lost]


def test_a_rating_of_an_answer_that_fails_is_lost_and_its_giver_told(home: Home) -> None:
    chat, rated = Chat(home), asyncio.Event()

    async def asked(*_: Any) -> tuple[str, str]:
        await rated.wait()
        raise channel.Unanswered("The model did not answer.")

    async def scene() -> None:
        chat.desk._ask = asked  # type: ignore[method-assign]
        question = asyncio.create_task(chat.says("q1", "One?"))
        while not chat.desk.open:
            await asyncio.sleep(0)
        assert "still to come" in await chat.says("r1", "/rl good nice")
        rated.set()
        await question
        assert "The model did not answer. Your rating of" in chat.posted[-1]
        assert "(good) came to nothing: its answer failed." in chat.posted[-1]
        assert waiting(home) == []
        assert "waits" not in await chat.says("r2", "/rl status")
        assert "came to nothing" not in await chat.says("r3", "/rl status"), "it was told once"

    asyncio.run(scene())


def test_what_a_stopped_bot_left_behind_waits_for_nothing(home: Home) -> None:
    """Killed while it answered: the next bot knows that nobody answers that question any more."""
    ingest.take(home, "x", PromptEvent("c", "One?", "q1", by=OWNER))
    ingest.take(home, "x", PromptEvent("c", "/rl good", "r1", by=OWNER))
    assert waiting(home)
    chat = Chat(home)
    reply = asyncio.run(chat.says("r2", "/rl bad"))
    assert waiting(home) == []
    assert "came to nothing: its answer was given up when the bot stopped" in reply
    assert "still to come" not in reply


def test_a_bot_that_is_stopped_gives_the_question_up(home: Home) -> None:
    chat = Chat(home)

    async def never(*_: Any) -> tuple[str, str]:
        await asyncio.Event().wait()
        raise AssertionError

    async def scene() -> None:
        chat.desk._ask = never  # type: ignore[method-assign]
        question = asyncio.create_task(chat.says("q1", "One?"))
        while not chat.desk.open:
            await asyncio.sleep(0)
        await chat.says("r1", "/rl good")
        await chat.desk.close()
        await asyncio.gather(question, return_exceptions=True)

    asyncio.run(scene())
    assert waiting(home) == []
    assert "came to nothing" in asyncio.run(Chat(home).says("r2", "/rl status"))


def busy(home: Home, tries: int, port: Callable[[], int]) -> Any:
    """A server that has no time for the first proofs."""
    left = tries

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal left
        if scope["type"] == "lifespan":
            while True:
                await send({"type": (await receive())["type"] + ".complete"})
        await wire.body(receive)
        if scope["path"] == server_proof.PATH:
            left -= 1
            while left >= 0 and (await receive())["type"] != "http.disconnect":
                pass
            asked = dict(scope["headers"])[server_proof.HEADER.lower().encode()].decode()
            await wire.respond(send, 200, server_proof.answer(home, port(), asked).encode())
            return
        answer = {"model": "m", "choices": [{"message": {"content": "Here."}}]}
        await wire.respond(send, 200, json.dumps(answer).encode())

    return app


@pytest.mark.parametrize("tries", [2, 10_000])
def test_a_busy_server_is_asked_again_and_not_called_dead(
    home: Home, running: Callable[[Any], Running], monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    monkeypatch.setattr(channel, "PROOF_SECONDS", 0.2)
    monkeypatch.setattr(channel, "ANSWER_SECONDS", 60.0 if tries == 2 else 0.5)
    ports: list[int] = []
    there = running(busy(home, tries, lambda: ports[0]))
    ports.append(there.port)
    (home.root / "server.port").write_text(f"{there.port}\n")
    reply = asyncio.run(Chat(home).says("q1", "One?"))
    if tries == 2:
        assert reply == "Here."
    else:
        assert "busy" in reply
        assert "start it" not in reply


@contextmanager
def locked(home: Home) -> Any:
    with closing(sqlite3.connect(home.database, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def test_an_answer_and_a_rating_that_the_database_cannot_take_are_kept(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "BUSY_SECONDS", 0.01)
    with store.connect(home.database):
        pass
    chat = Chat(home)

    async def answered(*_: Any) -> tuple[str, str]:
        return "Here.", "m"

    chat.desk._ask = answered  # type: ignore[method-assign]
    with locked(home):
        assert asyncio.run(chat.says("q1", "One?")) == "Here."
        assert "stored as soon as" in asyncio.run(chat.says("r1", "/rl good"))
        assert "in use" in asyncio.run(chat.says("r2", "/rl status"))
    spool.drain(home)
    with store.connect(home.database) as db:
        [turn] = db.turns()
        assert (turn.prompt, turn.response, turn.model) == ("One?", "Here.", "m")
        assert [f.value for f in db.feedback(turn_id=turn.id)] == [1.0]
