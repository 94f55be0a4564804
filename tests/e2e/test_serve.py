"""Real agents: Claude Code and Codex each hold a conversation with tools through the server, and one with the embedded model."""

from __future__ import annotations

from pathlib import Path

import agents
import pytest

pytestmark = pytest.mark.slow


def test_claude_code_through_the_server(tmp_path: Path) -> None:
    script = Path(__file__).with_name("serve_loop.py")
    seen = agents.on_loopback(script, "claude", str(agents.claude_code()), str(tmp_path), timeout=600)

    tool = seen["tool"]
    assert tool["result"] == "It said: tool-ran"
    assert tool["responses"][-1] == "It said: tool-ran"
    assert tool["sessions"] == [], "the turns are in the agent's own session"
    assert tool["agents"] == ["claude-code"]
    assert tool["calls"] == ["Bash"]
    assert tool["came_back"] == ["tool-ran"], (
        "what the tool said is the next state of the turn that called it"
    )

    embedded = seen["embedded"]
    assert [text.strip() for text in embedded["said"]] == [text.strip() for text in embedded["stored"]]
    assert embedded["sessions"] == []
    assert embedded["versions"] == [0]
    assert embedded["tokens"]


def test_codex_through_the_server(tmp_path: Path) -> None:
    script = Path(__file__).with_name("serve_loop.py")
    seen = agents.on_loopback(script, "codex", str(agents.codex()), str(tmp_path), timeout=600)
    assert len(seen["said"]) == 1
    assert [text.strip() for text in seen["said"]] == [text.strip() for text in seen["stored"]]
    assert seen["sessions"] == [seen["thread"]]
    assert seen["agents"] == ["codex"]
    assert seen["prompts"] == ["Tell me about the otter."]

    tool = seen["tool"]
    assert "tool-ran" in tool["said"][-1]
    assert len(tool["calls"]) == 1
    assert "tool-ran" in tool["came_back"][0], (
        "what the tool said is the next state of the turn that called it"
    )
    assert set(tool["sessions"]) == {tool["thread"]}
    assert tool["stored"][-1].strip() == tool["said"][-1].strip()
