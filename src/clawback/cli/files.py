"""``data backup``: a copy of the database; and how encrypted files are read and written."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from clawback.cli.common import current_home, emit, json_option, open_store
from clawback.cli.encryption import locking, passphrase


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


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@locking
@json_option
def backup(path: Path, to: tuple[str, ...], phrase: bool, as_json: bool) -> None:
    """Copy the database, also while it is in use.

    The copy of an encrypted database needs the same key. With --to or --passphrase the file itself is encrypted, and the database in it needs no
    other key.

    \b
    clawback data backup ~/clawback-2026-11-21.db
    clawback data backup ~/clawback.age --passphrase
    """

    def write(file: Path) -> int:
        with open_store() as store:
            store.backup(file, plain=file != path)
        return 0

    write_encrypted(path, to, phrase, write)
    emit({"path": str(path)}, f"The database was copied to {path}.", as_json)
