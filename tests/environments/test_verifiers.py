"""verifiers' traces, as vf-eval 0.4 writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawback.errors import NotFound, UsageError
from clawback.extensions.worlds import vf_eval


def node(role: str, content: str, parent: int | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"message": {"role": role, "content": content}, "sampled": role == "assistant"}
    return made if parent is None else {**made, "parent": parent}


def episode(**changes: Any) -> dict[str, Any]:
    trace = {
        "version": 1,
        "task": {"type": "Sum", "data": {"idx": 0, "prompt": "1+1?"}, "key": "k0"},
        "nodes": [node("user", "1+1?"), node("assistant", "2", 0), node("user", "Sure?", 1), node("assistant", "Yes.", 2), node("assistant", "3", 0)],
        "rewards": {"exact": {"score": 1.0, "weight": 0.5}, "short": {"score": 0.5}},
        "ok": True,
        "something_new": {},
    }  # fmt: skip
    return {"id": "e", "traces": [trace | changes]}


def write(folder: Path, *episodes: dict[str, Any]) -> Path:
    (folder / "traces.jsonl").write_text("\n".join(map(json.dumps, episodes)) + "\n")
    return folder


def test_a_branch_is_a_conversation_and_rewards_are_weighed(tmp_path: Path) -> None:
    [trace] = vf_eval.read(write(tmp_path, episode()))
    assert (trace.task, trace.reward, trace.error) == ("k0", 1.0, "")
    assert [[m["content"] for m in way] for way in trace.conversations] == [
        ["1+1?", "2", "Sure?", "Yes."],
        ["1+1?", "3"],
    ]
    assert trace.sampled == ((False, True, False, True), (False, True))


def test_what_broke_or_was_not_scored_has_no_reward(tmp_path: Path) -> None:
    broken = episode(ok=False, errors=[{"message": "sandbox away"}])
    unscored = episode(rewards={"exact": None})
    keyless = episode(task={"type": "Sum", "data": {"idx": 1}})
    odd = episode(nodes=[node("user", "x", 7), node("assistant", "y", 1)])
    traces = vf_eval.read(write(tmp_path, broken, unscored, keyless, odd) / "traces.jsonl")
    assert [t.reward for t in traces] == [None, None, 1.0, 1.0]
    assert "sandbox away" in traces[0].error
    assert traces[2].task.startswith("Sum/")
    assert [len(way) for way in traces[3].conversations] == [1, 1]


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="vf-eval"):
        vf_eval.read(tmp_path)
    with pytest.raises(UsageError, match="version 2"):
        vf_eval.read(write(tmp_path, episode(version=2)))
