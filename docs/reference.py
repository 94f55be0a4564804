"""Writes ``docs/cli.md`` from the commands, ``docs/settings.md`` from ``config/`` and the picture in ``docs/architecture.md`` from the code;
``--check`` fails when one is out of date."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

HERE = Path(__file__).parent
OPENING = """# Commands

Written by `make docs` from the commands themselves; do not edit by hand.

- **Exit codes**: 0 done, 1 failed (or, where a command looks for something wrong, it found something: `doctor`, `gate`, `service status`, `import`), 2 wrong usage, 130 stopped by Ctrl-C.
- **Errors** are one sentence on stderr, `clawback: …`, that says what happened and what to do. With `--json` the same sentence is `{"error": "…"}`, on stderr too:
  stdout holds what was asked for, or nothing. `--debug` shows where an error came from.
- **`--json`** prints a list where a command lists things, one object everywhere else.
- **The same option for the same thing**: `--turn ID` is a turn, `--version V` (or VERSION) a version: a number, `live` or `base`; `--output` is where something is written; `--limit` is how many.
- Lists fit the terminal (80 columns in a pipe; `COLUMNS` sets another width).
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
    os.environ.update(COLUMNS="80", TERM="dumb")
    sys.path.insert(0, str(HERE))
    import house

    from clawback.config import settings

    wrong, architecture = 0, HERE / "architecture.md"
    drawn = house.with_picture(architecture.read_text("utf-8"))
    for path, text in (
        (HERE / "cli.md", page()),
        (HERE / "settings.md", settings.page()),
        (architecture, drawn),
    ):
        if "--check" not in sys.argv:
            path.write_text(text, "utf-8")
        elif not path.exists() or house.without_sizes(path.read_text("utf-8")) != house.without_sizes(text):
            print(f"docs/{path.name} is out of date; run: make docs", file=sys.stderr)
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
