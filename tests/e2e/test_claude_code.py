"""A real Claude Code teaches a model what somebody likes, without ever reaching beyond this machine."""

from __future__ import annotations

from pathlib import Path

import agents
import pytest

pytestmark = pytest.mark.slow


def test_turns_are_captured_rated_trained_on_and_answered_by_the_new_version(tmp_path: Path) -> None:
    script = Path(__file__).with_name("claude_loop.py")
    seen = agents.on_loopback(script, str(agents.claude_code()), str(tmp_path), "bullets", timeout=7200)

    assert seen["llm_calls_of_rl"] == 0, "/rl must be answered without calling the model"
    assert seen["stored_equals_rated"], "each rating must be on the very turn that was seen"
    assert seen["stored"] == 32
    assert seen["versions"] == [[0, "retired"], [1, "live"]], seen
    assert seen["version_after_training"] == 1
    assert seen["fits_after"] > seen["fits_before"]
    assert seen["version_after_rollback"] == 0
    assert seen["settings_restored"], "init --remove must leave the settings byte for byte as they were"
