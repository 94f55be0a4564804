"""Groups of commands: their members imported when they are called, their former names, and their help."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import click

from clawback import plugins
from clawback.terminal.output import say

HYPHEN, SPACE, LONGEST_COMMAND = "\u2011", "\u00a0", 44
"""Stand-ins while help is wrapped, and the longest command that stays whole, in characters."""


def in_walk() -> bool:
    """Whether the command is a step of `clawback start`, which gives it this object, and says itself what comes next."""
    return getattr(click.get_current_context(silent=True), "obj", None) == "start"


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
            return find_command(ctx, f"{self.name}.{cmd_name}")
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


def find_command(ctx: click.Context, path: str) -> click.Command | None:
    """The command that an extension or another package registers; None where nobody does. Raises ``NotFound`` for that of an extension that was
    taken away, but at the Tab key."""
    where = plugins.where(plugins.COMMANDS, path)
    if not where and path in plugins.BUILT_IN[plugins.COMMANDS] and not ctx.resilient_parsing:
        plugins.require(plugins.COMMANDS, path, f"`clawback {path.replace('.', ' ')}`")
    if not where:
        return None
    command: click.Command = plugins.load_value(where)
    command.context_class = HelpContext
    return command


def extension_commands(area: str) -> dict[str, str]:
    """Commands of an area (``lab``, ``lab.hosted``) that extensions of Clawback register: name → ``module:name``."""
    commands = plugins.built_in(plugins.COMMANDS).items()
    paths = ((path.rpartition("."), value) for path, value in commands)
    return {name: value for (parent, _, name), value in paths if parent == area}


def note_new_name(ctx: click.Context, args: list[str], old: str, new: str) -> None:
    """A line on stderr for an old name that goes on working; none where a program reads the output."""
    if not ctx.resilient_parsing and "--json" not in args:
        say(f"`{old}` is `{new}` now; the old name goes on working.", err=True)
