"""The terminal agent: tasks in a shell, judged by tests that the policy cannot reach."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawback.errors import UsageError
from clawback.extensions.sandbox.terminal.episode import TerminalSettings
from clawback.extensions.sandbox.terminal.terminal_environment import OWN, TerminalEnvironment, TerminalTasks

__all__ = ["TerminalEnvironment", "TerminalSettings", "TerminalTasks", "make", "names"]


def names() -> list[str]:
    """What can stand after ``terminal:`` beside a folder of tasks: nothing, for our own."""
    return []


def make(rest: str = "", settings: Mapping[str, Any] | None = None) -> TerminalTasks:
    """Our own tasks, or those in a folder: ``terminal``, ``terminal:FOLDER?turns=20&rung=landlock``."""
    told = dict(settings or {})
    known = TerminalSettings.names()
    for name in told:
        if name not in known:
            raise UsageError(f"Terminal tasks have no setting `{name}`. There are {', '.join(known)}.")
    root = Path(rest).expanduser() if rest else OWN
    return TerminalTasks(root, TerminalSettings(**told), f"terminal:{rest}" if rest else "terminal")
