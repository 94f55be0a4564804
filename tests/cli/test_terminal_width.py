"""Eighty columns: no sentence, question or line of help is cut within a word by the terminal, and nothing is silent for long."""

from __future__ import annotations

import ast
import io
import re
import sys
from pathlib import Path

import click
import pytest

from clawback import cli, progress, terminal
from clawback.terminal import HelpContext
from tests.test_docs import commands, parsed

from .test_commands import ALL

CLI = Path(cli.__file__).parent
SOURCES = [
    *CLI.glob("*.py"),
    *(CLI.parent / "training_commands").glob("*.py"),
    *Path(terminal.__file__).parent.glob("*.py"),
    *(CLI.parent / "extensions").rglob("commands.py"),
]
SENTENCE = "A sentence about answers that goes on and on, past what eighty columns hold, and ends with a command: `clawback inbox --rate`."


def help_at_80(path: str, command: click.Command) -> list[str]:
    context = command.context_class(command, info_name=path, terminal_width=80)
    return command.get_help(context).splitlines()


def examples(command: click.Command) -> list[str]:
    """The lines of a help's unwrapped paragraphs that call Clawback."""
    raw = re.findall(r"^\s*\x08\n(.*?)(?:\n\s*\n|\Z)", command.help or "", re.DOTALL | re.MULTILINE)
    return [line for text in raw for line in text.splitlines() if "clawback " in line]


def test_help_fits_into_eighty_columns() -> None:
    wide = [
        f"{path}: {line}"
        for path, command in ALL.items()
        for line in help_at_80(path, command)
        if len(line) > 80
    ]
    assert wide == []


def test_help_cuts_neither_names_with_a_hyphen_nor_short_commands() -> None:
    text = "\n".join(line for path, command in ALL.items() for line in help_at_80(path, command))
    assert re.findall(r"\w-\n\s*\w+", text) == []
    assert "\u2011" not in text
    assert "\u00a0" not in text
    ends = [
        line for line in text.splitlines() if line.count("`") % 2 and len(line.rpartition("`")[2].split()) < 3
    ]
    assert ends == []


def test_every_command_has_an_example_that_can_be_typed() -> None:
    """Groups without a command of their own included; what an example names exists."""
    without = [path for path, command in ALL.items() if not examples(command)]
    wrong = []
    for path, command in ALL.items():
        for words in commands("\n".join(examples(command))):
            try:
                parsed(words)
            except click.UsageError as error:
                wrong.append(f"{path}: {words}: {error.message}")
    assert (without, wrong) == ([], [])


def test_every_text_goes_through_the_functions_that_fold() -> None:
    """``click.echo`` and its like cut within words; what moves the cursor, is JSON or is a program's text is no sentence."""
    raw = []
    for file in SOURCES:
        if file == Path(terminal.__file__).with_name("output.py"):
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "click.confirm")):
                continue
            text = ast.unparse(node)
            if not any(sign in text for sign in ("nl=False", "json.dumps", "get_help()", ".source()")):
                raw.append(f"{file.name}:{node.lineno}: {text}")
    assert raw == []


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.usefixtures("narrow")
def test_emit_and_say_break_lines_between_words(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.emit({}, f"{SENTENCE}\n  12  {SENTENCE}", as_json=False)
    terminal.say(SENTENCE)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()) == " ".join([SENTENCE, "12", SENTENCE, SENTENCE])
    assert any("`clawback inbox --rate`" in line for line in lines), "a command stays whole"
    table = next(i for i, line in enumerate(lines) if line.startswith("  12"))
    assert lines[table + 1].startswith("    "), "what goes on is indented further"


@pytest.mark.usefixtures("narrow")
def test_blank_lines_stay(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say("\nabove\n\nbelow\n")
    assert capsys.readouterr().out == "\nabove\n\nbelow\n\n"


def test_json_is_never_folded(narrow: None, capsys: pytest.CaptureFixture[str]) -> None:
    terminal.emit({"text": SENTENCE}, "", as_json=True)
    assert SENTENCE in capsys.readouterr().out


@pytest.mark.usefixtures("narrow")
def test_a_question_is_folded_with_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(click, "confirm", lambda text, **_: asked.append(text))
    terminal.confirm(SENTENCE[:78])
    assert asked[0].endswith("[y/N]: ")
    assert all(len(line) <= 80 for line in asked[0].splitlines())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_about_long_work_takes_the_place_of_the_spinners_frame(
    narrow: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "__stderr__", screen)
    screen.write("⠋ setting up … 3 s")
    progress.note(SENTENCE)
    shown = screen.getvalue().split("\r\x1b[K")
    assert shown[0] == "⠋ setting up … 3 s"
    assert all(len(line) <= 80 for line in shown[1].splitlines())
    assert shown[1].endswith("\n")


def test_a_line_about_long_work_is_one_line_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "__stderr__", pipe)
    progress.note(SENTENCE)
    assert pipe.getvalue() == f"{SENTENCE}\n"


def test_commands_of_groups_wrap_their_help_alike() -> None:
    assert {command.context_class for path, command in ALL.items() if path != "clawback"} == {HelpContext}
