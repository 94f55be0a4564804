"""A box (sandbox): folders of its own, and commands that can reach nothing else."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from clawback.errors import SandboxError, SandboxRefused, UsageError
from clawback.extensions.sandbox import container, disk, scratch, tree
from clawback.extensions.sandbox.box_process import Process
from clawback.extensions.sandbox.disk import Disk
from clawback.extensions.sandbox.limits import BoxCommand, CommandResult, Limits
from clawback.extensions.sandbox.rungs import (
    ACCOUNTS,
    ENGINES,
    INNER_ID,
    OWN_USERS,
    SIZED,
    BoxFolder,
    BoxLayout,
    RungName,
    inside,
    plan,
    search_path,
)

WORK = "/work"
PORT = 8742
"""Of the server in a box's own network."""
_READ_LIMIT = 64 << 20
_FIRST_USER, _USERS = 1_000_000_000, 1000
_users: set[int] = set()
_users_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Extra:
    """A folder that a box shows beside its own: ``source`` is copied in, or shown where it lies, to be read alone."""

    at: str
    source: Path | None = None
    write: bool = False
    copy: bool = True


@dataclass(frozen=True, slots=True)
class BoxOptions:
    """What a box has beside its limits."""

    read: Sequence[Path] = ()
    """Paths outside that it may read."""
    work: str = WORK
    extra: Sequence[Extra] = ()
    image: str | None = None
    """It is a container of this image."""
    network: bool = False
    """A loopback device of its own with one server on it, ours (``listener``, ``address``)."""


class Sandbox:
    """One box. Commands are independent: processes that one leaves running are ended; its files stay until ``close``.

    Paths are as the programs in the box would name them: from its root, or below its working folder. On rungs
    without file names of their own, ``path`` gives the name that a program must use instead; relative names
    always work.
    """

    def __init__(
        self, rung: RungName, limits: Limits, options: BoxOptions | None = None, *, sized: bool | None = None
    ) -> None:
        """``sized``: whether its writable folders are a file system of a fixed size (None: where that can be made)."""
        options = options or BoxOptions()
        work, image, network = options.work, options.image, options.network
        if (image is not None) != (rung in ENGINES):
            raise SandboxRefused(f"The rung {rung} runs {'an image' if rung in ENGINES else 'no images'}.")
        self.rung, self.limits, self.work, self.image = rung, limits, work, image
        if image is not None:
            container.reap_once(rung)
        self._uid = _take_user() if rung in OWN_USERS and os.geteuid() == 0 else None
        self._root = scratch.make("box")
        self._root.chmod(0o711)
        self._closed = False
        self._running: list[Process] = []
        self._disk: Disk | None = None
        self.listener: socket.socket | None = None
        """Listens where programs of the box reach ``address``; nothing else answers them."""
        try:
            if network and rung != "none" and (rung not in SIZED or sized is False or disk.usable()):
                why = disk.usable() or f"the rung {rung} has none"
                raise SandboxRefused(f"A box with a network of its own cannot be made here: {why}.")
            if rung in SIZED and (not disk.usable() if sized is None else sized):
                at = self._root / "disk"
                at.mkdir(mode=0o711)
                self._disk = disk.make(at, limits.disk, limits.files, PORT if network else 0)
            if network:
                self.listener = self._listen()
            folders = [
                self._folder("work", Extra(work, write=True)),
                self._folder("tmp", Extra("/tmp", write=True)),  # noqa: S108
            ]
            folders += [self._folder(f"extra-{n}", one) for n, one in enumerate(options.extra)]
            self._layout = BoxLayout(
                tuple(folders), tuple(options.read), self._accounts(), self._uid, self._disk, network
            )
        except BaseException:
            self.close()
            raise

    def _listen(self) -> socket.socket:
        if self._disk is not None and self._disk.listener is not None:
            return socket.socket(fileno=self._disk.listener)
        return socket.create_server(("127.0.0.1", 0))

    @property
    def address(self) -> str:
        """What programs of the box reach us by."""
        assert self.listener is not None
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def _folder(self, name: str, extra: Extra) -> BoxFolder:
        if extra.source is not None and not extra.copy:
            return BoxFolder(extra.source.resolve(), extra.at, False)
        held = self._disk if extra.write else None
        files = (held.path if held else self._root) / name
        files.mkdir(mode=0o755)
        owner = self._uid if extra.write else None
        if extra.source is not None:
            tree.copy(extra.source, files, owner, self.limits.disk, self.limits.files)
        if owner is not None:
            os.chown(files, owner, owner)
        return BoxFolder(held.at / name if held else files, extra.at, extra.write, files)

    def _accounts(self) -> Path:
        folder = self._root / "system"
        folder.mkdir(mode=0o755)
        for path, text in ACCOUNTS.items():
            (folder / Path(path).name).write_text(text.replace("{id}", str(self._uid or INNER_ID)))
            (folder / Path(path).name).chmod(0o644)
        return folder

    # ---- commands

    def exec(
        self, argv: Sequence[str], *, input: bytes = b"", timeout: float | None = None,
        env: Mapping[str, str] | None = None, cwd: str | None = None,
    ) -> CommandResult:  # fmt: skip
        """Run a command to its end. Raises ``SandboxError`` only where it could not be run within its walls."""
        return self._start(BoxCommand(argv, env or {}, cwd or ".", input, timeout)).wait()

    def start(
        self, argv: Sequence[str], *, timeout: float | None = None, env: Mapping[str, str] | None = None,
        cwd: str | None = None, interactive: bool = True,
    ) -> Process:  # fmt: skip
        """Start a command. It ends with the box, or at its limits. ``interactive``: its input stays open; else it is empty."""
        process = self._start(BoxCommand(argv, env or {}, cwd or ".", timeout=timeout), keep_open=interactive)
        process.attend()
        self._running.append(process)
        return process

    def _start(
        self, command: BoxCommand, *, keep_open: bool = False, layout: BoxLayout | None = None
    ) -> Process:
        if self._closed:
            raise SandboxError("The box is closed.")
        if not command.argv or not command.argv[0] or any("\0" in word for word in command.argv):
            raise UsageError("A command is a list of words, without null characters.")
        for folder in self._layout.folders:
            if folder.write:  # whatever the last command did to it: it can be entered again
                folder.files.chmod(0o755)
        limits = self.limits
        if command.timeout is not None:
            limits = replace(limits, seconds=min(command.timeout, limits.seconds))
        layout = layout or self._layout
        entered = replace(command, env={**self.environment(), **command.env}, cwd=self.path(command.cwd))
        if self.image is not None:
            spec = container.plan(self.rung, self.image, layout, entered, limits)
        else:
            spec = plan(self.rung, layout, entered, limits)
        return Process(spec, limits, command.input, keep_open)

    def environment(self) -> dict[str, str]:
        """A command's complete environment: nothing of ours, nor of the person's."""
        home, temporary = self.path(self.work), self.path("/tmp")  # noqa: S108
        path = (
            {} if self.image else {"PATH": search_path(self.rung, self._layout)}
        )  # an image says where its programs are
        return {
            **path, "HOME": home, "TMPDIR": temporary, "LANG": "C.UTF-8", "TERM": "dumb", "USER": "agent",
            "SHELL": "/bin/bash", "PYTHONDONTWRITEBYTECODE": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
        }  # fmt: skip

    def path(self, at: str) -> str:
        """What a program in the box calls this path."""
        return inside(self.rung, self._layout, self._absolute(at))

    # ---- files

    def read(self, path: str, limit: int = _READ_LIMIT) -> bytes:
        """A plain file's content. Links are not followed, wherever they point."""
        root, below, _ = self._location(path)
        return tree.read(root, below, limit)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file, with the folders that lead to it; in read-only folders of the box too."""
        root, below, owner = self._location(path)
        if len(data) > self.limits.disk:
            raise UsageError(f"{path} would have {len(data)} bytes; the box holds {self.limits.disk}.")
        tree.write(root, below, data, mode, owner)

    def fill(self) -> None:
        """Copy in what the image has in the working folder. It is done in the box: a box without an image is left empty."""
        if self.image is None:
            return
        layout, argv = container.filling(self._layout, self.work)
        done = self._start(BoxCommand(argv, cwd="/"), layout=layout).wait()
        if not done.ok:
            why = f"it passes the limit of {done.ended}" if done.ended else container.last_line(done.stderr)
            raise SandboxError(f"The {self.work} of the image {self.image} cannot be copied: {why}.")

    def put(self, source: Path, at: str = ".") -> None:
        """Copy a folder's content in."""
        target, owner = self._folder_of(at)
        tree.copy(source, target, owner, self.limits.disk, self.limits.files)

    def take(self, target: Path, at: str = ".") -> None:
        """Copy a folder's content out (links as links; no pipes, sockets or devices) into a new folder."""
        target.mkdir(mode=0o700)
        tree.copy(self._folder_of(at)[0], target, None, self.limits.disk, self.limits.files)

    def _absolute(self, path: str) -> str:
        return os.path.normpath(path if path.startswith("/") else f"{self.work}/{path}")

    def _location(self, path: str) -> tuple[Path, str, int | None]:
        if ".." in path.split("/"):
            raise SandboxRefused(f"{path!r} is no file in the box. Name one without `..`.")
        whole = self._absolute(path)
        for folder in sorted(self._layout.folders, key=lambda one: -len(one.at)):
            for name in (folder.at, str(folder.source)):
                if whole == name or whole.startswith(name + "/"):
                    return folder.files, whole[len(name) + 1 :], self._uid if folder.write else None
        names = ", ".join(folder.at for folder in self._layout.folders)
        raise SandboxRefused(f"{path} is not in the box, which has {names}.")

    def _folder_of(self, at: str) -> tuple[Path, int | None]:
        root, below, owner = self._location(at)
        if below:
            raise SandboxRefused(f"{at} is no folder of the box itself.")
        return root, owner

    # ---- the end

    def end_all(self) -> None:
        """End every program that was started, with all of its children."""
        for process in self._running:
            process.stop()
        for process in self._running:
            process.finish()
        self._running.clear()

    def close(self) -> None:
        """End what runs and remove what it left. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self.end_all()
        if self.listener is not None:
            self.listener.close()
        if self.image is not None:
            container.reap(self.rung, self._root)
        if self._disk is not None:
            self._disk.close()
        scratch.let_go(self._root)
        if self._uid is not None:
            with _users_lock:
                _users.discard(self._uid)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _take_user() -> int:
    """A user id that nobody else on this machine has: from our process id, which is ours alone, and a count."""
    base = _FIRST_USER + os.getpid() % 3_000_000 * _USERS
    with _users_lock:
        for number in itertools.islice(itertools.count(base), _USERS):
            if number not in _users:
                _users.add(number)
                return number
    raise SandboxError(f"{_USERS} boxes are open already. Close some first.")
