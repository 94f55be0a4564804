"""Boxes on each rung of this machine, and somebody outside who notices what gets out."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawback.extensions.sandbox import Limits, Sandbox, open_sandbox, probe
from clawback.extensions.sandbox.tree import remove
from tests.sandbox.image import ENGINES, image

SECRET = "s3cr3t-of-the-outside"
RUNGS = [rung.name for rung in probe() if rung.usable and rung.name != "none"]
SMALL = Limits(
    seconds=8,
    cpu_seconds=6,
    memory=256 << 20,
    processes=16,
    disk=8 << 20,
    files=500,
    output=1 << 16,
    open_files=64,
)
MIB = 1 << 20


def opened(rung: str, limits: Limits = SMALL) -> Sandbox:
    """A box on any rung, container engines included."""
    return open_sandbox(limits, rung, image=image(rung) if rung in ENGINES else None)


class Outside:
    """What is around the boxes: files, sockets that listen, a process. ``unharmed`` looks whether any of it was touched."""

    def __init__(self) -> None:
        self.mark = f"mark-{secrets.token_hex(6)}"
        self.folder = Path(tempfile.mkdtemp(prefix=self.mark))
        self.folder.chmod(0o755)
        self.secret = self.folder / "secret"
        self.secret.write_text(SECRET)
        self.program = self.folder / "program"
        self.program.write_text("#!/bin/sh\nexit 0\n")
        self.program.chmod(0o755)
        self.home = self.folder / "home"
        self.home.mkdir()
        (self.home / ".bashrc").write_text("# mine\n")
        self.sockets = dict(self._sockets())
        self.victim = subprocess.Popen(
            ["sleep", "10000"],
            env={"PATH": "/usr/bin:/bin", "KEY": SECRET, "victim-of-the-box": "1"},
            start_new_session=True,
        )
        self.before = self._state()

    def _sockets(self) -> Iterator[tuple[str, socket.socket]]:
        made = {"tcp": (socket.AF_INET6, socket.SOCK_STREAM, ("::", 0)), "udp": (socket.AF_INET6, socket.SOCK_DGRAM, ("::", 0)),
                "unix": (socket.AF_UNIX, socket.SOCK_STREAM, str(self.folder / "u")), "datagram": (socket.AF_UNIX, socket.SOCK_DGRAM, str(self.folder / "d")),
                "abstract": (socket.AF_UNIX, socket.SOCK_STREAM, "\0" + self.mark)}  # fmt: skip
        for name, (family, kind, address) in made.items():
            it = socket.socket(family, kind)
            if family == socket.AF_INET6:
                it.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            it.bind(address)
            it.setblocking(False)
            if kind == socket.SOCK_STREAM:
                it.listen()
            if name in ("unix", "datagram"):
                Path(str(address)).chmod(0o777)
            yield name, it

    def given(self, neighbour: str) -> str:
        ports = {name: self.sockets[name].getsockname()[1] for name in ("tcp", "udp")}
        return json.dumps({
            "secret": str(self.secret), "program": str(self.program), "home": str(self.home), "folder": str(self.folder), "mark": self.mark,
            "unix": str(self.folder / "u"), "datagram": str(self.folder / "d"), "abstract": self.mark, "parent": os.getpid(),
            "victim": self.victim.pid, "group": os.getpgid(self.victim.pid), "neighbour": neighbour, "root": os.getuid() == 0, **ports,
        })  # fmt: skip

    def _state(self) -> object:
        files = {
            str(p): (p.lstat().st_mode, p.lstat().st_size, p.lstat().st_mtime_ns, p.lstat().st_uid)
            for p in sorted(self.folder.rglob("*"))
        }
        import resource

        limits = [resource.prlimit(pid, resource.RLIMIT_CPU) for pid in (os.getpid(), self.victim.pid)]
        nice = [os.getpriority(os.PRIO_PROCESS, pid) for pid in (os.getpid(), self.victim.pid)]
        cores = [os.sched_getaffinity(pid) for pid in (os.getpid(), self.victim.pid)]
        return files, self.secret.read_text(), limits, nice, cores, self.victim.poll()

    def unharmed(self) -> None:
        assert self._state() == self.before
        assert "T" not in Path(f"/proc/{self.victim.pid}/stat").read_text().rpartition(")")[2].split()[0]
        for name, it in self.sockets.items():
            with contextlib.suppress(BlockingIOError):
                it.accept() if it.type == socket.SOCK_STREAM else it.recv(100)
                pytest.fail(f"something reached the outside by {name}")

    def survivors(self) -> list[str]:
        """Processes of a box that are still there: all have our mark in their environment."""
        found = []
        for place in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if place.name.isdigit() and self.mark.encode() in (place / "environ").read_bytes():
                    found.append((place / "cmdline").read_text())
        return found

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for it in self.sockets.values():
            it.close()
        remove(self.folder)


@pytest.fixture(scope="session")
def outside() -> Iterator[Outside]:
    it = Outside()
    yield it
    it.close()


@pytest.fixture(scope="module")
def shared_box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with opened(request.param) as box:
        yield box


@pytest.fixture(params=[*RUNGS, *ENGINES])
def box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with opened(request.param) as it:
        yield it
