"""A block in an agent's rules file: shown as a diff, written when somebody says so, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.errors import UsageError
from clawback.prompt_jobs import prompt_drafts
from clawback.prompt_jobs.prompt_drafts import BEGIN, END, draft, write

PROMPT = "## Tone\n- Be kind."


@given(before=st.text(alphabet="ab #-\n", max_size=40))
def test_what_stands_in_the_file_stays_and_the_block_comes_out_again(
    before: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("project")
    path = folder / "CLAUDE.md"
    path.write_bytes(before.encode())
    write(draft(folder, "CLAUDE.md", PROMPT))
    text = path.read_text()
    assert text.startswith(before)
    assert text.count(BEGIN) == text.count(END) == 1
    assert draft(folder, "CLAUDE.md", PROMPT).diff == ""
    path.write_text(text + "\nMore of mine.\n")
    write(draft(folder, "CLAUDE.md", "- Be kinder."))
    assert "- Be kinder." in path.read_text()
    assert PROMPT not in path.read_text()
    write(draft(folder, "CLAUDE.md", ""))
    assert path.read_text().split() == [*before.split(), "More", "of", "mine."]


def test_nothing_is_written_but_what_was_shown(tmp_path: Path) -> None:
    made = draft(tmp_path, "AGENTS.md", PROMPT)
    assert not (tmp_path / "AGENTS.md").exists()
    assert "+- Be kind." in made.diff
    (tmp_path / "AGENTS.md").write_text("Mine.\n")
    with pytest.raises(UsageError, match="changed since"):
        write(made)
    assert (tmp_path / "AGENTS.md").read_text() == "Mine.\n"


def test_a_file_keeps_its_mode_and_its_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "CLAUDE.md"
    path.write_bytes(b"One.\r\nTwo.\r\n")
    path.chmod(0o640)
    write(draft(tmp_path, "CLAUDE.md", PROMPT))
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.read_bytes().startswith(b"One.\r\nTwo.\r\n\r\n<!--")
    assert b"\n" not in path.read_bytes().replace(b"\r\n", b"")


def test_files_elsewhere_are_not_touched(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside.md", tmp_path / "project"
    outside.write_text("Mine.")
    folder.mkdir()
    (folder / "CLAUDE.md").symlink_to(outside)
    for name, match in (
        ("CLAUDE.md", "link"),
        ("../outside.md", "no rules file"),
        (".bashrc", "no rules file"),
    ):
        with pytest.raises(UsageError, match=match):
            draft(folder, name, PROMPT)
    with pytest.raises(UsageError, match="no folder"):
        draft(tmp_path / "gone", "CLAUDE.md", PROMPT)
    assert outside.read_text() == "Mine."


@pytest.mark.parametrize("text", [BEGIN, END, f"{END} {BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_marks_that_do_not_fit_are_left_to_the_person(tmp_path: Path, text: str) -> None:
    (tmp_path / "CLAUDE.md").write_text(text)
    with pytest.raises(UsageError, match="marks"):
        draft(tmp_path, "CLAUDE.md", PROMPT)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        draft(tmp_path, "CLAUDE.md", PROMPT)
    (tmp_path / "CLAUDE.md").write_bytes(b"x" * (prompt_drafts.MOST + 1))
    with pytest.raises(UsageError, match="larger"):
        draft(tmp_path, "CLAUDE.md", PROMPT)
