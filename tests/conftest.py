"""What every test shares: a home of its own, and no way to a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawback.paths import Home


@pytest.fixture(autouse=True)
def isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's settings are read or written: HOME and CLAWBACK_HOME are temporary in every test."""
    root = tmp_path_factory.mktemp("person")
    monkeypatch.setenv("HOME", str(root))
    monkeypatch.setenv("CLAWBACK_HOME", str(root / ".clawback"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A fresh, empty home."""
    made = Home(tmp_path / "clawback")
    made.create()
    return made
