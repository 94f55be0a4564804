"""What the commands share: the home, the store, the one way to print."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

from clawback import installed, plugins
from clawback.errors import UsageError
from clawback.paths import Home, home

if TYPE_CHECKING:
    from clawback.records import Version
    from clawback.store import Store, TurnStore

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
HYPHEN, SPACE, LONGEST_COMMAND = "\u2011", "\u00a0", 44
"""Stand-ins while help is wrapped, and the longest command that stays whole, in characters."""
COLUMNS = 80
"""Of a terminal whose width is not known, and of lists that go into a pipe."""


def json_option(function: F) -> F:
    """``--json``: machine-readable output, for every command that prints data."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def as_record(kind: type | str, name: str = "options") -> Callable[[Function], Function]:
    """Pass those of a command's options that ``kind`` has fields for as one record, under ``name``; those not given have the field's default.

    ``kind``: a dataclass, or ``module:Name`` of one that is imported when the command runs.
    """

    def decorate(function: Function) -> Function:
        @wraps(function)
        def command(*arguments: Any, **values: Any) -> Any:
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
        def command(*arguments: Any, ray: str | None, ray_workers: int | None, **values: Any) -> Any:
            if ray_workers and not ray:
                raise UsageError("--ray-workers is about a cluster: name it with --ray.")
            if ray:
                needs("ray")
            return function(*arguments, ray=(ray, ray_workers or 0) if ray else None, **values)

        return command

    return decorate


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


def in_walk() -> bool:
    """Whether the command is a step of `clawback start`, which gives it this object, and says itself what comes next."""
    return getattr(click.get_current_context(silent=True), "obj", None) == "start"


def current_home() -> Home:
    """The home folder, made on first use and readable by its owner alone."""
    here = home()
    here.create()
    return here


class HelpFormatter(click.HelpFormatter):
    """Wraps help as ``fold`` does: neither a name with a hyphen nor a short command is cut in two."""

    def write_text(self, text: str) -> None:
        super().write_text(_protect(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(name, _protect(text)) for name, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        return super().getvalue().replace(HYPHEN, "-").replace(SPACE, " ")


def _protect(text: str) -> str:
    """The text with signs that are not wrapped at in place of hyphens within words and of spaces within short commands."""
    text = re.sub(r"(?<=\w)-(?=\w)", HYPHEN, text)
    return re.sub(rf"`[^`\n]{{,{LONGEST_COMMAND}}}`", lambda command: command[0].replace(" ", SPACE), text)


class HelpContext(click.Context):
    formatter_class = HelpFormatter


class CommandGroup(click.Group):
    """A group of commands about one thing: ``X`` and ``X list`` list, ``X show`` shows one, and help lines are whole.

    ``members``: commands that other files hold, as ``file:name``. ``renamed``: old name → new name within the group.
    """

    context_class = HelpContext

    def __init__(
        self,
        *arguments: Any,
        members: Mapping[str, str] | None = None,
        renamed: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.members, self.renamed = dict(members or {}), dict(renamed or {})

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*self.commands, *self.members]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = self.renamed.get(cmd_name, cmd_name)
        if cmd_name in self.members:
            return load_command(self.members[cmd_name])
        command = super().get_command(ctx, cmd_name)
        if command is None and self.members:  # of another package
            path = plugins.where(plugins.COMMANDS, f"{self.name}.{cmd_name}")
            command = plugins.load_value(path) if path else None
        if command is not None:
            command.context_class = HelpContext
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        lists = "list" in self.list_commands(ctx)
        if lists and not self.invoke_without_command and (not args or args[:1] == ["--json"]):
            args = ["list", *args]
        elif not lists and self.invoke_without_command and args[:1] == ["list"]:
            args = args[1:]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if new := self.renamed.get(args[0]):
            note_new_name(ctx, args, f"{ctx.command_path} {args[0]}", f"{ctx.command_path} {new}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        lines = [
            (name, command.get_short_help_str(1000))
            for name, command in rows
            if command and not command.hidden
        ]
        if self.invoke_without_command and "list" not in {*self.list_commands(ctx), *self.renamed}:
            lines.insert(0, ("list", "The same as without a command."))
        if lines:
            with formatter.section("Commands"):
                formatter.write_dl(lines)


def load_command(path: str) -> click.Command:
    """The command that ``file:name`` under ``cli/`` names, or ``package.module:name`` of an extension; it is imported now."""
    file, _, name = path.partition(":")
    command: click.Command = getattr(import_module(file if "." in file else f"clawback.cli.{file}"), name)
    command.context_class = HelpContext
    return command


def extension_commands(area: str) -> dict[str, str]:
    """Commands of an area (``lab``) that extensions of Clawback register: name → ``module:name``."""
    start = f"{area}."
    commands = plugins.built_in(plugins.COMMANDS).items()
    return {name.removeprefix(start): value for name, value in commands if name.startswith(start)}


def note_new_name(ctx: click.Context, args: list[str], old: str, new: str) -> None:
    """A line on stderr for an old name that goes on working; none where a program reads the output."""
    if not ctx.resilient_parsing and "--json" not in args:
        say(f"`{old}` is `{new}` now; the old name goes on working.", err=True)


class VersionName(click.ParamType["str"]):
    """A version as every command takes it: a number, ``live`` or ``base``."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        """Raises ``UsageError`` for anything else."""
        if str(value) not in ("live", "base") and not str(value).isdecimal():
            raise UsageError(
                f"There is no version `{value}`: name a number, live, or base. `clawback versions` lists them."
            )
        return str(value)


VERSION = VersionName()


def named_version(store: Store, which: str) -> Version:
    """The version that was named. Raises ``NotFound``."""
    if which in ("base", "live"):
        return store.version(0) if which == "base" else store.live()
    return store.version(int(which))


def emit(data: Any, text: str, as_json: bool) -> None:
    """Print the data as JSON, or the text that says the same to a person."""
    click.echo(json.dumps(data, ensure_ascii=False, indent=2) if as_json else fold(text))


def say(text: str = "", indent: str | None = None, *, err: bool = False) -> None:
    """Print a text for a person, folded to the width of the terminal. Every text goes through this or ``emit``: a terminal cuts within words."""
    click.echo(fold(text, indent, err=err), err=err)


def confirm(question: str, *, default: bool = False, abort: bool = False, err: bool = False) -> bool:
    """Ask yes or no; the question and the keys are folded together.

    Raises ``click.Abort`` at Ctrl-C, at the end of the input, and at a no where ``abort`` is set.
    """
    text = fold_words(f"{question} [{'Y/n' if default else 'y/N'}]:", err=err)
    return click.confirm(
        f"{text} ", default=default, abort=abort, err=err, prompt_suffix="", show_default=False
    )


def needs(module: str, extra: str = "") -> None:
    """Say at once that a part is not installed, before anything is shown or started. Raises ``MissingExtra``.

    ``extra``: the smallest that brings the module for this purpose; else the one that ``installed.EXTRAS`` names.
    """
    from importlib.util import find_spec

    if find_spec(module) is None:
        from clawback.cli import sentences

        raise sentences.missing(ModuleNotFoundError(name=module), extra) or ModuleNotFoundError(module)


CONTROL_SIGNS = dict.fromkeys({*range(32), *range(127, 160)} - {ord("\n"), ord("\t")})
"""For ``str.translate``: it takes out the signs with which a stored text could move the cursor, or write over what stands there."""


def width() -> int:
    """Columns of the terminal, or of COLUMNS."""
    import shutil

    return shutil.get_terminal_size((COLUMNS, 24)).columns


_COMMAND = re.compile(r"`[^`\n]*`|\S*\b(?:pip|pipx|uvx?) (?:[\w-]+ )*(?:\S+ )?'[^'\n]+'")


def fold(text: str, indent: str | None = None, *, err: bool = False) -> str:
    """Lines broken between words to fit the terminal, those that go on indented; a command stays whole, so that it can be copied, and is named as it is installed.

    What goes into a pipe stays one line a thing. ``indent``: of lines that go on; by default two spaces more than an indented line has, else none.
    ``err``: it goes to stderr.
    """
    return fold_words(installed.localize(text), indent, err=err)


def fold_words(text: str, indent: str | None = None, *, err: bool = False) -> str:
    """The same for words that are not ours: nothing in them is renamed, and none of their signs commands the terminal."""
    text = text.translate(CONTROL_SIGNS)
    if not (sys.stderr.isatty() if err else sys.stdout.isatty() or os.environ.get("COLUMNS")):
        return text
    import textwrap

    folded = [
        textwrap.fill(
            _COMMAND.sub(lambda found: found[0].replace(" ", "\0"), line),
            width(),
            subsequent_indent=_hanging(line) if indent is None else indent,
            break_long_words=False,
            break_on_hyphens=False,
        ).replace("\0", " ")
        if len(line) > width()
        else line
        for line in text.split("\n")
    ]
    return "\n".join(folded)


def _hanging(line: str) -> str:
    """The indentation of what goes on below ``line``."""
    start = len(line) - len(line.lstrip(" "))
    return " " * (start + 2) if start else ""


def version_option(help_: str = "A number, live, or base.") -> Callable[[F], F]:
    """``--version V``, as ``which``."""
    return click.option(
        "--version", "which", default="live", show_default=True, type=VERSION, metavar="V", help=help_
    )


def columns(prefix: str, *texts: str) -> str:
    """A line of a list: what is of fixed width, then texts that share what is left of the terminal."""
    each = max((width() - len(prefix) - 2 * len(texts)) // len(texts), 8)
    return prefix + "".join(f"  {shorten(text, each):<{each}}" for text in texts).rstrip()


def quantity(count: int, noun: str) -> str:
    """``1 version``, ``2 versions``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def shorten(text: str, width: int) -> str:
    """One line of at most ``width`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def when(timestamp: float) -> str:
    """Local time, to the minute."""
    from datetime import datetime

    return datetime.fromtimestamp(timestamp).strftime("%Y-%m-%d %H:%M")
