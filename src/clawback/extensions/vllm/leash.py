"""Runs a program, and ends it with everything that it started when whoever started this file is gone.

It is started as a file, ``python -I -S leash.py PROGRAM …``, in a session of its own, with a pipe from its parent as
standard input. The pipe closes when the parent ends, also when the parent is killed. Then, and when the program ends by
itself, every process of the session's group is asked to end, and killed after a few seconds. Nothing of the package is
imported here: it starts within a few milliseconds, under any Python.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

GRACE_SECONDS = 8.0
"""Between the request to end and the kill."""
POLL_SECONDS = 0.05


def main(command: list[str]) -> int:
    # The request to end goes to the whole group, and this process is a part of it.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    try:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", file=sys.stderr, flush=True)
        return 127
    parent_gone = threading.Event()
    threading.Thread(target=wait_for_end_of_input, args=(parent_gone,), daemon=True).start()
    while program.poll() is None and not parent_gone.is_set():
        parent_gone.wait(POLL_SECONDS)
    end_group(program)
    return 0 if parent_gone.is_set() else exit_status(program.wait())


def wait_for_end_of_input(parent_gone: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    parent_gone.set()


def end_group(program: "subprocess.Popen[bytes]") -> None:
    """Ask every process of the group to end, wait for the program, then kill what is left: this process, too, if anything is."""
    os.killpg(0, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline and (program.poll() is None or others()):
        time.sleep(POLL_SECONDS)
    if program.poll() is None or others():
        os.killpg(0, signal.SIGKILL)


def others() -> bool:
    """Whether the group has a living process beside this one. Without /proc: unknown, and so yes."""
    group, this = str(os.getpgrp()), str(os.getpid())
    try:
        numbers = [path.name for path in Path("/proc").iterdir() if path.name.isdigit() and path.name != this]
    except OSError:
        return True
    for number in numbers:
        try:
            state, _, group_id, *_ = Path(f"/proc/{number}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        if group_id.decode() == group and state not in (b"Z", b"X"):
            return True
    return False


def exit_status(code: int) -> int:
    """As a shell says it: 128 and the signal's number where one ended the program."""
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
