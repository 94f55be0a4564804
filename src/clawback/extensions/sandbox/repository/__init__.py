"""The repository agent: rows of SWE-bench on local clones, and a dozen instances of our own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawback.errors import UsageError
from clawback.extensions.sandbox import scratch
from clawback.extensions.sandbox.repository.repository_environment import (
    RepositoryEnvironment,
    RepositoryTasks,
)
from clawback.extensions.sandbox.terminal.episode import TerminalSettings

__all__ = ["RepositoryEnvironment", "RepositoryTasks", "make", "names"]


def names() -> list[str]:
    """What can stand after ``repository:`` beside a file of rows: nothing, for our own."""
    return []


def make(rest: str = "", settings: Mapping[str, Any] | None = None) -> RepositoryTasks:
    """Our own instances, or rows of a file over clones: ``repository:ROWS.jsonl?repositories=FOLDER&packages=FOLDER``."""
    from clawback.extensions.sandbox.repository import own, swe_rows

    told = dict(settings or {})
    repositories, packages = told.pop("repositories", None), told.pop("packages", None)
    seconds = float(told.pop("test_seconds", 300.0))
    known = TerminalSettings.names()
    for name in told:
        if name not in known:
            raise UsageError(
                f"Repository tasks have no setting `{name}`. There are {', '.join([*known, 'repositories', 'packages', 'test_seconds'])}."
            )
    chosen = TerminalSettings(**{"turns": 20, **told})
    extra = [Path(packages).expanduser().resolve()] if packages else []
    if not rest:
        folder = scratch.make("own")
        made = RepositoryTasks(own.build(folder), folder, chosen, "repository", test_seconds=seconds)
        made.delete_at_end(folder)
        return made
    if repositories is None:
        raise UsageError("Say where the clones are: repository:ROWS.jsonl?repositories=FOLDER.")
    found = swe_rows.load(Path(rest).expanduser())
    return RepositoryTasks(
        found, Path(repositories).expanduser(), chosen, f"repository:{rest}", extra, seconds
    )
