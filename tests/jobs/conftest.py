"""One run that went through, which many tests look at or go on from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from clawback import jobs, store
from clawback.paths import Home

from ..conftest import copied
from .test_training import rated_home


@dataclass(frozen=True)
class Whole:
    """A home with its first run, what came of it, and what was stored of its progress meanwhile."""

    home: Home
    outcome: jobs.RunResult
    progress: tuple[Any, ...]

    def copied(self, root: Path) -> Home:
        """The same home in another place, to be changed."""
        made = Home(root)
        copied(self.home, made)
        return made


@pytest.fixture(scope="session")
def whole(shared: Callable[..., Whole]) -> Whole:
    """Nothing is changed in it."""
    return shared("whole", _whole)


def _whole(folder: Path) -> Whole:
    home = rated_home(folder / "home")
    progress: list[Any] = []

    def follow(_: Any) -> None:
        with store.connect(home.database) as db:
            if run := db.active_run():
                progress.append(run.progress)

    return Whole(home, jobs.train_once(home, on_progress=follow), tuple(progress))
