"""docs/environments.md: its files are written, and its commands do what they say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from clawback.cli import main

PAGE = Path("docs/environments.md").read_text("utf-8")
FILES = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    line
    for block in re.findall(r"<!-- tested -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_the_page_shows_works(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES:
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(command)
    assert program == "clawback"
    assert main(arguments) == 0


def test_the_page_has_something_to_test() -> None:
    assert len(FILES) == 3
    assert len(COMMANDS) == 8
