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


def test_a_broken_rule_goes_back_once_and_is_said_again_with_the_next_prompt(tmp_path: Path) -> None:
    script = Path(__file__).with_name("rules_loop.py")
    seen = agents.on_loopback(script, str(agents.claude_code()), str(tmp_path), timeout=600)

    assert (seen["shown"], seen["calls_first"]) == ("It is four.", 2), "sent back once"
    assert seen["calls_rules"] == 0
    assert "1. Never apologise. (kept in 1 of 2 answers)" in seen["listed"]
    assert "Never apologise." in seen["reminded"]
    [(_, broken, _), (sentence, kept, messages), (_, third, _)] = seen["turns"]
    assert (broken, kept, third) == ("Sorry, it is four.", "It is four.", "Sorry, it is four.")
    assert messages == ["What is two and two?", broken, sentence]
    assert (seen["kept"], seen["checked"], seen["breaches"]) == (1, 3, [3, 1]), "the receipts show both"
    assert seen["log"] == ""


def test_auto_mode_runs_what_the_vendors_server_has_checked_and_nothing_else(tmp_path: Path) -> None:
    script = Path(__file__).with_name("auto_mode.py")
    seen = agents.on_loopback(script, str(agents.claude_code()), str(tmp_path), timeout=600)
    for one in seen.values():
        assert one["safeguards"] == ["dangerous_tool_use"], "the proxy passes on what the check needs"
        assert "dangerous-tool-use-" in one["betas"]
        assert one["result"]["result"] == "That is all."
    assert seen["checked"]["made"]
    assert seen["checked"]["result"]["permission_denials"] == []
    assert not seen["unchecked"]["made"]
    assert [one["tool_name"] for one in seen["unchecked"]["result"]["permission_denials"]] == ["Bash"]
