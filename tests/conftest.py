"""What every test shares: a home of its own, and no way to a real one; and a version that was really trained."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import gc
import os
import pickle
import random
import shutil
import signal
import sqlite3
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from hypothesis import settings

from clawback import feedback, jobs, store
from clawback.encryption import keys
from clawback.paths import Home
from clawback.records import Turn
from clawback.store import connection

T = TypeVar("T")

settings.register_profile("patient", deadline=None)  # a busy machine is no defect
settings.load_profile("patient")


if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # What a shell runs in the background ignores Ctrl-C, and so would every process that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Switch the collector of cycles off while modules are imported: it takes a third of the time that tests are collected in."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what was imported and collected (a million objects, none of which is ever freed) out of every later pass."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """httpx reads all certificates for each call without a client, also on loopback without TLS: 20 to 70 ms of CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield


class _Impatient:
    """``asyncio`` with sleeps of ten milliseconds at most."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01))


@pytest.fixture(scope="session", autouse=True)
def servers_end_at_once() -> Iterator[None]:
    """uvicorn looks ten times a second whether it is to end, and then waits a tenth of a second: hundreds of tests end a server or two."""
    import uvicorn.server

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn.server, "asyncio", _Impatient())
        yield


@pytest.fixture(scope="session")
def open_copy_of_blank(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., sqlite3.Connection]:
    """``open_database``, but a new database is a copy of an empty one: its 150 statements take 45 ms of CPU, and most tests need one."""
    blank = tmp_path_factory.mktemp("blank") / "clawback.db"
    connection.open_database(blank).close()

    def opened(path: Path, **more: Any) -> sqlite3.Connection:
        # Where there can be no file, open_database says why.
        with contextlib.suppress(OSError):
            if not path.exists() and not keys.encrypted(path):
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                copy = path.with_name(f"{path.name}.{threading.get_ident()}")
                shutil.copyfile(blank, copy)
                copy.chmod(0o600)
                copy.rename(path)
        return connection.open_database(path, **more)

    return opened


@pytest.fixture(autouse=True)
def isolated(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    open_copy_of_blank: Callable[..., sqlite3.Connection],
) -> None:
    """Nobody's settings are read or written: HOME and CLAWBACK_HOME are temporary in every test."""
    root = tmp_path_factory.mktemp("person")
    monkeypatch.setenv("HOME", str(root))
    monkeypatch.setenv("CLAWBACK_HOME", str(root / ".clawback"))
    # Workers of pytest-xdist are given COLUMNS, by which text would be folded.
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    if "store" not in request.path.parts:
        for module in ("store", "turn_store"):
            monkeypatch.setattr(f"clawback.store.{module}.open_database", open_copy_of_blank)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A fresh, empty home."""
    made = Home(tmp_path / "clawback")
    made.create()
    return made


SETTINGS = """
[training]
algorithm = "reinforce"
background = false
[training.overrides]
steps = 2
[generation]
max_tokens = 16
[gate]
more_ratings = 0
"""
"""Short runs; and a gate that asks nothing, so that what is stored is what was rated."""
RATED = 12


def rate_some(home: Home, count: int = RATED) -> None:
    """Turns in random styles, rated by somebody who likes bullets."""
    from clawback.extensions.demo import corpus, tastes

    home.create()
    home.config.write_text(SETTINGS)
    taste, rng = tastes.TASTES["bullets"], random.Random(0)
    with store.connect(home.database) as db:
        for prompt in corpus.prompts("rated", count, 0):
            text = corpus.answer(corpus.BY_NAME[prompt.topic], corpus.random_style(rng), rng)
            turn = db.add_turn(Turn(session="s", messages=tuple(prompt.messages), response=text))
            feedback.rate(db, turn.id, taste.rate(prompt, text, rng, 0.0))


@pytest.fixture
def rated(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The home that the commands use, with rated turns."""
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    rate_some(home)
    return home


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], T]], T]:
    """``shared(name, make)``: what ``make(folder)`` returns. The first of the test processes makes it, the others read it."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    def once(name: str, make: Callable[[Path], T]) -> T:
        kept = root / f"{name}.pickle"
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.is_file():
                kept.write_bytes(pickle.dumps(make(Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root)))))
        return cast("T", pickle.loads(kept.read_bytes()))

    return once


@pytest.fixture(scope="session")
def trained_once(shared: Callable[..., Home]) -> Home:
    def make(folder: Path) -> Home:
        home = Home(folder)
        rate_some(home)
        jobs.train_once(home)
        return home

    return shared("trained", make)


def copied(home: Home, to: Home) -> None:
    """All of a home, in another place."""
    shutil.copytree(home.root, to.root, dirs_exist_ok=True)
    with sqlite3.connect(to.database) as raw:
        raw.execute("UPDATE versions SET path = replace(path, ?, ?)", (str(home.root), str(to.root)))
    raw.close()


@pytest.fixture
def trained(trained_once: Home, home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of its own with version 1, which the gate is said to have passed, and which is live."""
    copied(trained_once, home)
    with store.connect(home.database) as db:
        report = dict(db.version(1).report or {}) | {"accepted": True}
        db.set_report(1, report)
        db.promote(1)
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    return home
