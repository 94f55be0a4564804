"""Options and questions of commands that write or read an encrypted file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from clawback.errors import UsageError

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
