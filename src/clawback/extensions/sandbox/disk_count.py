"""What a box holds on disk, for the keeper: a look at its own file system, or a count where it has none.

With the standard library alone. A count sees folders, and unlinked files that processes have open or mapped.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time

_HIDDEN = 16
"""Unlinked files of unknown size that a command may hold at once, where no sized file system holds its disk limit."""


def is_full(root: int) -> bool:
    """Whether the box's own file system, whose size the kernel holds, has no room left for a byte or a file."""
    status = os.fstatvfs(root)
    return status.f_bfree == 0 or status.f_ffree == 0


def is_over(roots: list[str], pids: list[int], bytes_limit: int, files_limit: int, until: float) -> bool:
    """Whether the box holds too much: in ordinary folders of any depth, or in unlinked files that processes still hold.

    The count stops at ``until`` (monotonic time), when the command's time is over.
    """
    used = count = 0
    todo = list(roots)
    while todo and time.monotonic() < until:
        folder = todo.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    count += 1
                    with contextlib.suppress(OSError):
                        used += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    if used > bytes_limit or count > files_limit:
                        return True
        except OSError as error:
            if (
                error.errno == 36
            ):  # a path longer than the system takes: nobody needs that, and nobody could look inside
                return True
    sizes, hidden = _unlinked(pids)
    return used + sum(sizes.values()) + hidden * (bytes_limit // _HIDDEN) > bytes_limit


def _unlinked(pids: list[int]) -> tuple[dict[tuple[int, int], int], int]:
    """Bytes of each unlinked file that is open or mapped, and the number of files whose size the kernel does not tell.

    Each thread may have descriptors of its own. A mapped file that is closed has a size only for root.
    """
    sizes: dict[tuple[int, int], int] = {}
    mapped: set[tuple[int, int]] = set()
    flying = 0
    for pid in pids:
        for task in _names(f"/proc/{pid}/task"):
            flying += _descriptors(f"/proc/{pid}/task/{task}", sizes)
        _status(f"/proc/{pid}/exe", sizes)
        for line in _lines(f"/proc/{pid}/maps"):
            if line.endswith(" (deleted)"):
                addresses, _, _, device, inode = line.split()[:5]
                major, minor = (int(part, 16) for part in device.split(":"))
                if not _status(f"/proc/{pid}/map_files/{addresses}", sizes):
                    mapped.add((os.makedev(major, minor), int(inode)))
    return sizes, len(mapped - set(sizes)) + flying


def _descriptors(task: str, sizes: dict[tuple[int, int], int]) -> int:
    """Adds the unlinked files that a thread has open; the number of descriptors in flight to it."""
    flying = 0
    for name in _names(f"{task}/fd"):
        status = _status(f"{task}/fd/{name}", sizes)
        if status and stat.S_ISSOCK(status.st_mode):
            for line in _lines(f"{task}/fdinfo/{name}"):
                flying += int(line.split()[1]) if line.startswith("scm_fds:") else 0
    return flying


def _status(path: str, sizes: dict[tuple[int, int], int]) -> os.stat_result | None:
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    if status.st_nlink == 0:
        sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return status


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def _lines(path: str) -> list[str]:
    try:
        with open(path, errors="replace") as file:  # noqa: PTH123
            return file.read().splitlines()
    except OSError:
        return []
