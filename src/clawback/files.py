"""Atomic file writes: a crash leaves the old file or the new one, never half of either."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash

_BLOCK = 64 * 1024
_BLOCKS = 64


def replace(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write beside, sync, rename. ``mode``: that of a file that is there already, else 0600, unless it is named."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if mode is None:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


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
