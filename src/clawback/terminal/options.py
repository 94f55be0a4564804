"""What commands are given: the home and its store, options that several of them take, options as a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from clawback import plugins
from clawback.errors import ClawbackError, UsageError
from clawback.paths import Home, home

if TYPE_CHECKING:
    import socket

    from clawback.records import Version
    from clawback.store import Store, TurnStore

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)


def current_home() -> Home:
    """The home folder, made on first use and readable by its owner alone."""
    here = home()
    here.create()
    return here


def open_store() -> Store:
    """The store of this home (made on first use), with the events that waited for it."""
    from clawback import store

    return store.connect(_drained().database)


def open_turns() -> TurnStore:
    """The same of turns and feedback: a rating needs no more."""
    from clawback.store.turn_store import open_turns

    return open_turns(_drained().database)


def _drained() -> Home:
    """The home, after the events that waited for its database have been stored."""
    here = current_home()
    if here.spool.is_dir():
        from clawback.capture import spool

        spool.drain_if_waiting(here)
    return here


def json_option(function: F) -> F:
    """``--json``: machine-readable output, for every command that prints data."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def port_option(default: int) -> Callable[[F], F]:
    """``--port`` of a server."""
    return click.option(
        "--port", type=click.IntRange(0, 65535), default=default, show_default=True, help="0: a free one."
    )


def listen(host: str, port: int) -> socket.socket:
    """A socket where ``--host`` and ``--port`` say. Raises ``ClawbackError`` where the port is taken or the address is not ours."""
    import socket

    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise ClawbackError(
            f"{host}:{port} cannot be listened on: {error.strerror}. Is Clawback running already? Or name another --port."
        ) from error
    return listener


def as_record(kind: type | str, name: str = "options") -> Callable[[Function], Function]:
    """Pass those of a command's options that ``kind`` has fields for as one record, under ``name``; those not given have the field's default.

    ``kind``: a dataclass, or ``module:Name`` of one that is imported when the command runs.
    """

    def decorate(function: Function) -> Function:
        @wraps(function)
        def command(*arguments: object, **values: object) -> object:
            record = plugins.load_value(kind) if isinstance(kind, str) else kind
            named = {f.name: values.pop(f.name) for f in fields(record) if f.name in values}
            defaults = {f.name for f in fields(record) if f.default is not MISSING}
            options = {n: value for n, value in named.items() if value is not None or n not in defaults}
            return function(*arguments, **{name: record(**options)}, **values)

        return command

    return decorate


def ray_option(what: str, workers: str) -> Callable[[Function], Function]:
    """``--ray`` and ``--ray-workers``, passed on as ``ray``: address and number of workers (0: one for each machine), or None."""

    def decorate(function: Function) -> Function:
        @click.option("--ray", metavar="ADDRESS", help=f"{what} (auto, HOST:PORT).")
        @click.option(
            "--ray-workers", type=click.IntRange(1, 1024), help=f"{workers}  [default: one per machine]"
        )
        @wraps(function)
        def command(*arguments: object, ray: str | None, ray_workers: int | None, **values: object) -> object:
            if ray_workers and not ray:
                raise UsageError("--ray-workers is about a cluster: name it with --ray.")
            if ray:
                needs("ray")
            return function(*arguments, ray=(ray, ray_workers or 0) if ray else None, **values)

        return command

    return decorate


class VersionName(click.ParamType["str"]):
    """A version as every command takes it: a number, ``live`` or ``base``."""

    name = "version"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        """Raises ``UsageError`` for anything else."""
        if str(value) not in ("live", "base") and not str(value).isdecimal():
            raise UsageError(
                f"There is no version `{value}`: name a number, live, or base. `clawback versions` lists them."
            )
        return str(value)


def needs(module: str, extra: str = "") -> None:
    """Say at once that a part is not installed, before anything is shown or started. Raises ``MissingExtra``.

    ``extra``: the smallest that brings the module for this purpose; else the one that ``installed.EXTRAS`` names.
    """
    from importlib.util import find_spec

    if find_spec(module) is None:
        from clawback.terminal import sentences

        raise sentences.missing(ModuleNotFoundError(name=module), extra) or ModuleNotFoundError(module)


VERSION = VersionName()


def named_version(store: Store, which: str) -> Version:
    """The version that was named. Raises ``NotFound``."""
    if which in ("base", "live"):
        return store.version(0) if which == "base" else store.live()
    return store.version(int(which))


def version_option(help_: str = "A number, live, or base.") -> Callable[[F], F]:
    """``--version V``, as ``which``."""
    return click.option(
        "--version", "which", default="live", show_default=True, type=VERSION, metavar="V", help=help_
    )
