"""Records a command in a terminal of its own as an asciicast (version 2): ``python docs/pictures/record.py OUT.cast clawback demo``.

What is in the file is what the program wrote, with the times at which it did; nothing is cut or typed in. ``idle_time_limit`` in the header tells players to wait no
longer than that where nothing happens. The format: https://docs.asciinema.org/manual/asciicast/v2/
"""

from __future__ import annotations

import codecs
import json
import os
import pty
import shlex
import struct
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

COLUMNS, ROWS = 80, 30
LONGEST_PAUSE = 1.5


def record(out: Path, command: list[str]) -> int:
    """Its exit code."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS))
        os.environ.pop("NO_COLOR", None)
        os.execvp(command[0], command)  # noqa: S606
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    began, decode = time.monotonic(), codecs.getincrementaldecoder("utf-8")("replace")
    head = {
        "version": 2, "width": COLUMNS, "height": ROWS, "timestamp": int(time.time()), "idle_time_limit": LONGEST_PAUSE,
        "title": shlex.join(["clawback", *command[1:]]), "env": {"TERM": "xterm-256color"},
    }  # fmt: skip
    with out.open("w", encoding="utf-8") as file:
        file.write(json.dumps(head) + "\n")
        while True:
            try:
                data = os.read(terminal, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not data:
                break
            if text := decode.decode(data):
                file.write(json.dumps([round(time.monotonic() - began, 3), "o", text]) + "\n")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    raise SystemExit(record(Path(sys.argv[1]), sys.argv[2:]))
