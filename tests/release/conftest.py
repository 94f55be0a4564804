"""A home whose live version says other things than its base."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clawback import jobs, store
from clawback.cli import main
from clawback.paths import Home

from ..conftest import copied, rate_some

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def moved_once(shared: Callable[..., Home]) -> Home:
    return shared("moved", _moved)


def _moved(folder: Path) -> Home:
    home = Home(folder)
    rate_some(home)
    home.config.write_text(home.config.read_text().replace("steps = 2", "steps = 24\nlearning_rate = 0.004"))
    jobs.train_once(home)
    with store.connect(home.database) as db:
        db.set_report(1, dict(db.version(1).report or {}) | {"accepted": True})
        db.promote(1)
    return home


@pytest.fixture(scope="module")
def moved(moved_once: Home, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home whose live version was improved until it says other things than its base."""
    home = Home(tmp_path_factory.mktemp("moved") / "home")
    copied(moved_once, home)
    return home


@pytest.fixture
def improved(moved: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("CLAWBACK_HOME", str(moved.root))
    return moved


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        return (code, *capsys.readouterr())

    return call
