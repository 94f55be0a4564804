"""``train gate runs``: what is said before, during and after a run, and what each exits with."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from filelock import FileLock

from clawback import records, store
from clawback.jobs import worker
from clawback.paths import Home

Run = Callable[..., tuple[int, str, str]]


def test_an_estimate_comes_first_then_the_outcome_and_the_gates_report(run: Run, rated: Home) -> None:
    code, out, err = run("train", "--seed", "1")
    assert code == 0, err
    assert err.index("Learning with reinforce") < err.index("gate")
    assert "GB" in err or "MB" in err, "what it will take is said before"
    assert out.startswith("Version 1 (reinforce)")
    assert "drift from the base" in out
    with store.connect(rated.database) as db:
        live = db.live().number
        assert db.run(1).seed == 1
    assert ("is live. `clawback rollback` goes back." in out) == (live == 1)
    assert ("still live" in out) == (live == 0)


def test_a_run_as_data(run: Run, rated: Home) -> None:
    code, out, err = run("train", "--json", "--preset", "careful")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["version"]["number"] == 1
    assert data["run"]["status"] == "done"
    assert data["version"]["report"]["version"] == 1
    assert isinstance(data["live"], bool)


def test_nothing_to_learn_from_is_said_and_fails(run: Run) -> None:
    code, out, err = run("train")
    assert (code, out) == (1, "")
    assert "rate some answers first" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("option", [("--preset", "bold"), ("--seed", "x"), ("--algorithm", "nonsense")])
def test_what_there_is_not_is_wrong_usage(run: Run, rated: Home, option: tuple[str, str]) -> None:
    code, _, err = run("train", *option)
    assert code == 2
    assert option[1] in err


def test_one_run_at_a_time(run: Run, rated: Home) -> None:
    with FileLock(rated.train_lock):
        code, _, err = run("train")
        assert code == 1
        assert "training already" in err
        assert run("train", "--background")[1].startswith("A run is training already.")


def test_a_background_run_learns_as_it_was_asked_to(run: Run, rated: Home) -> None:
    code, out, _ = run("train", "--background", "--seed", "7", "--preset", "careful", "--json")
    assert (code, json.loads(out)) == (0, {"started": True})
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        _, listed, _ = run("runs", "--json")
        if (found := json.loads(listed)) and found[0]["status"] == "done":
            break
        time.sleep(0.5)
    assert found[0]["seed"] == 7
    assert found[0]["recipe"]["preset"] == "careful"


def test_the_worker_reads_what_was_asked_for() -> None:
    assert worker.asked(["--if-due", "--algorithm=mis-po", "--seed=-1"]) == {
        "algorithm": "mis-po",
        "seed": "-1",
    }


def test_runs_are_listed_newest_first(run: Run, trained: Home) -> None:
    _, out, _ = run("runs")
    assert "done     reinforce" in out
    assert "→ version 1" in out


@pytest.mark.parametrize(
    ("progress", "said"),
    [
        ({}, "starting"),
        ({"phase": "load"}, "load"),
        ({"phase": "plan", "algorithm": "imagine", "note": "", "steps": 48}, "plan"),
        ({"phase": "train", "step": 0, "steps": 48}, "train 0/48"),
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
    assert said in out
    assert f"Training  {said}" in run("status")[1]


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
