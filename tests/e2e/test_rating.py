"""Real agents: set up → a conversation → rated by their own command → the ratings are on the right turns → taken out again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from . import agents

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("rating_loop.py")
EXPECTED = [("Tell me about the otter.", [1.0]), ("Tell me about the fox.", [-1.0])]


def on_the_right_turns(seen: dict[str, Any], last: int = 2) -> None:
    stored = seen["stored"][-last:]
    assert [(prompt, ratings) for prompt, _, ratings in stored] == EXPECTED
    assert [response.strip() for _, response, _ in stored] == [said.strip() for said in seen["said"]]


@pytest.mark.parametrize("way", ["claude-hooks", "claude-plugin"])
def test_claude_code(tmp_path: Path, way: str) -> None:
    seen = agents.on_loopback(SCRIPT, way, str(agents.claude_code()), str(tmp_path), timeout=900)
    on_the_right_turns(seen)
    assert len(seen["stored"]) == 2, "commands are no turns, and what hooks and server both saw is one"
    assert "Noted: good" in seen["replies"][0]
    assert seen["restored"]


def test_codex_with_and_without_trust(tmp_path: Path) -> None:
    seen = agents.on_loopback(SCRIPT, "codex", str(agents.codex()), str(tmp_path), timeout=900)
    on_the_right_turns(seen["notify"])
    on_the_right_turns(seen["hooks"])
    assert len(seen["hooks"]["stored"]) == 4
    assert any("trusted" in note for note in seen["notes"]), "that the hooks are skipped until then is said"
    assert seen["restored"]


def test_gemini_cli(tmp_path: Path) -> None:
    seen = agents.on_loopback(SCRIPT, "gemini", str(agents.gemini_cli()), str(tmp_path), timeout=900)
    on_the_right_turns(seen)
    assert len(seen["stored"]) == 2
    assert seen["restored"]
    assert seen["asked_for_commands"] == 0, "a rating never reaches the model"
