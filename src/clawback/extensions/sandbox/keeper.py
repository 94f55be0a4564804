"""The supervisor process of a command in a box: it applies the restrictions, starts the command, watches it and ends it.

Run as ``python -I -S keeper.py CONTROL STATUS``, with the standard library alone. It stays outside of the
box. It reads one JSON line from the control pipe; the end of that pipe (we closed it, or died) ends the
command. Everything that the command started is its descendant, however often it forked: the keeper is their
subreaper. One JSON line on the status pipe tells how it ended. A restriction that cannot be applied is an
error, and nothing is run.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import struct
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clawback.extensions.sandbox import disk_count
else:  # run as a program: nothing of the package is imported
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    import disk_count

_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER = 1, 38, 22, 36
_PR_CAPBSET_DROP = 24
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CAPGET_VERSION = 0x20080522
_DISK_EVERY, _KILL_FOR = 0.25, 10.0
_libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """A restriction could not be put in place."""


# ---- restricting the child, in this order ------------------------------------------------------------------------


def restrict(spec: dict[str, Any]) -> None:
    """Between fork and exec: what is asked for is in place afterwards, or this raises."""
    limits = spec["limits"]
    os.setsid()
    if spec.get("cpus"):
        os.sched_setaffinity(0, spec["cpus"])
    os.nice(limits["nice"])
    for name, value in limits["rlimits"].items():
        _limit(getattr(resource, name), value)
    if spec.get("disk"):
        for namespace in spec["disk"]["namespaces"]:
            _check(_libc.setns(namespace, 0), "enter the box's file system")
    if spec.get("landlock"):
        ruleset = landlock_ruleset(spec["landlock"])
    if spec.get("uid") is not None:
        become(spec["uid"])
    if _LINUX:
        # After the change of user, which would take it back.
        _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "end with its keeper")
        if not spec.get(
            "engine"
        ):  # rootless podman maps its users by a program with rights; the container has none
            _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "give up new privileges")
    if spec.get("landlock"):
        _check(_libc.syscall(_RESTRICT_SELF, ruleset, 0), "put Landlock in place")
        os.close(ruleset)
    if spec["filter"] and not spec["wrap"]:
        install_filter(bytes.fromhex(spec["filter"]))


def _check(outcome: int, what: str) -> None:
    if outcome < 0:
        raise Refused(f"cannot {what}: {os.strerror(ctypes.get_errno())}")


def _limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def become(uid: int) -> None:
    """Root becomes a user of its own, who owns nothing but the box, and gives up every capability for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    for number in range(64):
        _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    os.setresuid(uid, uid, uid)
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPGET_VERSION, 0))
    data = ctypes.create_string_buffer(struct.pack("6I", *[0] * 6))
    number = {"x86_64": 126, "aarch64": 91}[os.uname().machine]
    _check(_libc.syscall(number, header, data), "drop capabilities")


def landlock_ruleset(rules: dict[str, Any]) -> int:
    """A ruleset that lets through the named paths alone: all else of files, TCP, signals and abstract sockets is closed."""
    abi = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    _check(abi, "use Landlock")
    handled = (1 << 13) - 1
    for since, bit in ((2, 13), (3, 14), (5, 15)):
        handled |= (1 << bit) if abi >= since else 0
    closed_network = 0 if abi < 4 or rules.get("network") else 3
    words = struct.pack("QQQ", handled, closed_network, 3 if abi >= 6 else 0)
    words = words[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset: int = _libc.syscall(_CREATE_RULESET, words, ctypes.c_size_t(len(words)), 0)
    _check(ruleset, "make a Landlock ruleset")
    execute, write_file, read_file, read_dir, truncate, device = 1, 2, 4, 8, 1 << 14, 1 << 15
    reading = execute | read_file | read_dir
    of_files = execute | write_file | read_file | truncate | device
    for paths, rights in ((rules["read"], reading), (rules["write"], handled & ~device)):
        for path in paths:
            try:
                handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            allowed = rights & handled & (-1 if os.path.isdir(path) else of_files)  # noqa: PTH112
            rule = struct.pack("=Qi", allowed, handle)
            _check(_libc.syscall(_ADD_RULE, ruleset, 1, rule, 0), f"add {path} to the Landlock ruleset")
            os.close(handle)
    return ruleset


def install_filter(program: bytes) -> None:
    kept = ctypes.create_string_buffer(program, len(program))
    it = struct.pack("HP", len(program) // 8, ctypes.addressof(kept))
    _check(_libc.prctl(_PR_SET_SECCOMP, 2, it, 0, 0), "put the seccomp filter in place")


# ---- watching ----------------------------------------------------------------------------------------------------


def _words(path: str) -> list[str]:
    """A small file of the kernel's, by words; nothing where the process is gone or hides it."""
    try:
        with open(path) as file:  # noqa: PTH123
            return file.read().split()
    except (OSError, ValueError):
        return []


def descendants(pid: int) -> list[int]:
    """Every process below ``pid``, by the kernel's lists of children."""
    found: list[int] = []
    todo = [pid]
    while todo:
        parent = todo.pop()
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):  # noqa: PTH208
                children = [int(word) for word in _words(f"/proc/{parent}/task/{task}/children")]
                found += children
                todo += children
    return found


def memory(pids: list[int], limit: int) -> int:
    """Bytes in use. Resident sizes count shared pages for each; only if those are too many, shares are looked up."""
    page = resource.getpagesize()
    resident = {pid: int(words[1]) * page for pid in pids if (words := _words(f"/proc/{pid}/statm"))}
    total = sum(resident.values())
    if total <= limit:
        return total
    return sum(_share(pid, size) for pid, size in resident.items())


def _share(pid: int, resident: int) -> int:
    words = _words(f"/proc/{pid}/smaps_rollup")
    return int(words[words.index("Pss:") + 1]) * 1024 if "Pss:" in words else resident


def cpu_seconds(pids: list[int]) -> float:
    """What they and the children that they waited for have used."""
    ticks = 0
    for pid in pids:
        fields = " ".join(_words(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


class Watch:
    """Looks at a command's processes until it ends, or until a limit is passed."""

    def __init__(self, child: int, control: int, spec: dict[str, Any]) -> None:
        self.child, self.control, self.limits = child, control, spec["limits"]
        self.roots: list[str] = spec["roots"]
        self.root: int | None = spec["disk"]["root"] if spec.get("disk") else None
        self.began = time.monotonic()
        self.next_disk = 0.0
        self.spent = 0.0

    def ended_by(self) -> tuple[str, int | None]:
        """Why it is over ("" when the command ended by itself) and the wait status, if the command was waited for."""
        poller = select.poll()
        poller.register(self.control, select.POLLIN | select.POLLHUP)
        if hasattr(os, "pidfd_open"):
            ends = os.pidfd_open(self.child)
            poller.register(ends, select.POLLIN)
        while True:
            status = self._reap()
            if status is not None:
                return ("disk" if self._disk(self.pids()) else ""), status
            over = self._over()
            if over:
                return over, None
            age = time.monotonic() - self.began
            for handle, _ in poller.poll(10 if age < 0.1 else 25 if age < 2 else 100):
                if handle == self.control:
                    return "stopped", None

    def pids(self) -> list[int]:
        """The command's processes."""
        return descendants(os.getpid())

    def _reap(self) -> int | None:
        """Wait for whoever ended; orphans too, so that they do not count as processes."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 0
            if pid == 0:
                return None
            if pid == self.child:
                return status

    def _over(self) -> str:
        limits = self.limits
        if time.monotonic() - self.began > limits["seconds"]:
            return "time"
        if not _LINUX:
            return ""
        pids = self.pids()
        if len(pids) > limits["processes"]:
            return "processes"
        if memory(pids, limits["memory"]) > limits["memory"]:
            return "memory"
        if cpu_seconds([*pids, os.getpid()]) > limits["cpu_seconds"]:
            return "time"
        return "disk" if time.monotonic() > self.next_disk and self._disk(pids) else ""

    def _disk(self, pids: list[int]) -> bool:
        began = time.monotonic()
        if self.root is not None:
            full = disk_count.is_full(self.root)
        else:
            until = self.began + self.limits["seconds"]
            full = disk_count.is_over(self.roots, pids, self.limits["disk"], self.limits["files"], until)
        now = time.monotonic()
        self.next_disk = now + max(_DISK_EVERY, 20 * (now - began))
        return full


# ---- ending ------------------------------------------------------------------------------------------------------


def end_all(child: int, uid: int | None) -> int:
    """End everything below us, and say how many were still there at the end (0, or something is wrong)."""
    until = time.monotonic() + _KILL_FOR
    left = descendants(os.getpid()) if _LINUX else [child]
    while left and time.monotonic() < until:
        for stop in (signal.SIGSTOP, signal.SIGKILL):
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, stop)
        if not _LINUX:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
        if uid is not None:
            _end_user(uid)
        reap_all()
        left = descendants(os.getpid()) if _LINUX else []
        if left:
            time.sleep(0.002)
    return len(left)


def _end_user(uid: int) -> None:
    """All processes of a user at once: the kernel goes through them while none can fork."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def reap_all() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


# ---- the program -------------------------------------------------------------------------------------------------


def start(spec: dict[str, Any]) -> int:
    """Fork, restrict, exec. The child's own pipe tells whether it got as far as exec."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(told)
            restrict(spec)
            argv = [*_with_handles(spec), *spec["argv"]]
            os.chdir(spec["cwd"])
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
        except BaseException as error:
            os.write(tell, (str(error) or type(error).__name__).encode())
            os._exit(125)
        try:
            os.execvpe(argv[0], argv, spec["env"])  # noqa: S606
        except OSError as error:
            os.write(2, f"{argv[0]}: {os.strerror(error.errno or 0)}\n".encode())
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    os.close(tell)
    problem = os.read(told, 4096)
    os.close(told)
    if problem:
        os.waitpid(pid, 0)
        raise Refused(problem.decode(errors="replace"))
    return pid


def _with_handles(spec: dict[str, Any]) -> list[str]:
    """The program that puts up the walls, with the numbers of the pipes by which it gets the filter and tells of itself."""
    if not spec["wrap"]:
        return []
    numbers = {"{filter}": _filled(bytes.fromhex(spec["filter"])), "{ready}": spec["ready"]}
    for number in numbers.values():
        os.set_inheritable(number, True)
    return [str(numbers.get(word, word)) for word in spec["wrap"]]


def _filled(data: bytes) -> int:
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return reading


def code_of(status: int | None) -> int | None:
    if status is None:
        return None
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _line(handle: int) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        more = os.read(handle, 65536)
        if not more:
            return b""
        data += more
    return data


def main(control: int, status: int) -> None:
    spec = instruction(control, status)
    if spec is None:
        return
    report, spec["ready"] = os.pipe()
    try:
        child = start(spec)
    except (Refused, OSError) as error:
        answer: dict[str, Any] = {"problem": str(error)}
    else:
        os.close(spec["ready"])
        why, waited = Watch(child, control, spec).ended_by()
        answer = {
            "why": why,
            "wraps": bool(spec["wrap"]),
            "code": code_of(waited),
            "left": end_all(child, spec.get("end_user")),
        }
        os.set_blocking(report, False)
        with contextlib.suppress(BlockingIOError):
            answer["report"] = os.read(report, 65536).decode(errors="replace")
    os.write(status, json.dumps(answer).encode() + b"\n")


def instruction(control: int, status: int) -> dict[str, Any] | None:
    """What is to be done; None where there is nothing to do, or no way to look after it."""
    for handle in (control, status):
        os.set_inheritable(handle, False)
    line = _line(control)
    if not line:
        return None
    if _LINUX:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if not os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):  # noqa: PTH110
            os.write(
                status, b'{"problem": "this kernel keeps no lists of children (CONFIG_PROC_CHILDREN)"}\n'
            )
            return None
    spec: dict[str, Any] = json.loads(line)
    if spec.get("disk"):
        for handle in (spec["disk"]["root"], *spec["disk"]["namespaces"]):
            os.set_inheritable(handle, False)
    return spec


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
