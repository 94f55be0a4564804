"""A program in a terminal of its own (a pty), typed into and read as a person would."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B]|[=>78DEHMc])")
REPLIES = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?1;2c", b"\x1b[?u": b"\x1b[?0u"}
"""What a program asks its terminal, which answers as if it had been typed: the cursor's place, what it is, its keyboard."""
ROWS, COLUMNS = 50, 120


def plain(text: str) -> str:
    """Without escapes and blanks: what does not change on a screen is not written again, and blanks often do not."""
    return "".join(ESCAPES.sub("", text).split())


class Terminal:
    """Use as a context manager. Whoever leaves early ends the program."""

    def __init__(self, command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> None:
        self.command, self.cwd, self.environment = command, cwd, dict(environment)
        self.written, self.mark = "", 0

    def __enter__(self) -> Terminal:
        self.fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            self.command,
            cwd=self.cwd,
            env=self.environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=30)
        os.close(self.fd)

    def _read(self) -> None:
        letters = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            try:
                data = os.read(self.fd, 65536)
            except OSError:  # the program has gone
                return
            for question, reply in REPLIES.items():
                for _ in range(data.count(question)):
                    os.write(self.fd, reply)
            self.written += letters.decode(data)

    def new(self) -> str:
        """What came on the screen since something was last typed."""
        return plain(self.written[self.mark :])

    def shows(self, text: str, seconds: float = 60) -> None:
        self.until(f"{text!r} on the screen", lambda: plain(text) in self.new(), seconds)

    def until(self, what: str, true: Callable[[], Any], seconds: float = 60) -> None:
        """Another process does it, so it is looked for until it is so."""
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}; {self.new()[-3000:]}"
            assert self.process.poll() is None, f"it has ended: {self.new()[-3000:]}"
            time.sleep(0.05)

    def ends(self, seconds: float = 30) -> None:
        assert self.process.wait(timeout=seconds) == 0

    def press(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def choose(self, key: str, shown: str) -> None:
        """Press a key until it has had its effect: what is typed while a dialogue opens may be dropped."""
        self.until(shown, lambda: plain(shown) in self.new() or self.press(key))

    def say(self, text: str) -> None:
        """Paste a line and send it. Return comes once the line is on the screen: before, it would be a part of what is pasted."""
        self.mark = len(self.written)
        self.press(f"\x1b[200~{text}\x1b[201~")
        self.shows(text)
        self.mark = len(self.written)
        self.press("\r")
