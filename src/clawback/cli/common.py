"""What the commands share: the home, the store, the one way to print."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from clawback.paths import Home, home

if TYPE_CHECKING:
    from clawback.store import Store

F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """``--json``: machine-readable output, for every command that prints data."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def open_store() -> Store:
    """The store of this home (made on first use)."""
    from clawback import store

    return store.connect(current_home().database)


def current_home() -> Home:
    """The home folder, made on first use and readable by its owner alone."""
    here = home()
    here.create()
    return here


def emit(data: Any, text: str, as_json: bool) -> None:
    """Print the data as JSON, or the text that says the same to a person."""
    click.echo(json.dumps(data, ensure_ascii=False, indent=2) if as_json else text)


def shorten(text: str, width: int) -> str:
    """One line of at most ``width`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
