"""A home with a version that was really trained, made once and copied for each test that changes it."""

from __future__ import annotations

import os
import pty
import random
import select
import shutil
import sqlite3
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clawback import feedback, jobs, store
from clawback.cli import main
from clawback.engine.embedded import corpus, tastes
from clawback.paths import Home
from clawback.records import Turn

SETTINGS = """
[training]
algorithm = "reinforce"
background = false
[training.overrides]
steps = 2
[generation]
max_tokens = 40
"""
RATED = 12


def rate_some(home: Home, count: int = RATED) -> None:
    """Turns in random styles, rated by somebody who likes bullets."""
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
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = Home(tmp_path_factory.mktemp("trained"))
    rate_some(made)
    jobs.train_once(made)
    return made


@pytest.fixture
def trained(trained_once: Home, home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of its own with version 1, which the gate is said to have passed, and which is live."""
    shutil.copytree(trained_once.root, home.root, dirs_exist_ok=True)
    with sqlite3.connect(home.database) as raw:
        raw.execute(
            "UPDATE versions SET path = replace(path, ?, ?)", (str(trained_once.root), str(home.root))
        )
    raw.close()
    with store.connect(home.database) as db:
        report = dict(db.version(1).report or {}) | {"accepted": True}
        db.set_report(1, report)
        db.promote(1)
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    return home


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """``run("ask", "…")`` → exit code, stdout, stderr, as the console script would give them."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call


class Terminal:
    """``clawback …`` in a terminal of its own, and a person who waits for what is asked before they type."""

    def __init__(self, arguments: tuple[str, ...], environment: dict[str, str], output: Path | None) -> None:
        self.parent, child = pty.openpty()
        self.output = output.open("w") if output else None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "clawback", *arguments],
            stdin=child,
            stdout=self.output or child,
            stderr=child,
            env=os.environ | {"TERM": "xterm"} | environment,
            start_new_session=True,
        )
        os.close(child)
        self.shown, self.seen = "", 0

    def until(self, text: str, seconds: float = 120) -> str:
        """Wait for ``text`` after whatever was waited for before; returns what was shown up to its end."""
        deadline = time.monotonic() + seconds
        while (found := self.shown.find(text, self.seen)) < 0:
            ready, _, _ = select.select([self.parent], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{text!r} never came: {self.shown!r}"
            try:
                self.shown += os.read(self.parent, 4096).decode("utf-8", "replace")
            except OSError:
                raise AssertionError(f"it ended before {text!r}: {self.shown!r}") from None
        before, self.seen = self.seen, found + len(text)
        return self.shown[before : self.seen]

    def types(self, text: str) -> None:
        os.write(self.parent, text.encode())

    def presses(self, key: str, seconds: float = 30) -> None:
        """One key, once it is waited for: what comes before the terminal is raw is thrown away."""
        deadline = time.monotonic() + seconds
        while termios.tcgetattr(self.parent)[3] & termios.ICANON:
            assert time.monotonic() < deadline, f"no key was asked for: {self.shown!r}"
            time.sleep(0.01)
        self.types(key)

    def ends_with(self, seconds: float = 60) -> int:
        """Read on until it ends; its exit code."""
        deadline = time.monotonic() + seconds
        try:
            while True:
                ready, _, _ = select.select([self.parent], [], [], max(0, deadline - time.monotonic()))
                assert ready, f"it did not end: {self.shown!r}"
                if not (chunk := os.read(self.parent, 4096)):
                    break
                self.shown += chunk.decode("utf-8", "replace")
        except OSError:  # the other end has closed
            pass
        return self.process.wait(timeout=30)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.parent)
        if self.output:
            self.output.close()


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    """``terminal("chat", CLAWBACK_HOME=…, output=FILE)``: a command in a terminal; ended with the test."""
    opened: list[Terminal] = []

    def open_one(*arguments: str, output: Path | None = None, **environment: str) -> Terminal:
        opened.append(Terminal(arguments, environment, output))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()
