"""Real Codex and Claude Code work on repository tasks and are trained in: every sampled token counts once, with the learner's log-prob."""

from pathlib import Path

import pytest

from tests.e2e import agents
from tests.harness.boxes import boxes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not boxes(), reason="no box with a network of its own can be made here"),
]


@pytest.mark.parametrize(("name", "program"), [("codex", agents.codex), ("claude-code", agents.claude_code)])
def test_a_real_program_does_what_the_policy_says_and_every_token_is_accounted_for(tmp_path, name, program):
    script = Path(__file__).with_name("real_program.py")
    scripted, trained = agents.on_loopback(script, name, str(program()), str(tmp_path), timeout=1800)
    played = scripted["scripted"]
    assert (played["success"], played["replies"], played["failed"], played["unaccounted"]) == (1.0, 2.0, 0, 0)
    after = trained["after"]
    assert (after["failed"], after["unaccounted"]) == (0, 0)
    assert after["log-probs apart"]["largest"] < 1e-3
    assert trained["largest gap"] < 1e-4
