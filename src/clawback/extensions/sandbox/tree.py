"""Reads, writes, copies and removes files that a program in a box left, without following its links.

No path is followed through a symbolic link, nothing but plain files and folders is opened, and the depth of
folders does not matter: everything works on open directory descriptors, never on a path that grows.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from clawback.errors import NotFound, SandboxError, SandboxRefused

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 64


@contextlib.contextmanager
def _parent(root: Path, path: str, make: bool, uid: int | None) -> Iterator[tuple[int, str]]:
    """The open folder that holds ``path``, and the path's last part."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise SandboxRefused(f"{path!r} is no file in the box. Name one below its folder, without `..`.")
    here = os.open(root, _FOLDER)
    try:
        for part in parts[:-1]:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=here)
                    _give(part, uid, here)
            below = os.open(part, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
        yield here, parts[-1]
    except OSError as error:
        raise _sentence(error, path) from error
    finally:
        os.close(here)


def _sentence(error: OSError, path: str) -> SandboxError | NotFound:
    if error.errno == errno.ENOENT:
        return NotFound(f"There is no {path} in the box.")
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return SandboxRefused(
            f"{path} leads through a symbolic link or a file. Read it by a command in the box."
        )
    return SandboxError(f"{path} cannot be used: {error.strerror}.")


def _give(name: str, uid: int | None, folder: int) -> None:
    if uid is not None:
        os.chown(name, uid, uid, dir_fd=folder, follow_symlinks=False)


def read(root: Path, path: str, limit: int) -> bytes:
    """A plain file's content."""
    with _parent(root, path, make=False, uid=None) as (folder, name):
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise SandboxRefused(f"{path} is no plain file.")
            if status.st_size > limit:
                raise SandboxError(f"{path} has {status.st_size} bytes; at most {limit} are read.")
            return file.read(limit)


def write(root: Path, path: str, data: bytes, mode: int, uid: int | None) -> None:
    """A new file in place of whatever had the name (a link is replaced, not followed)."""
    with _parent(root, path, make=True, uid=uid) as (folder, name):
        beside = f".{name[:200]}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(beside, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
            if uid is not None:
                os.fchown(file.fileno(), uid, uid)
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)


def copy(
    source: Path, target: Path, uid: int | None = None, limit: int | None = None, files: int = 100_000
) -> None:
    """A folder's files, folders and links (as links), into a folder that is there. Pipes, sockets and devices are left out."""
    left = [limit if limit is not None else 1 << 62, files]
    here, there = os.open(source, _FOLDER), os.open(target, _FOLDER)
    try:
        _copy(here, there, uid, left, 0)
    except PermissionError as error:
        raise SandboxError(
            f"A file or folder in the box is closed to its own user ({error.filename})."
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise SandboxError(
            "There are too many bytes or files to copy: the box, or its disk, is full."
        ) from error
    finally:
        os.close(here)
        os.close(there)


def _copy(here: int, there: int, uid: int | None, left: list[int], depth: int) -> None:
    if depth > _DEEPEST:
        raise SandboxError(f"Folders are more than {_DEEPEST} deep.")
    for name in sorted(os.listdir(here)):
        status = os.stat(name, dir_fd=here, follow_symlinks=False)
        left[1] -= 1
        if left[1] < 0:
            raise SandboxError("There are too many files to copy.")
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(name, dir_fd=here), name, dir_fd=there)
            _give(name, uid, there)
        elif stat.S_ISDIR(status.st_mode):
            _copy_folder(name, here, there, uid, left, depth)
        elif stat.S_ISREG(status.st_mode):
            left[0] -= status.st_size
            if left[0] < 0:
                raise SandboxError("There are too many bytes to copy.")
            _copy_file(name, here, there, uid, stat.S_IMODE(status.st_mode) & 0o777)


def _copy_folder(name: str, here: int, there: int, uid: int | None, left: list[int], depth: int) -> None:
    inner = os.open(name, _FOLDER, dir_fd=here)
    os.mkdir(name, 0o755, dir_fd=there)
    outer = os.open(name, _FOLDER, dir_fd=there)
    try:
        _copy(inner, outer, uid, left, depth + 1)
        _give(name, uid, there)
    finally:
        os.close(inner)
        os.close(outer)


def _copy_file(name: str, here: int, there: int, uid: int | None, mode: int) -> None:
    reading = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=here)
    writing = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=there)
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb") as target:
        while block := source.read(1 << 20):
            target.write(block)
        os.fchmod(target.fileno(), mode | 0o600)
        if uid is not None:
            os.fchown(target.fileno(), uid, uid)


def remove(root: Path) -> None:
    """A folder with all in it, however deep: folders in folders are moved up before they are emptied."""
    try:
        top = os.open(root, _FOLDER)
    except FileNotFoundError:
        return
    try:
        stamp, moved = secrets.token_hex(8), 0
        while names := os.listdir(top):  # noqa: PTH208
            for name in names:
                if not _is_folder(name, top):
                    os.unlink(name, dir_fd=top)
                    continue
                moved = _empty(name, top, stamp, moved)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    root.rmdir()


def _empty(name: str, top: int, stamp: str, moved: int) -> int:
    os.chmod(name, 0o700, dir_fd=top)
    inner = os.open(name, _FOLDER, dir_fd=top)
    try:
        for below in os.listdir(inner):  # noqa: PTH208
            if _is_folder(below, inner):
                os.chmod(below, 0o700, dir_fd=inner)
                moved += 1
                os.rename(below, f".{stamp}-{moved}", src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(below, dir_fd=inner)
    finally:
        os.close(inner)
    return moved


def _is_folder(name: str, folder: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
