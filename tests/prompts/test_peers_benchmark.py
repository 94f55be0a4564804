"""What optimisers of others are compared through: a world over a pipe, in which every try counts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks._rule_world import RULES, World
from benchmarks.peers import prompt_pipe

PEER = f"""
import sys
sys.path.insert(0, {str(Path(prompt_pipe.__file__).parent)!r})
from prompt_pipe import connect
job, ask = connect()
print("what a library prints is no answer")
better = job["start"] + "\\n" + job["rule"]
tried = ask("try", [[prompt, job["item"]] for prompt in (job["start"], better)])
assert "```" in ask("reflect", "```\\n" + better + "\\n```")
assert job["start"] in ask("suggest")
ask("done", [{{"text": better, "calls": 2, "score": tried[1][0] - tried[0][0]}}])
"""


def test_a_peer_meets_the_world_and_every_try_counts(tmp_path: Path) -> None:
    world, script = World(0), tmp_path / "peer.py"
    script.write_text(PEER)
    item = world.cases.train[0]
    job = {"start": world.start, "rule": RULES[item.wants[0]], "item": item.id}
    [found] = prompt_pipe.serve(Path(sys.executable), str(script), world, job)
    assert found["score"] == 0.5, "one of the two that the item wants"
    assert (world.tried, world.asked) == (2, 2)
    assert 0 < world.measure(found["text"]) < 1


def test_a_peer_that_fails_says_why(tmp_path: Path) -> None:
    script = tmp_path / "peer.py"
    script.write_text("import no_such_library")
    with pytest.raises(RuntimeError, match="no_such_library"):
        prompt_pipe.serve(Path(sys.executable), str(script), World(0), {})
