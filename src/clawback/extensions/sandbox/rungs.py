"""The isolation methods (*rungs*) that a machine may have. Each is a plan for the keeper.

bubblewrap: separate namespaces for files, processes, network, IPC and host names, and a seccomp filter.
podman and docker: a container of an image that a task names (container.py). landlock: the kernel's own file and
signal restrictions, and a stricter filter; the box's real paths are visible, and there is no network. seatbelt: macOS's. none: limits alone, no isolation.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from clawback.extensions.sandbox import seccomp
from clawback.extensions.sandbox.disk import Disk
from clawback.extensions.sandbox.limits import MIB, BoxCommand, Limits

if TYPE_CHECKING:
    from clawback.records import JsonObject

RungName = Literal["bubblewrap", "landlock", "seatbelt", "none", "podman", "docker"]
NAMES: tuple[RungName, ...] = ("bubblewrap", "landlock", "seatbelt", "none")
"""The rungs on which the machine's own programs are run, strongest first."""
ENGINES: tuple[RungName, ...] = ("podman", "docker")
"""Those that run an image's."""
OWN_NAMES: tuple[RungName, ...] = ("bubblewrap", *ENGINES)
"""Those that give a box's folders names of their own."""
OWN_USERS: tuple[RungName, ...] = ("bubblewrap", "landlock", *ENGINES)
"""Those that give a box a user of its own, where we are root."""
SIZED: tuple[RungName, ...] = ("bubblewrap", "landlock")
"""Those whose writable folders can be a file system of a fixed size."""

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32")
ETC = tuple(
    f"/etc/{name}"
    for name in (
        "ld.so.cache",
        "ld.so.conf",
        "ld.so.conf.d",
        "localtime",
        "ssl/certs",
        "alternatives",
        "mime.types",
    )
)
OWN_PROCESS = "/proc/self"
"""What the kernel shows a command about itself, which runtimes of agent programs cannot do without (Bun looks for the ends of its stack there).
The path is resolved by the process that becomes the command, so it is that one's folder and no other's."""
INNER_ID = 1000
ACCOUNTS = {
    "/etc/passwd": "root:x:0:0::/:/bin/sh\nagent:x:{id}:{id}::/work:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    "/etc/group": "root:x:0:\nagent:x:{id}:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost box\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_SHARED_MEMORY = 16 * MIB


@dataclass(frozen=True, slots=True)
class BoxFolder:
    """A folder of the box: where it lies, and what it is called inside, where the rung can give it a name."""

    source: Path
    """As a command's process sees it, before the walls are up."""
    at: str
    write: bool
    reach: Path | None = None
    """As this process reaches it, where that differs: it lies in the box's own file system."""

    @property
    def files(self) -> Path:
        return self.reach or self.source


@dataclass(frozen=True, slots=True)
class BoxLayout:
    """What a box shows."""

    folders: tuple[BoxFolder, ...]
    read: tuple[Path, ...] = ()
    """Shown read-only under their own paths, beside the system's programs and this Python."""
    system: Path = field(default_factory=Path)
    """Holds the files that stand in for the machine's own (accounts, hosts)."""
    uid: int | None = None
    """The box's own user, where we are root and can give it one."""
    disk: Disk | None = None
    """The sized file system that holds the writable folders; None: they are ordinary folders, and the keeper counts."""
    network: bool = False
    """Commands enter a network of the box's own, with nothing on it but our server."""


def python_home(rung: RungName, layout: BoxLayout) -> Path | None:
    """This Python's folder, where it is not among the system's programs, and the box's user can get at it."""
    home = Path(sys.base_prefix).resolve()
    if any(home.is_relative_to(Path(place).resolve()) for place in SYSTEM):
        return None
    closed = rung == "landlock" and layout.uid is not None
    return None if closed and not all(one.stat().st_mode & 0o001 for one in (home, *home.parents)) else home


def search_path(rung: RungName, layout: BoxLayout) -> str:
    home = python_home(rung, layout)
    return ":".join(([f"{home}/bin"] if home else []) + ["/usr/local/bin", "/usr/bin", "/bin"])


def inside(rung: RungName, layout: BoxLayout, at: str) -> str:
    """What a path of the box is called by the programs in it."""
    for folder in sorted(layout.folders, key=lambda one: -len(one.at)):
        if at == folder.at or at.startswith(folder.at + "/"):
            return at if rung in OWN_NAMES else str(folder.source) + at[len(folder.at) :]
    return at


def plan(rung: RungName, layout: BoxLayout, command: BoxCommand, limits: Limits) -> JsonObject:
    """All that the keeper needs to know. ``command``: with all its variables, and its folder as the box has it."""
    cwd = command.cwd
    writable = [str(folder.source) for folder in layout.folders if folder.write]
    disk = layout.disk
    it: JsonObject = {
        "disk": {"root": disk.root, "namespaces": disk.namespaces} if disk else None,
        "argv": list(command.argv), "env": dict(command.env), "cwd": "/", "wrap": [], "filter": "", "roots": writable, "uid": None,
        "end_user": layout.uid if rung in OWN_USERS else None,
        "cpus": sorted(os.sched_getaffinity(0))[: limits.cpus] if limits.cpus and sys.platform == "linux" else None,
        "limits": limits_of(limits, layout.uid if rung in OWN_USERS else None),
    }  # fmt: skip
    if rung == "bubblewrap":
        it["wrap"] = _bubblewrap(layout, cwd)
        it["filter"] = _filter(seccomp.Closed(sockets=False, passing=disk is None))
    elif rung == "landlock":
        shared = layout.uid is None
        closed = seccomp.Closed(
            sockets=True,
            same_user=shared,
            signals=landlock_abi() < 6 and shared,
            watching=True,
            passing=disk is None,
            internet=layout.network,
        )
        it |= {
            "cwd": cwd, "uid": layout.uid, "filter": _filter(closed),
            "landlock": {
                "read": [
                    *_shown(rung, layout),
                    *(str(f.source) for f in layout.folders if not f.write),
                    *([OWN_PROCESS] if layout.network else []),
                ],
                "write": [*writable, *DEVICES],
                "network": layout.network,
            },
        }  # fmt: skip
    elif rung == "seatbelt":
        it |= {
            "cwd": cwd,
            "argv": [
                "/usr/bin/sandbox-exec",
                "-p",
                seatbelt_profile(_shown(rung, layout), writable),
                *command.argv,
            ],
        }
    else:
        it["cwd"] = cwd
    return it


def _shown(rung: RungName, layout: BoxLayout) -> list[str]:
    home = python_home(rung, layout)
    return [*SYSTEM, *ETC, *([str(home)] if home else []), *(str(path) for path in layout.read)]


def _filter(closed: seccomp.Closed) -> str:
    return seccomp.program(closed, os.uname().machine).hex()


def limits_of(limits: Limits, uid: int | None) -> JsonObject:
    # A user of the box's own has just these processes; else the count is of all that the user runs, and the keeper's
    # watch is the limit, this only the wall behind it.
    processes = limits.processes + 4 if uid is not None else _processes_of_user() + 4 * limits.processes
    return {
        "seconds": limits.seconds, "cpu_seconds": limits.cpu_seconds, "memory": limits.memory, "disk": limits.disk,
        "files": limits.files, "processes": limits.processes + 4, "nice": 5,
        "rlimits": {
            "RLIMIT_CORE": 0,
            "RLIMIT_CPU": int(limits.cpu_seconds) + 2,
            "RLIMIT_FSIZE": limits.disk,
            "RLIMIT_NOFILE": limits.open_files,
            "RLIMIT_NPROC": processes,
            "RLIMIT_AS": limits.address_space or limits.memory,
        },
    }  # fmt: skip


def _processes_of_user() -> int:
    me, count = os.getuid(), 0
    with contextlib.suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if entry.stat().st_uid == me:
                        count += len(os.listdir(f"/proc/{entry.name}/task"))  # noqa: PTH208
    return count or 512


def _bubblewrap(layout: BoxLayout, cwd: str) -> list[str]:
    program = shutil.which("bwrap") or "bwrap"
    words = [
        program,
        "--unshare-ipc",
        "--unshare-pid",
        *([] if layout.network else ["--unshare-net"]),
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    words += ["--die-with-parent", "--new-session", "--hostname", "box", "--cap-drop", "ALL"]
    if layout.uid is None:
        words += ["--unshare-user", "--uid", str(INNER_ID), "--gid", str(INNER_ID)]
    else:  # root needs no user namespace; what it starts becomes the box's user before anything of the box runs
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
            words += ["--cap-add", capability]
    shown = [*ETC, *(str(path) for path in (python_home("bubblewrap", layout), *layout.read) if path)]
    above = {parent for place in (*shown, *(f.at for f in layout.folders)) for parent in Path(place).parents}
    for parent in sorted(above - {Path("/")} - {Path(place) for place in SYSTEM}):
        if not any(parent.is_relative_to(place) for place in SYSTEM):
            words += ["--perms", "0755", "--dir", str(parent)]
    for place in SYSTEM:
        path = Path(place)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), place]
        elif path.exists():
            words += ["--ro-bind", place, place]
    for place in shown:
        words += ["--ro-bind-try", place, place]
    for place in ACCOUNTS:
        words += ["--ro-bind", str(layout.system / Path(place).name), place]
    words += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", str(_SHARED_MEMORY)]
    words += ["--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    for folder in sorted(layout.folders, key=lambda one: len(one.at)):
        words += ["--bind" if folder.write else "--ro-bind", str(folder.source), folder.at]
    words += [
        "--remount-ro",
        "/",
        "--chdir",
        cwd,
        "--seccomp",
        "{filter}",
        "--json-status-fd",
        "{ready}",
        "--",
    ]
    if layout.uid is not None:
        become = [
            "--reuid",
            str(layout.uid),
            "--regid",
            str(layout.uid),
            "--clear-groups",
            "--bounding-set=-all",
        ]
        words += [shutil.which("setpriv") or "setpriv", *become, "--inh-caps=-all", "--"]
    return words


@cache
def landlock_abi() -> int:
    """The version of Landlock's interface: 0 without it; 4 brings TCP, 6 signals and abstract sockets."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(444, None, ctypes.c_size_t(0), 1)))


_SEATBELT_SYSTEM = (
    "/System",
    "/Library",
    "/private/etc/ssl",
    "/private/var/select",
    "/dev",
    "/opt/homebrew",
    "/usr/local",
)


def seatbelt_profile(readable: Sequence[str], writable: Sequence[str]) -> str:
    """Everything is denied but what is named: programs and libraries to read, the box's folders to write."""
    shown = [*_SEATBELT_SYSTEM, *(str(Path(path).resolve()) for path in readable if Path(path).exists())]
    own = [str(Path(path).resolve()) for path in writable]
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork)",
        "(allow process-exec)",
        "(allow signal (target same-sandbox))",
        "(allow sysctl-read)",
        '(allow file-read-metadata (subpath "/"))',
        '(allow file-read* (literal "/"))',
        *(f"(allow file-read* (subpath {json.dumps(path, ensure_ascii=False)}))" for path in (*shown, *own)),
        *(f"(allow file-write* (subpath {json.dumps(path, ensure_ascii=False)}))" for path in own),
        *(f'(allow file-write* (literal "/dev/{name}"))' for name in ("null", "zero", "tty")),
        "(deny network*)",
    ]
    return "\n".join(lines)
