"""Temporary folders that are removed when they are no longer needed, or at the next start if a process was killed.

Whoever makes a folder holds a lock on a file in it, which the operating system releases when the process
dies, however it dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import threading
from functools import cache
from pathlib import Path

from clawback.extensions.sandbox import tree

PREFIX = "clawback-"
LOCK = ".held"
_SECONDS = 5.0
_held: dict[Path, int] = {}


def make(name: str) -> Path:
    """A new folder ``clawback-NAME-…`` of this process; ``let_go`` removes it. What dead processes left goes first, once a process."""
    _reap_once(Path(tempfile.gettempdir()))
    root = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{name}-")).resolve()
    descriptor = os.open(root / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    _held[root] = descriptor
    return root


def let_go(root: Path) -> None:
    """Remove a folder with all that is in it, whoever of the box's users it belongs to. May be called twice.

    The caller waits a few seconds at most. A folder that takes longer is removed in the background; what is left of it
    when this process ends is removed by the next one.
    """
    remover = threading.Thread(target=_remove, args=(root,), name="scratch", daemon=True)
    remover.start()
    remover.join(_SECONDS)


def _remove(root: Path) -> None:
    try:
        if root.exists():
            tree.remove(root)
    finally:
        descriptor = _held.pop(root, None)
        if descriptor is not None:
            os.close(descriptor)


def is_dead(root: Path) -> bool:
    """Whether a folder that was made by ``make`` has lost its process, or is gone. One that we cannot look into is not."""
    try:
        descriptor = os.open(root / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return not root.exists()
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


@cache
def _reap_once(where: Path) -> int:
    return reap(where)


def reap(where: Path) -> int:
    """Remove the folders in ``where`` that were made by ``make`` in processes that are dead; how many. Others' folders, links, and those
    without a lock (half a moment old, or of no known owner) are left alone."""
    gone = 0
    for root in where.glob(f"{PREFIX}*-*"):
        with contextlib.suppress(OSError):
            found = root.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            descriptor = os.open(root / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                tree.remove(root)
                gone += 1
            except BlockingIOError:
                pass  # its process lives
            finally:
                os.close(descriptor)
    return gone
