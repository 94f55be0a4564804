"""A server that cannot start says why; a second one of the same home says that there is another."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from clawback import config, store
from clawback.capture import script, server_proof
from clawback.cli import serve
from clawback.paths import Home
from clawback.serve import app


def lifespan(made: Any) -> list[dict[str, Any]]:
    """What the app tells the program that runs it when that starts."""
    told: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: dict[str, Any]) -> None:
        told.append(message)

    asyncio.run(made({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send))
    return told


def test_a_model_that_is_gone_is_a_sentence_and_no_traceback(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    config.save(home.config, {"model": {"base": str(tmp_path / "gone")}})
    [told] = lifespan(app.make(home))
    assert told["type"] == "lifespan.startup.failed"
    assert "gone" in told["message"]
    assert "Traceback" not in told["message"]


def test_a_damaged_database_is_a_sentence_too(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    with store.connect(home.database):
        pass
    home.database.write_bytes(b"no database" * 1000)
    [told] = lifespan(app.make(home))
    assert "clawback data salvage" in told["message"]
    assert "Traceback" not in told["message"]


def test_another_server_of_the_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    assert serve.other_server(home, 8742) is None
    script.announce(home, 9999)
    assert serve.other_server(home, 8742) is None, "it was announced, and does not answer"
    monkeypatch.setattr(server_proof, "proven", lambda _, port: port == 9999)
    assert serve.other_server(home, 8742) == 9999
    assert serve.other_server(home, 9999) is None
