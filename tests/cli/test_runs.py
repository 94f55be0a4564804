"""``runs``: the list, one run with its curves, stopping and going on."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any

import pytest

from clawback import records, store
from clawback.paths import Home

Run = Callable[..., tuple[int, str, str]]


def test_runs_are_listed_newest_first(run: Run, trained: Home) -> None:
    _, out, _ = run("runs")
    assert re.search(r"done +reinforce", out)
    assert "→ version 1" in out


@pytest.mark.parametrize(
    ("progress", "said"),
    [
        ({}, "starting"),
        ({"phase": "load"}, "loading the model"),
        (
            {"phase": "draw", "step": 120, "steps": 256, "seconds_left": 200.0},
            "draw 120 of 256, about 3 min left",
        ),
        ({"phase": "train", "step": 0, "steps": 48}, "train 0 of 48"),
    ],
)
def test_a_run_is_described_from_its_first_moment_on(
    run: Run, rated: Home, progress: dict[str, Any], said: str
) -> None:
    with store.connect(rated.database) as db:
        db.start_run(
            records.Run(
                base="tiny",
                base_revision="",
                algorithm="auto",
                recipe={},
                seed=0,
                parent=0,
                pid=os.getpid(),
                progress=progress,
            )
        )
    code, out, _ = run("runs")
    assert code == 0
    assert said in " ".join(out.split())
    assert f"Training {said}" in " ".join(run("status")[1].split())


def test_no_runs_yet(run: Run) -> None:
    assert "No runs yet" in run("runs")[1]


def test_the_gate_changes_nothing_and_its_exit_code_is_its_verdict(run: Run, trained: Home) -> None:
    run("rollback", "0")
    code, out, _ = run("gate", "1", "--json")
    report = json.loads(out)
    assert code == (0 if report["accepted"] else 1)
    assert report["against"] == 0
    with store.connect(trained.database) as db:
        assert db.live().number == 0
        assert db.version(1).report == report


@pytest.mark.parametrize(
    ("number", "sentence"), [("1", "is live"), ("0", "the base model"), ("9", "no version 9")]
)
def test_what_cannot_be_judged(run: Run, trained: Home, number: str, sentence: str) -> None:
    code, _, err = run("gate", number)
    assert code == 2
    assert sentence in err


def test_one_run_with_its_curves(run: Run, trained: Home) -> None:
    code, out, _ = run("runs", "show", "1")
    assert code == 0
    assert "→ version 1" in out
    assert "2 steps" in out
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["loss", "reward", "KL"]
    data = json.loads(run("runs", "show", "1", "--json")[1])
    assert [step["step"] for step in data["history"]] == [1, 2]
    assert {"loss", "reward", "drift"} <= data["history"][0].keys()
    assert run("runs", "show", "9")[0] == 2


def test_what_cannot_be_stopped_or_gone_on_with_is_said(run: Run, trained: Home) -> None:
    code, _, err = run("runs", "stop")
    assert code == 2
    assert "No run is under way" in err
    code, _, err = run("runs", "stop", "1")
    assert code == 2
    assert "Run 1 is done already" in err
    code, _, err = run("runs", "resume")
    assert code == 2
    assert "clawback train" in err


def test_a_run_that_nobody_works_on_any_more_is_stopped_at_once(run: Run, rated: Home) -> None:
    with store.connect(rated.database) as db:
        db.start_run(records.Run("tiny", "", "auto", {}, seed=0, parent=0, progress={"phase": "draw"}))
    code, out, _ = run("runs", "stop")
    assert code == 0
    assert out.startswith("Run 1 is stopped.")
    assert "stopped" in run("runs")[1]
