"""Makes a file system of a fixed size for one box, in a mount namespace of its own.

Run as ``python -I -S disk_maker.py CHANNEL FOLDER SIZE FILES``, with the standard library alone. The file system (tmpfs) is
mounted on FOLDER, which nobody outside the namespace sees. Its descriptors go to the caller over the socket CHANNEL: the
file system's root, the mount namespace and, where an ordinary user made it, the user namespace. The file system lives
as long as these descriptors do, so nothing has to be unmounted or removed, however the caller ends.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from pathlib import Path

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_SLAVE, _RECURSIVE, _NO_SUID, _NO_DEVICES = 1 << 19, 1 << 14, 2, 4
_libc = ctypes.CDLL(None, use_errno=True)


def main(channel: int, folder: str, size: int, files: int) -> None:
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc.unshare(_NEW_MOUNTS if uid == 0 else _NEW_MOUNTS | _NEW_USER), "make a namespace")
    if uid != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    # Mounts and unmounts outside still arrive; what is mounted here stays here.
    _check(_libc.mount(None, b"/", None, _SLAVE | _RECURSIVE, None), "separate the mounts")
    options = f"size={size},nr_inodes={files},mode=0711"
    flags = _NO_SUID | _NO_DEVICES
    _check(_libc.mount(b"clawback", os.fsencode(folder), b"tmpfs", flags, options.encode()), "mount a tmpfs")
    names = [folder, "/proc/self/ns/mnt", *([] if uid == 0 else ["/proc/self/ns/user"])]
    with socket.socket(fileno=channel) as pipe:
        socket.send_fds(pipe, [b"x"], [os.open(name, os.O_RDONLY) for name in names])


def _check(outcome: int, what: str) -> None:
    if outcome < 0:
        sys.exit(f"cannot {what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
