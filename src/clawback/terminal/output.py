"""The one way to print: texts folded to the width of the terminal, data as JSON, questions, and the cells of lists."""

from __future__ import annotations

import json
import os
import re
import sys

import click

from clawback import installed

COLUMNS = 80
"""Of a terminal whose width is not known, and of lists that go into a pipe."""
_COMMAND = re.compile(r"`[^`\n]*`|\S*\b(?:pip|pipx|uvx?) (?:[\w-]+ )*(?:\S+ )?'[^'\n]+'")


def emit(data: object, text: str, as_json: bool) -> None:
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


def one_key(question: str, err: bool = False) -> str:
    """Ask, and read the key that is pressed, in lower case; "" for Ctrl-D. Ctrl-C is raised.

    What was typed before is thrown away, for it cannot be about an answer that nobody has seen yet; and that is done
    before the question is shown, so that a quick answer to it counts.
    """
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSAFLUSH)
        mode = termios.tcgetattr(terminal)
        mode[3] &= ~termios.ISIG  # Ctrl-C comes as a key: it is ours to raise, whoever owns the terminal
        termios.tcsetattr(terminal, termios.TCSANOW, mode)
        click.echo(question, nl=False, err=err)
        key = os.read(terminal, 32).decode("utf-8", "replace").lower()
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    if key == "\x03":
        raise KeyboardInterrupt
    return "" if key == "\x04" else key


CONTROL_SIGNS = dict.fromkeys({*range(32), *range(127, 160)} - {ord("\n"), ord("\t")})
"""For ``str.translate``: it takes out the signs with which a stored text could move the cursor, or write over what stands there."""


def width() -> int:
    """Columns of the terminal, or of COLUMNS."""
    import shutil

    return shutil.get_terminal_size((COLUMNS, 24)).columns


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
