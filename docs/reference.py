"""Writes ``docs/cli.md`` from the commands themselves; ``--check`` fails when the page is out of date."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

PAGE = Path(__file__).with_name("cli.md")
OPENING = """# Commands

Written by `make docs` from the commands themselves; do not edit by hand.
Every command exits with 0 (done), 1 (failed, with one sentence on stderr) or 2 (wrong usage).
"""


def commands(
    group: click.Group, context: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command under the group, depth first, with the name a person types."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        inner = click.Context(command, info_name=name, parent=context)
        yield inner.command_path, command, inner
        if isinstance(command, click.Group):
            yield from commands(command, inner)


def page() -> str:
    from clawback.cli import main_group

    root = click.Context(main_group, info_name="clawback")
    sections = [OPENING]
    for path, command, context in commands(main_group, root):
        if not command.hidden:
            help_text = command.get_help(context).replace(os.environ.get("HOME", "\0"), "~")
            sections.append(f"## `{path}`\n\n```text\n{help_text.rstrip()}\n```\n")
    return "\n".join(sections)


def main() -> int:
    os.environ.update(COLUMNS="100", TERM="dumb")
    text = page()
    if "--check" not in sys.argv:
        PAGE.write_text(text, "utf-8")
        return 0
    if not PAGE.exists() or PAGE.read_text("utf-8") != text:
        print("docs/cli.md does not match the commands; run: make docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
