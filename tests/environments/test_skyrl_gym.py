"""skyrl-gym's own environments over rows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

pytest.importorskip("skyrl_gym")

from clawback.environments import registry
from clawback.environments.core import EnvironmentFailure, EnvironmentSet
from clawback.environments.validate import validate
from clawback.errors import NotFound, UsageError
from tests.environments.playing import walk


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    made = [
        {
            "prompt": [{"role": "user", "content": f"{n}+{n}?"}],
            "reward_spec": {"ground_truth": str(2 * n)},
            "split": split,
        }
        for n, split in ((2, "train"), (3, "train"), (4, "test"))
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, made)))
    return file


@pytest.fixture
def sums(rows: Path) -> EnvironmentSet:
    return registry.find(f"skyrl-gym:gsm8k?rows={rows}")


def test_rows_are_tasks_and_answers_are_scored(sums: EnvironmentSet) -> None:
    assert (len(sums.tasks("train")), len(sums.tasks("test"))) == (2, 1)
    [task] = sums.tasks("test")
    opened, [right] = asyncio.run(walk(sums, task, ["It is\n#### 8"]))
    assert opened.messages == ({"role": "user", "content": "4+4?"},)
    assert (right.reward, right.done) == (1.0, True)
    _, [wrong] = asyncio.run(walk(sums, task, ["#### 9"]))
    assert (wrong.reward, wrong.done) == (0.0, True)
    assert [c.problem for c in asyncio.run(validate(sums, [task]))] == [""]


def test_a_row_without_what_is_needed_is_a_broken_world(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "2+2?", "split": "train"}\n')
    sums = registry.find(f"skyrl-gym:gsm8k?rows={file}")
    with pytest.raises(EnvironmentFailure, match="reward_spec"):
        asyncio.run(walk(sums, sums.tasks("train")[0], ["4"]))


def test_what_is_missing_is_said(rows: Path) -> None:
    with pytest.raises(UsageError, match="needs rows"):
        registry.find("skyrl-gym:gsm8k")
    with pytest.raises(NotFound, match="skyrl-gym:gsm8k"):
        registry.find(f"skyrl-gym:gsm8j?rows={rows}")
