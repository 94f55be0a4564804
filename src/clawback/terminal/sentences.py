"""What went wrong, as one sentence that says what to do. Imported only when something did.

Every error of the command line comes out of here, so that all of them read alike.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from typing import Any

import click

from clawback import installed
from clawback.errors import ClawbackError, MissingExtra

MEANT = {
    "install": "init",
    "setup": "init",
    "settings": "config",
    "list": "turns",
    "ls": "turns",
    "history": "turns",
    "delete": "forget",
    "stats": "status",
    "models": "model",
}
"""Words that other programs use → the command that does it here."""


def missing(error: ImportError, extra: str = "") -> MissingExtra | None:
    """The sentence for a module of one of our extras that is not installed; None for any other module."""
    name = (error.name or "").partition(".")[0]
    extra = extra or next((extra for extra, modules in installed.EXTRAS.items() if name in modules), "")
    if not extra:
        return None
    return MissingExtra(f"This needs a part that is not installed ({name}). Run: {installed.add(extra)}")


def of(error: BaseException) -> str:
    """Any error, as one sentence."""
    if isinstance(error, ClawbackError):
        return str(error)
    if isinstance(error, click.ClickException):
        return _of_usage(error)
    if isinstance(error, ImportError) and (found := missing(error)):
        return str(found)
    if isinstance(error, OSError):
        return _of_system(error)
    return f"unexpected {type(error).__name__}: {error}. Run it with --debug to see where."


def _of_usage(error: click.ClickException) -> str:
    """Click's own errors: what is wrong with what was typed, what was meant or is allowed, and where that is said."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "clawback"
    if found := re.match(r"No such (command|option):? '?([^'\s]+?)'?\.?(?:\s|$)", error.format_message()):
        kind, typed = found.groups()
        known = _known(context, kind) if context else []
        meant = MEANT.get(typed) if kind == "command" and path == "clawback" else None
        meant = meant or nearest(typed, known)
        hint = f"; did you mean `{path} {meant}`?" if meant else "."
        return f"There is no {kind} `{typed}`{hint} `{path} --help` lists them."
    if isinstance(error, click.MissingParameter):
        return f"{_named(error)} is missing. `{path} --help` shows how it is called."
    if isinstance(error, click.BadParameter) and error.param is not None:
        typed = re.split(r" is not ", error.message, maxsplit=1)[0].strip("'\"")
        if allowed := _allowed(error.param.type):
            guess = (
                nearest(typed, error.param.type.choices) if isinstance(error.param.type, click.Choice) else ""
            )
            return (
                f"{_named(error)} is {allowed}, not `{typed}`{f'; did you mean `{guess}`?' if guess else '.'}"
            )
    if found := re.search(r"^(?:File|Path) '(.+)' does not exist\.", getattr(error, "message", "")):
        return f"There is no file {found[1]}."
    if found := re.search(r"^(?:File|Path) '(.+)' is a directory", getattr(error, "message", "")):
        return f"{found[1]} is a folder: name a file."
    if found := re.match(r"Got unexpected extra arguments? \((.+)\)", error.format_message()):
        many = "are words" if " " in found[1] else "is one word"
        return f"`{found[1]}` {many} too many. `{path} --help` shows how it is called."
    text = error.format_message().rstrip(".")
    return f"{text[:1].upper()}{text[1:]}. `{path} --help` shows how it is called."


def _known(context: click.Context, kind: str) -> list[str]:
    if kind == "command":
        return context.command.list_commands(context) if isinstance(context.command, click.Group) else []
    return [
        name
        for one in context.command.get_params(context)
        for name in (*one.opts, *one.secondary_opts)
        if name.startswith("-")
    ]


def _named(error: click.BadParameter) -> str:
    """``SCORE`` or ``--port``: the parameter as a person types it."""
    if isinstance(error.param, click.Option):
        return max(error.param.opts, key=len)
    if error.param is None:
        return "An argument"
    return (error.param.metavar or error.param.name or "").upper()


def _allowed(kind: click.ParamType[Any]) -> str:
    """What a parameter takes, in words; "" where its own message is plain enough."""
    if isinstance(kind, click.IntRange | click.FloatRange):
        noun = "a whole number" if isinstance(kind, click.IntRange) else "a number"
        least = "" if kind.min is None else f"{'above ' if kind.min_open else ''}{kind.min}"
        most = "" if kind.max is None else f"{'below ' if kind.max_open else ''}{kind.max}"
        if least and most:
            return f"{noun} from {least} to {most}"
        return (
            f"{noun} {f'of at least {least}' if least else f'of at most {most}'}" if least or most else noun
        )
    if isinstance(kind, click.Choice):
        return f"one of {', '.join(map(str, kind.choices))}"
    return {"integer": "a whole number", "float": "a number"}.get(kind.name, "")


def nearest(typed: str, known: Iterable[object]) -> str:
    """The known name that is most like what was typed; "" where none is."""
    from difflib import get_close_matches

    found = get_close_matches(typed.lower(), [str(name) for name in known], n=1, cutoff=0.7)
    return found[0] if found else ""


def _of_system(error: OSError) -> str:
    """What the system refused."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"The disk is full{where}: make room and try again; nothing that was stored is lost."
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"This may not be read or written{where}: {error.strerror}. Check its permissions, or name another CLAWBACK_HOME."
    folder = os.path.dirname(os.fsdecode(error.filename)) if error.filename else ""  # noqa: PTH120
    if error.errno == errno.ENOENT and folder and not os.path.isdir(folder):  # noqa: PTH112
        return f"The folder {folder} is not there. Make it first, or name another."
    return f"The system refused{where}: {error.strerror or error}."
