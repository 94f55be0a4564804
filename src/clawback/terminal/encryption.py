"""Encrypted files of commands: their options and questions, and how they are read and written."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from clawback.errors import UsageError
from clawback.terminal.options import current_home

F = TypeVar("F", bound=Callable[..., Any])
VARIABLE = "CLAWBACK_PASSPHRASE"


def locking(function: F) -> F:
    """``--to KEY`` and ``--passphrase``, for commands that write a file which leaves the home."""
    to = click.option(
        "--to", multiple=True, metavar="KEY", help="Encrypt to this age or ssh public key, or file of them; more than once for several."
    )  # fmt: skip
    phrase = click.option(
        "--passphrase", "phrase", is_flag=True, help=f"Encrypt under a passphrase (asked for, or ${VARIABLE})."
    )  # fmt: skip
    return to(phrase(function))


def unlocking(function: F) -> F:
    """``--identity FILE`` and ``--passphrase``, for commands that read one."""
    identity = click.option(
        "--identity",
        type=click.Path(path_type=Path),
        help="Your age or ssh private key, for an encrypted file.",
    )
    phrase = click.option(
        "--passphrase",
        "phrase",
        is_flag=True,
        help=f"The file is under a passphrase (asked for, or ${VARIABLE}).",
    )
    return identity(phrase(function))


def passphrase(wanted: bool, *, new: bool) -> str:
    """What was typed; "" where none is wanted. Raises ``UsageError`` for an empty one."""
    if not wanted:
        return ""
    found = os.environ.get(VARIABLE) or click.prompt(
        "Passphrase", hide_input=True, confirmation_prompt=new, err=True
    )
    if not found:
        raise UsageError("The passphrase is empty.")
    return str(found)


@contextmanager
def opened(path: Path, identity: Path | None, phrase: bool) -> Iterator[Path]:
    """The file itself; where it is encrypted, what it holds, in a file of the home that is gone afterwards."""
    from clawback.privacy import age

    if not age.is_age(path):
        yield path
        return
    data = age.unlock(path, identity=identity, passphrase=passphrase(phrase, new=False))
    with own_file() as plain:
        plain.write_bytes(data)
        yield plain


@contextmanager
def own_file() -> Iterator[Path]:
    """A file that only its owner can read, in memory where the system has such a place, and gone afterwards."""
    shared = Path("/dev/shm")  # noqa: S108
    folder = tempfile.mkdtemp(dir=shared if os.access(shared, os.W_OK) else current_home().root)
    try:
        yield Path(folder) / "file"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_encrypted(path: Path, to: tuple[str, ...], phrase: bool, write: Callable[[Path], int]) -> int:
    """Call ``write`` for the file, and encrypt it for ``to`` or with a passphrase where one is asked for. Returns what ``write`` returned."""
    if not to and not phrase:
        return write(path)
    from clawback.privacy import age

    word = passphrase(phrase, new=True)
    with own_file() as plain:
        made = write(plain)
        age.lock(path, plain.read_bytes(), to=to, passphrase=word)
    return made
