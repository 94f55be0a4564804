"""The Tab key, pressed in real shells."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

SECONDS = 30


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which ``clawback`` is the one under test."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "clawback"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m clawback "$@"\n')
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def script(shell: str, path: str) -> str:
    done = subprocess.run(
        ["clawback", "completion", shell],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def press(command: list[str], path: str, lines: list[str], typed: str, wanted: str) -> str:
    """Start the shell on a terminal, run the lines, type without Return; what it shows until ``wanted`` is there."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"PATH": path, "PS1": "> ", "TERM": "dumb", "HISTFILE": "/dev/null"}
        os.execvp(command[0], command)
    try:
        until(terminal, "> ")
        for line in lines:
            os.write(terminal, f"{line}; echo done-$((40 + 2))\n".encode())
            until(terminal, "done-42")
        os.write(terminal, typed.encode())
        return until(terminal, wanted)
    finally:
        os.close(terminal)
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def until(terminal: int, wanted: str) -> str:
    seen, end = "", time.monotonic() + SECONDS
    while wanted not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"{wanted!r} did not appear in {seen!r}"
        seen += os.read(terminal, 4096).decode("utf-8", "replace")
    return seen


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [("clawback vers\t", "clawback versions"), ("clawback train --algo\t", "--algorithm")],
)
def test_tab_completes_in_bash(path: str, tmp_path: Path, typed: str, wanted: str) -> None:
    if not shutil.which("bash"):
        pytest.skip("no bash here")
    file = tmp_path / "complete"
    file.write_text(script("bash", path))
    press(["bash", "--norc", "--noprofile", "-i"], path, [f". {file}"], typed, wanted)


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [("clawback vers\t", "clawback versions"), ("clawback train --algo\t", "--algorithm")],
)
def test_tab_completes_in_zsh(path: str, tmp_path: Path, typed: str, wanted: str) -> None:
    if not shutil.which("zsh"):
        pytest.skip("no zsh here")
    file = tmp_path / "complete"
    file.write_text(script("zsh", path))
    lines = ["autoload -Uz compinit", f"compinit -u -d {tmp_path}/dump", f". {file}"]
    press(["zsh", "-f", "-i"], path, lines, typed, wanted)


def test_fish_completes(path: str, tmp_path: Path) -> None:
    if not shutil.which("fish"):
        pytest.skip("no fish here")
    file = tmp_path / "complete"
    file.write_text(script("fish", path))
    for typed, wanted in (("clawback vers", "versions"), ("clawback train --algo", "--algorithm")):
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source {file}; complete -C '{typed}'"],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split()[0] == wanted


def test_completing_a_commands_name_imports_no_command() -> None:
    code = (
        "import sys; from clawback.cli import main_group; import click; "
        "names = [i.value for i in main_group.shell_complete(click.Context(main_group), '')]; "
        "assert {'good', 'train', 'connect'} <= set(names); "
        "print([m for m in sys.modules if m.startswith('clawback.cli.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
