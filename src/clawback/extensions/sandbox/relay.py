"""Runs a program in a box, and passes on its input and output: ``python -m clawback.extensions.sandbox.relay [OPTIONS] -- PROGRAM ARGUMENT…``.

For servers that speak over stdin and stdout and that nobody vouches for. The box has no network. It ends with this process, with
its input, or at its limits.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from pathlib import Path

from clawback.errors import ClawbackError
from clawback.extensions.sandbox.box import Extra
from clawback.extensions.sandbox.box_process import Process
from clawback.extensions.sandbox.ladder import open_sandbox
from clawback.extensions.sandbox.limits import MIB, Limits

LIMITS = Limits(seconds=3600, cpu_seconds=600, memory=1024 * MIB, address_space=4096 * MIB, output=64 * MIB)
FOLDER = "/server"
"""What the program's own folder is called in the box, where the rung can give it a name."""
_LOOK = 0.01


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="relay")
    parser.add_argument("--read", action="append", default=[], type=Path)
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(argv)
    env = {name: os.environ[name] for name in options.env if name in os.environ}
    try:
        shown = Extra(FOLDER, options.folder, copy=False)
        with open_sandbox(LIMITS, read=options.read, extra=[shown]) as box:
            process = box.start(options.command, env=env, cwd=FOLDER)
            threading.Thread(target=_pass_input, args=(process,), daemon=True).start()
            while process.running:
                if not _pass_output(process):
                    time.sleep(_LOOK)
            result = process.wait()
            _pass_output(process)
            return result.exit_code
    except ClawbackError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _pass_input(process: Process) -> None:
    while data := os.read(0, 1 << 16):
        process.write(data)
    process.stop()


def _pass_output(process: Process) -> bool:
    """Whether there was any."""
    out, err = process.view_bytes()
    for stream, data in ((1, out), (2, err)):
        while data:
            data = data[os.write(stream, data) :]
    return bool(out or err)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
