"""Real opencode and Hermes Agent in a terminal, with our plugins: each turn once, each rating on what was seen, nothing of it with the model."""

from __future__ import annotations

from pathlib import Path

import agents
import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("agent", ["opencode", "hermes"])
def test_turns_are_recorded_once_rated_and_the_plugin_is_taken_out(agent: str, tmp_path: Path) -> None:
    if agent == "opencode":
        program = agents.opencode()
        further = [str(program.parents[1])]
    else:
        program, further = agents.hermes(), []
    script = Path(__file__).with_name("plugin_loop.py")
    result = agents.on_loopback(script, agent, str(program), str(tmp_path), *further, timeout=500)
    otter, fox = result["turns"]
    assert (otter["prompt"], otter["response"]) == ("Tell me about the otter.", "All about the otter.")
    assert (fox["prompt"], fox["response"]) == ("Tell me about the fox.", "All about the fox.")
    assert otter["roles"][-3:] == ["user", "assistant", "tool"], "the shell command and its result"
    assert otter["feedback"][0][:2] == ["rating", 1.0]
    assert fox["feedback"][0][:2] == ["rating", -1.0]
    assert {(turn["kind"], turn["agent"], turn["cwd"]) for turn in result["turns"]} == {
        ("main", agent, result["work"])
    }
    assert result["leaked"] == [], "neither a command nor its reply reaches a model"
    assert result["after"] == result["before"]
