"""``clawback connect channel``, as a person runs it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("telegram")

from clawback.cli import main
from clawback.paths import Home
from tests.channels import fake_telegram
from tests.channels.conftest import SECONDS
from tests.channels.world import World

TOKEN = World.TOKENS["token"]


async def start(home: Home, world: Any, token: str, *before: str) -> asyncio.subprocess.Process:
    home.config.write_text(f'[telegram]\nowners = [1001]\ntoken = "OUR_TOKEN"\n{world.settings()}')
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "clawback", *before, "channel", "telegram"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "CLAWBACK_HOME": str(home.root), "OUR_TOKEN": token},
    )


@pytest.mark.parametrize(
    ("before", "how"),
    [
        (signal.SIG_IGN, signal.SIGINT),
        (signal.default_int_handler, signal.SIGTERM),
        pytest.param(signal.SIG_IGN, signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.default_int_handler, signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_it_runs_until_it_is_told_to_end(
    home: Home, monkeypatch: pytest.MonkeyPatch, how: signal.Signals, before: Any
) -> None:
    """In the foreground, and as a background job of a shell, for which SIGINT is ignored."""
    former = signal.signal(signal.SIGINT, before)
    try:
        _runs_until(home, monkeypatch, how)
    finally:
        signal.signal(signal.SIGINT, former)


def _runs_until(home: Home, monkeypatch: pytest.MonkeyPatch, how: signal.Signals) -> None:
    async def whole() -> None:
        async with asyncio.timeout(SECONDS), fake_telegram.world(monkeypatch) as world:
            bot = await start(home, world, TOKEN)
            await world.says(world.OWNER, "Is anybody there?")
            assert "clawback serve" in (await world.next()).text
            await world.says(world.OWNER, "/rl status")
            assert "The base model is live" in (await world.next()).text
            bot.send_signal(how)
            said, complained = await bot.communicate()
            assert bot.returncode == 0, complained.decode()
            assert said == b""
            assert b"listening as @claw_bot" in complained
            assert b"Traceback" not in complained
            assert TOKEN.encode() not in complained

    asyncio.run(whole())


@pytest.mark.parametrize("before", [(), ("--debug",)])
def test_a_wrong_token_is_not_shown_even_in_a_traceback(
    home: Home, monkeypatch: pytest.MonkeyPatch, before: tuple[str, ...]
) -> None:
    async def whole() -> None:
        async with asyncio.timeout(SECONDS), fake_telegram.world(monkeypatch) as world:
            bot = await start(home, world, "1234:stolen", *before)
            said, complained = await bot.communicate()
            assert bot.returncode == 1
            assert b"does not accept the token in OUR_TOKEN" in complained
            assert b"stolen" not in said + complained

    asyncio.run(whole())


def test_check_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path / "home")
    home.create()
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    monkeypatch.delenv("TELEGRAM_BOT_TOKEN", raising=False)
    (home.root / "server.port").write_text("9\n")
    assert main(["channel", "telegram", "--check", "--json"]) == 1
    missing = json.loads(capsys.readouterr().out)["missing"]
    assert [part in " ".join(missing) for part in ("TELEGRAM_BOT_TOKEN", "owners", "clawback serve")] == [
        True
    ] * 3
    # What is missing is said in place of starting, too.
    assert main(["channel", "telegram"]) == 2
    assert "TELEGRAM_BOT_TOKEN" in capsys.readouterr().err
