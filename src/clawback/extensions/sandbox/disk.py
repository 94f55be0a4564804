"""The file system of a fixed size that holds a box's writable folders.

The kernel holds the limits of bytes and files: bytes count however they are held (unlinked, mapped, in flight between
processes), folders count as files, and the whole file system goes at once when its descriptors are closed. It is made by
``disk_maker.py`` and seen only by processes that enter its mount namespace; this process reaches its files through a descriptor.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from clawback.errors import SandboxError

_MAKER = Path(__file__).with_name("disk_maker.py")
_OWN_FILES = 8
"""Inodes for the root and the box's own folders."""
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Disk:
    """A sized file system. ``namespaces`` are what a process enters, in this order, to see it at ``at``."""

    at: Path
    root: int
    namespaces: tuple[int, ...]
    listener: int | None = None
    """A socket of ours that listens on the loopback device of the box's own network, where it has one."""

    @property
    def path(self) -> Path:
        """Its root, as this process reaches it."""
        return Path(f"/proc/self/fd/{self.root}")

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Without the listener, which belongs to who listens."""
        return (self.root, *self.namespaces)

    def close(self) -> None:
        """Remove it with all that is in it."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def make(at: Path, size: int, files: int, port: int = 0) -> Disk:
    """A file system of ``size`` bytes and ``files`` files at the empty folder ``at``, and with a ``port`` a network on whose loopback device
    we listen. Raises ``SandboxError``."""
    near, far = socket.socketpair()
    with near, far:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", str(_MAKER), str(far.fileno()), str(at), str(size), str(files + _OWN_FILES), str(port)],
                pass_fds=(far.fileno(),), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=_SECONDS, check=False, cwd="/",
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxError(f"The box's file system cannot be made: {error}.") from error
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise SandboxError(f"The box's file system cannot be made: {reason}.")
        _, descriptors, _, _ = socket.recv_fds(near, 1, 5)
    *descriptors, network, listener = descriptors if port else [*descriptors, -1, -1]
    root, mounts, *user = descriptors
    if not port:
        return Disk(at, root, (*user, mounts))
    return Disk(at, root, (*user, mounts, network), listener)


@cache
def usable() -> str:
    """Why no sized file system can be made on this machine ("" if one can)."""
    if sys.platform != "linux":
        return "only Linux has it"
    try:
        with tempfile.TemporaryDirectory(prefix="clawback-") as folder:
            make(Path(folder), 1 << 16, 1).close()
    except SandboxError as error:
        return str(error)
    return ""
