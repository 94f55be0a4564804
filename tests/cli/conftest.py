"""Commands called as the console script calls them, and a terminal for those that ask."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clawback.cli import main

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
