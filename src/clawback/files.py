"""Atomic file writes: a crash leaves the old file or the new one, never half of either."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.errors import ClawbackError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from hashlib import _Hash
    from typing import IO

_BLOCK = 64 * 1024
_BLOCKS = 64


def replace(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write beside, sync, rename. ``mode``: that of a file that is there already, else 0600, unless it is named."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if mode is None:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:  # a full disk leaves no empty file behind
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def read_regular(path: Path, limit: int) -> bytes:
    """The content of a file that somebody else put there: a regular file of at most ``limit`` bytes.

    Raises ``FileNotFoundError``, ``UsageError`` for a link, FIFO, device or folder, and for a larger file. Never waits.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "it is a link" if path.is_symlink() else error.strerror
        raise UsageError(f"{path} cannot be read: {why}.") from error
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise UsageError(f"{path} cannot be read: it is no regular file.")
    with os.fdopen(handle, "rb") as file:
        if found.st_size > limit:
            raise UsageError(
                f"{path} cannot be read: {found.st_size:,} bytes, and at most {limit:,} are allowed."
            )
        data = file.read(limit + 1)
    if len(data) > limit:
        raise UsageError(f"{path} cannot be read: it grew past {limit:,} bytes meanwhile.")
    return data


def replace_folder(new: Path, folder: Path) -> None:
    """Put a folder that was written beside in the place of another. Killed in between, ``restore_folder`` brings the former back."""
    import shutil

    restore_folder(folder)
    former = folder.with_name(f".{folder.name}.old")
    if folder.exists():  # a folder cannot be renamed over another: for a moment the former has another name
        folder.rename(former)
    new.rename(folder)
    shutil.rmtree(former, ignore_errors=True)


def restore_folder(folder: Path) -> None:
    """Finish what a killed ``replace_folder`` began: the former folder gets its name back where the new one has not got it."""
    former = folder.with_name(f".{folder.name}.old")
    if former.exists():
        if folder.exists():
            import shutil

            shutil.rmtree(former, ignore_errors=True)
        else:
            former.rename(folder)


def append_line(path: Path, line: str) -> None:
    """Add a line and sync it, in a file of mode 0600: what a crash leaves is whole lines, and at most a piece of the last."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Make a file, or a folder's entries, reach the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    """Hexadecimal."""
    import hashlib  # brings OpenSSL along, which hooks have no use for

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sample(path: Path, digest: _Hash) -> None:
    """Feed a hash with a file's size and content: in full up to 4 MB, else 64 blocks spread over it.

    Training or converting a model changes nearly every block, so this tells weights apart in milliseconds whatever their size.
    """
    size = path.stat().st_size
    digest.update(f"{size}\n".encode())
    with path.open("rb") as file:
        for index in range(_BLOCKS):
            file.seek(index * max(_BLOCK, (size - _BLOCK) // (_BLOCKS - 1)))
            digest.update(file.read(_BLOCK))


@contextmanager
def whole_or_not(path: Path) -> Iterator[IO[str]]:
    """A file to write into that takes the place of ``path`` at the end, if all went well.

    Raises ``UsageError`` before anything is written where ``path`` is something that must not be replaced.
    """
    import uuid

    if path.exists() and not path.is_file():
        raise UsageError(
            f"{path} is not an ordinary file, so it cannot hold the answers: name another --output."
        )
    target = path.resolve()  # a link stays a link to where the answers are
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with beside.open("x", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except OSError as error:
        raise ClawbackError(
            f"The answers could not be written to {path}: {error.strerror or error}."
        ) from error
    finally:
        beside.unlink(missing_ok=True)
