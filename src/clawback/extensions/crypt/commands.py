"""``encryption on|off|status|recovery|recover``: how the database lies on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from clawback.errors import UsageError
from clawback.terminal import CommandGroup, current_home, emit, json_option
from clawback.terminal.encryption import locking, passphrase, unlocking
from clawback.terminal.progress_bar import waiting


@click.group(cls=CommandGroup)
def encryption() -> None:
    """Encrypt the database on the disk: turns, ratings, prompts. Adapters, logs and settings are not covered.

    \b
    clawback data encryption on
    clawback data encryption status
    clawback data encryption recovery key.age --passphrase
    clawback data encryption off
    """


@encryption.command()
@click.option(
    "--key",
    "key_location",
    type=click.Choice(["keyring", "credential", "file"]),
    help="Where the key is kept (default: the first that works).",
)
@json_option
def on(key_location: Any, as_json: bool) -> None:
    """Encrypt the database in place. If it is killed, the database is either unchanged or encrypted.

    \b
    clawback data encryption on
    clawback data encryption on --key file
    """
    from clawback.extensions.crypt import database_encryption as job

    with waiting("encrypting", as_json):
        state = job.encrypt(current_home(), key_location)
    _say(state, as_json)


@encryption.command()
@json_option
def off(as_json: bool) -> None:
    """Decrypt the database in place. The key stays: copies made meanwhile need it.

    \b
    clawback data encryption off
    """
    from clawback.extensions.crypt import database_encryption as job

    with waiting("decrypting", as_json):
        state = job.decrypt(current_home())
    _say(state, as_json)


@encryption.command()
@json_option
def status(as_json: bool) -> None:
    """Whether the database is encrypted, and where its key is.

    \b
    clawback data encryption status
    """
    from clawback.extensions.crypt import database_encryption as job

    _say(job.state(current_home()), as_json)


@encryption.command()
@click.argument("path", type=click.Path(path_type=Path))
@locking
@json_option
def recovery(path: Path, to: tuple[str, ...], phrase: bool, as_json: bool) -> None:
    """Write the key to a file that only your passphrase, or your age key, opens. Keep it elsewhere.

    \b
    clawback data encryption recovery key.age --passphrase
    clawback data encryption recovery key.age --to age1…
    """
    from clawback.encryption import keys
    from clawback.privacy import age

    if bool(to) == phrase:
        raise UsageError("Name who may open it: --passphrase, or --to KEY.")
    key = keys.load(current_home().database)
    secret = passphrase(phrase, new=True)
    with waiting("encrypting", as_json):
        age.lock(path, key.hex().encode(), to=to, passphrase=secret)
    emit({"path": str(path)}, f"The key is in {path}.", as_json)


@encryption.command()
@click.argument("path", type=click.Path(path_type=Path))
@unlocking
@json_option
def recover(path: Path, identity: Path | None, phrase: bool, as_json: bool) -> None:
    """Put the key back from its recovery copy, into a file of mode 0600 beside the database.

    \b
    clawback data encryption recover key.age --passphrase
    """
    from clawback.encryption import keys
    from clawback.privacy import age
    from clawback.store import connection

    secret = passphrase(phrase, new=False)
    with waiting("decrypting", as_json):
        text = age.unlock(path, identity=identity, passphrase=secret)
    try:
        key = bytes.fromhex(text.decode("ascii").strip())
    except (ValueError, UnicodeDecodeError):
        raise UsageError(f"{path} holds no key of a database.") from None
    here = current_home()
    if here.database.exists() and keys.encrypted(here.database) and not connection.opens(here.database, key):
        raise UsageError(
            f"The key in {path} does not open {here.database}: it is that of another database, or the database is damaged. Nothing was changed."
        )
    keys.put_back(here.database, key)
    emit({"kept": "file"}, f"The key is in {here.root / keys.KEY_FILE}.", as_json)


def _say(state: Any, as_json: bool) -> None:
    emit({"encrypted": state.encrypted, "key": state.storage}, state.text(), as_json)
