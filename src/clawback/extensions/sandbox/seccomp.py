"""The system calls that no command in a box needs, as a classic BPF program that the kernel runs on each call.

The box is isolated by namespaces or Landlock; this filter closes what they leave open: sockets that leave the
machine or reach other programs' (Unix, vsock, netlink), other processes' memory, the kernel's larger attack
surfaces (io_uring, bpf, mounts, user namespaces), memory that no resident size shows (memfd, System V), and
input injected into the terminal.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# name: (x86_64, aarch64); None where the architecture has no such call.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198), "socketpair": (53, 199), "sendmsg": (46, 211), "sendmmsg": (307, 269), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "acct": (163, 89), "syslog": (103, 116), "setns": (308, 268),
    "unshare": (272, 97), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "iopl": (172, None), "ioperm": (173, None),
    "modify_ldt": (154, None), "uselib": (134, None), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "fanotify_init": (300, 262), "sethostname": (170, 161),
    "setdomainname": (171, 162), "clock_settime": (227, 112), "settimeofday": (164, 170), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "vhangup": (153, 58), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "clone": (56, 220),
    "clone3": (435, 435), "prctl": (157, 167), "ioctl": (16, 29), "prlimit64": (302, 261),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424), "inotify_init": (253, None),
    "inotify_init1": (294, 26), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "fchmodat2": (452, 452), "chown": (92, None), "lchown": (94, None), "fchown": (93, 55),
    "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "setxattrat": (463, 463),
    "removexattrat": (466, 466), "file_setattr": (469, 469),
}  # fmt: skip

_ALWAYS = [
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "process_mrelease",
    "pidfd_getfd",
    "kcmp",
    "io_uring_enter",
    "io_uring_register",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "keyctl",
    "add_key",
    "request_key",
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "swapon",
    "swapoff",
    "reboot",
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "kexec_file_load",
    "acct",
    "syslog",
    "setns",
    "unshare",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "quotactl",
    "quotactl_fd",
    "iopl",
    "ioperm",
    "modify_ldt",
    "uselib",
    "open_by_handle_at",
    "name_to_handle_at",
    "fanotify_init",
    "sethostname",
    "setdomainname",
    "clock_settime",
    "settimeofday",
    "adjtimex",
    "clock_adjtime",
    "vhangup",
    "sched_setaffinity",
    "sched_setscheduler",
    "sched_setparam",
    "sched_setattr",
]
# Answered as a kernel without them would: programs then take another way.
_ABSENT = [
    "io_uring_setup",
    "memfd_create",
    "memfd_secret",
    "shmget",
    "msgget",
    "semget",
    "mq_open",
    "clone3",
]
# What needs no open file, and so no leave of Landlock, to change a file of the same user.
_SAME_USER = [
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "lchown",
    "fchown",
    "fchownat",
    "utime",
    "utimes",
    "futimesat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
    "setxattrat",
    "removexattrat",
    "file_setattr",
]
_SIGNALS = ["kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"]
_NEW_NAMESPACES = 0x7E020000
_PR_SET_DUMPABLE, _TIOCSTI, _TIOCLINUX, _TIOCSETD = 4, 0x5412, 0x541C, 0x5423
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16

_SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_TYPES = 1, 5, 0xF

_LOAD, _EQUAL, _ATLEAST, _ANY_BIT, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


@dataclass(frozen=True, slots=True)
class Closed:
    """What a rung leaves to the filter. The fewer walls it has of its own, the more is closed."""

    sockets: bool
    """No sockets but pairs. Else: Unix and IP sockets, which then have a network of the box's own."""
    same_user: bool = False
    """The box's user owns files outside: what changes a file by its name alone is closed."""
    signals: bool = False
    """Nothing else keeps signals in: the kernel's Landlock is too old for it."""
    watching: bool = False
    """Files outside could be watched, though not read."""
    passing: bool = False
    """The keeper counts the box's files: descriptors in flight between processes, which it cannot see, are closed."""
    internet: bool = False
    """IP sockets in spite of ``sockets``: commands have entered a network of the box's own."""


Instruction = tuple[int, int, int, int]


def _word(argument: int) -> Instruction:
    """The low half of an argument of the call: flags and numbers fit in it (and the kernel reads no more of them)."""
    return (_LOAD, 0, 0, 16 + 8 * argument)


def _refuse(code: int = errno.EPERM) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | code)


def _on(number: int, block: list[Instruction]) -> list[Instruction]:
    """Do ``block`` at this call; it must return in each branch, or reload the number at its end."""
    return [(_EQUAL, 0, len(block), number), *block]


_OK: Instruction = (_RETURN, 0, 0, _ALLOW)


@cache
def offline(machine: str) -> bytes:
    """A filter for a program that has the person's rights and no network: sockets are Unix ones, or ask the kernel (netlink)."""
    column = list(ARCHITECTURES).index(machine)
    code = _beginning(machine)
    for name in ("io_uring_setup", "io_uring_enter", "io_uring_register"):  # they open sockets as well
        code += _on(_NUMBERS[name][column] or 0, [_refuse(errno.ENOSYS)])
    local = [
        _word(0),
        (_EQUAL, 2, 0, _AF_UNIX),
        (_EQUAL, 1, 0, _AF_NETLINK),
        _refuse(errno.EAFNOSUPPORT),
        _OK,
    ]
    code += [
        *_on(_NUMBERS["socket"][column] or 0, local),
        *_on(_NUMBERS["socketpair"][column] or 0, _pairs(False)),
        _OK,
    ]
    return _packed(code)


def _beginning(machine: str) -> list[Instruction]:
    """Only calls of this very architecture, by their usual numbers."""
    code: list[Instruction] = [
        (_LOAD, 0, 0, 4), (_EQUAL, 1, 0, ARCHITECTURES[machine]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0),
    ]  # fmt: skip
    if machine == "x86_64":  # the x32 calls: the same kernel under other numbers
        code += [(_ATLEAST, 0, 1, 0x40000000), _refuse()]
    return code


def _packed(code: list[Instruction]) -> bytes:
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


@cache
def program(closed: Closed, machine: str) -> bytes:
    """The filter's bytes. ``machine`` as ``os.uname`` writes it."""
    column = list(ARCHITECTURES).index(machine)

    def number(name: str) -> int:
        it = _NUMBERS[name][column]
        return -1 if it is None else it

    code = _beginning(machine)
    refused = [*_ALWAYS, *(_SAME_USER if closed.same_user else ()), *(_SIGNALS if closed.signals else ())]
    refused += ["inotify_init", "inotify_init1"] if closed.watching else []
    refused += ["sendmsg", "sendmmsg"] if closed.passing else []
    for name in refused:
        code += _on(number(name), [_refuse()]) if number(name) >= 0 else []
    for name in _ABSENT:
        code += _on(number(name), [_refuse(errno.ENOSYS)])
    code += _on(number("clone"), [_word(0), (_ANY_BIT, 0, 1, _NEW_NAMESPACES), _refuse(), _OK])
    code += _on(number("prctl"), [_word(0), (_EQUAL, 0, 1, _PR_SET_DUMPABLE), _refuse(), _OK])
    pushing = [(_EQUAL, 3 - n, 0, request) for n, request in enumerate((_TIOCSTI, _TIOCLINUX, _TIOCSETD))]
    code += _on(number("ioctl"), [_word(1), *pushing, _OK, _refuse()])
    families = (() if closed.sockets else (_AF_UNIX,)) + (
        (_AF_INET, _AF_INET6) if closed.internet or not closed.sockets else ()
    )
    own = [(_EQUAL, len(families) - n, 0, family) for n, family in enumerate(families)]
    code += _on(number("socket"), [_word(0), *own, _refuse(errno.EAFNOSUPPORT), _OK])
    code += _on(number("socketpair"), _pairs(closed.sockets))
    if closed.same_user:
        code += _only_oneself(number)
    code.append(_OK)
    return _packed(code)


def profile(machine: str) -> dict[str, Any]:
    """``program(Closed(sockets=False), machine)`` in the words of container engines (OCI's).

    Engines join several conditions on one argument by "or", and compare 64 bits where the kernel reads 32: hence one
    rule for each value, and the masks.
    """
    rules: list[dict[str, Any]] = []

    def refuse(names: Sequence[str], code: int = errno.EPERM, **condition: object) -> None:
        args = [{"valueTwo": 0, **condition}] if condition else []
        rules.append({"names": list(names), "action": "SCMP_ACT_ERRNO", "errnoRet": code, "args": args})

    def is_one(argument: int, value: int, mask: int = 0xFFFFFFFF) -> dict[str, Any]:
        return {"index": argument, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}

    refuse(_ALWAYS)
    refuse(_ABSENT, errno.ENOSYS)
    for bit in (1 << n for n in range(32) if _NEW_NAMESPACES >> n & 1):
        refuse(["clone"], **is_one(0, bit, bit))
    refuse(["prctl"], **is_one(0, _PR_SET_DUMPABLE))
    for request in (_TIOCSTI, _TIOCLINUX, _TIOCSETD):
        refuse(["ioctl"], **is_one(1, request))
    highest = 45
    for family in set(range(highest + 1)) - {_AF_UNIX, _AF_INET, _AF_INET6}:
        refuse(["socket"], errno.EAFNOSUPPORT, **is_one(0, family))
    for family in set(range(highest + 1)) - {_AF_UNIX}:
        refuse(["socketpair"], errno.EAFNOSUPPORT, **is_one(0, family))
    refuse(["socket", "socketpair"], errno.EAFNOSUPPORT, index=0, value=highest, op="SCMP_CMP_GT")
    name = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}[machine]
    return {"defaultAction": "SCMP_ACT_ALLOW", "architectures": [name], "syscalls": rules}


def _pairs(connected_alone: bool) -> list[Instruction]:
    """Pairs of Unix sockets and of no other family (a TIPC pair reaches other addresses). ``connected_alone``: and of
    these, streams and sequences. A pair of datagrams, or of type RAW, which the kernel makes one, can be
    connected or sent to any path."""
    family: list[Instruction] = [_word(0), (_EQUAL, 1, 0, _AF_UNIX), _refuse(errno.EAFNOSUPPORT)]
    if not connected_alone:
        return [*family, _OK]
    kinds = [(_EQUAL, 2 - n, 0, kind) for n, kind in enumerate((_SOCK_STREAM, _SOCK_SEQPACKET))]
    return [*family, _word(1), (_AND, 0, 0, _SOCK_TYPES), *kinds, _refuse(errno.EPROTONOSUPPORT), _OK]


def _only_oneself(number: Callable[[str], int]) -> list[Instruction]:
    """Limits, priorities and times of the user's other processes and files stay as they are."""
    code = _on(number("prlimit64"), [_word(0), (_EQUAL, 0, 1, 0), _OK, _refuse()])
    for name in ("setpriority", "ioprio_set"):
        process = 0 if name == "setpriority" else 1
        code += _on(
            number(name), [_word(0), (_EQUAL, 0, 3, process), _word(1), (_EQUAL, 0, 1, 0), _OK, _refuse()]
        )
    # futimens is utimensat without a path (a null pointer), of a file that the box could open
    high = (_LOAD, 0, 0, 16 + 8 + 4)
    code += _on(number("utimensat"), [_word(1), (_EQUAL, 0, 3, 0), high, (_EQUAL, 0, 1, 0), _OK, _refuse()])
    return code
