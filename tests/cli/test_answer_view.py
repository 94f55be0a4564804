"""An answer as it comes: unchanged in a pipe, rendered on a terminal, and nothing of it lost on the way."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from clawback.terminal.answer_view import AnswerView, markdown, paragraph_end

PIECES = st.lists(
    st.sampled_from(["a ", "word", "\n", "\n\n", "```\n", "- item\n", "    code\n", "# T\n", "| a |\n"])
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rendered(text: str, width: int = 24) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(markdown(text))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@given(PIECES)
def test_paragraphs_are_cut_where_nothing_of_the_text_is_lost(pieces: list[str]) -> None:
    rest, blocks = "", []
    for piece in pieces:
        rest = (rest + piece).lstrip("\n")
        while (end := paragraph_end(rest)) is not None:
            assert rest[end:].startswith("\n\n") or not rest[end:].split("\n")[1].strip()
            blocks.append(rest[:end])
            rest = rest[end:].lstrip("\n")
    assert "\n\n".join([*blocks, rest]).split() == "".join(pieces).split()
    for block in blocks:
        fences = [line for line in block.split("\n") if line.startswith("```")]
        assert len(fences) % 2 == 0, "no block of code is cut in two"


def test_no_word_is_cut_by_the_terminals_edge() -> None:
    words = ["several", "words", "of", "different", "lengths", "stand", "in", "this", "paragraph"]
    lines = rendered(" ".join(words)).splitlines()
    assert len(lines) > 2
    assert [word for line in lines for word in line.split()] == words


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Roses are red\nviolets are blue", ["Roses are red", "violets are blue"]),
        ("vector<int> and <b>bold</b>", ["vector<int>", "<b>bold</b>"]),
        ("```\nx = 1\n\ny = 2\n```", ["x = 1", "y = 2"]),
        ("[here](https://example.org)", ["https://example.org"]),
    ],
)
def test_what_markdown_would_swallow_is_shown(text: str, kept: list[str]) -> None:
    shown = rendered(text, 60).replace("  ", " ")
    for part in kept:
        assert part in shown


def test_a_pipe_gets_the_text_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", out := io.StringIO())
    view = AnswerView()
    for piece in ("# A **title", "**\n\n", "and\x1b[31m more"):
        view.write(piece)
    view.end()
    assert out.getvalue() == "# A **title**\n\nand\x1b[31m more\n"


def test_a_terminal_shows_the_rendered_text_and_no_command_of_the_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout", out := Terminal())
    view = AnswerView()
    for piece in ("Some **bold", "** text.\n\nThe ", "end\x1b]0;title\x07."):
        view.write(piece)
    view.end()
    last = out.getvalue().split("\x1b[2K")[-1]
    assert "**" not in last
    assert "end]0;title." in out.getvalue()
    assert "\x1b]0;" not in out.getvalue()


def test_nothing_is_shown_of_an_answer_that_never_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", out := io.StringIO())
    AnswerView().end()
    assert out.getvalue() == ""
