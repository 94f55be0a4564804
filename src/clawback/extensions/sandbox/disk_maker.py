"""Makes a file system of a fixed size for one box, in a mount namespace of its own.

Run as ``python -I -S disk_maker.py CHANNEL FOLDER SIZE FILES PORT``, with the standard library alone. The file system (tmpfs) is
mounted on FOLDER, which nobody outside the namespace sees. Its descriptors go to the caller over the socket CHANNEL: the
file system's root, the mount namespace and, where an ordinary user made it, the user namespace. The file system lives
as long as these descriptors do, so nothing has to be unmounted or removed, however the caller ends.

With a PORT other than 0 the box has a network of its own, too: a loopback device, on which a socket of the caller listens. That
socket and the network namespace are passed on as well.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

_NEW_MOUNTS, _NEW_USER, _NEW_NETWORK = 0x00020000, 0x10000000, 0x40000000
_SET_FLAGS, _UP = 0x8914, 1 | 64
_SLAVE, _RECURSIVE, _NO_SUID, _NO_DEVICES = 1 << 19, 1 << 14, 2, 4
_libc = ctypes.CDLL(None, use_errno=True)


def main(channel: int, folder: str, size: int, files: int, port: int) -> None:
    uid, gid = os.geteuid(), os.getegid()
    wanted = _NEW_MOUNTS | (_NEW_NETWORK if port else 0) | (0 if uid == 0 else _NEW_USER)
    _check(_libc.unshare(wanted), "make a namespace")
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
    handles = [os.open(name, os.O_RDONLY) for name in names]
    if port:
        handles += [os.open("/proc/self/ns/net", os.O_RDONLY), listener(port)]
    with socket.socket(fileno=channel) as pipe:
        socket.send_fds(pipe, [b"x"], handles)


def listener(port: int) -> int:
    """A socket that listens on the loopback device of this namespace, which is brought up for it."""
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    fcntl.ioctl(server, _SET_FLAGS, struct.pack("16sH14s", b"lo", _UP, b""))
    server.bind(("127.0.0.1", port))
    server.listen(128)
    return server.detach()


def _check(outcome: int, what: str) -> None:
    if outcome < 0:
        sys.exit(f"cannot {what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
