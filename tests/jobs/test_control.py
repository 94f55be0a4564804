"""Stopping a run from another process, and going on with it to the same bytes; its curves are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawback import jobs, store
from clawback.errors import Stopped, UsageError
from clawback.paths import Home

from .test_training import rated_home, weights


def stop_at(home: Home, phase: str, step: int = 0) -> Any:
    def follow(progress: Any) -> None:
        if progress["phase"] == phase and progress.get("step", 0) == step:
            jobs.stop(home)  # as `clawback runs stop` does in a process of its own

    return follow


@pytest.mark.parametrize(("phase", "step"), [("prepare", 0), ("train", 1), ("gate", 2)])
def test_a_stopped_run_goes_on_to_the_same_bytes(tmp_path: Path, phase: str, step: int) -> None:
    whole, stopped = rated_home(tmp_path / "whole"), rated_home(tmp_path / "stopped")
    expected = jobs.train_once(whole)
    with pytest.raises(Stopped, match="clawback runs resume"):
        jobs.train_once(stopped, on_progress=stop_at(stopped, phase, step))
    with store.connect(stopped.database) as db:
        run = db.run(1)
        assert (run.status, run.progress["phase"]) == ("stopped", phase)
        assert db.active_run() is None
        if phase == "train":
            assert (stopped.runs / "1" / "checkpoint.pt").exists(), "written although it was not time for one"
    assert jobs.resumable(stopped).id == 1
    outcome = jobs.train_once(stopped, resume=1)
    assert outcome.run.id == 1
    assert outcome.run.status == "done"
    assert outcome.run.stop_at is None
    assert weights(stopped, 1) == weights(whole, 1)
    assert outcome.report.evidence == expected.report.evidence
    with store.connect(stopped.database) as db, store.connect(whole.database) as other:
        strip = [{k: v for k, v in s.items() if "second" not in k} for s in db.steps(1)]
        assert strip == [{k: v for k, v in s.items() if "second" not in k} for s in other.steps(1)]
        assert [s["step"] for s in strip] == [1, 2, 3, 4][: len(strip)]
        assert {"loss", "reward", "drift"} <= strip[0].keys()


def test_a_new_run_begins_anew_and_the_stopped_one_is_over(tmp_path: Path) -> None:
    home = rated_home(tmp_path)
    with pytest.raises(Stopped):
        jobs.train_once(home, on_progress=stop_at(home, "train", 1))
    outcome = jobs.train_once(home)
    assert outcome.run.id == 2
    assert not (home.runs / "1").exists(), "its checkpoint is of no use any more"
    with pytest.raises(UsageError, match="not the newest"):
        jobs.resumable(home, 1)
    with pytest.raises(UsageError, match="has begun since"):
        jobs.train_once(home, resume=1)


def test_what_is_told_is_kept_with_the_time_that_is_left(tmp_path: Path) -> None:
    home = rated_home(tmp_path)
    seen = []

    def follow(progress: Any) -> None:
        with store.connect(home.database) as db:
            if run := db.active_run():
                seen.append(run.progress)

    jobs.train_once(home, on_progress=follow)
    phases = list(dict.fromkeys(p["phase"] for p in seen))
    assert phases == ["prepare", "train", "save", "gate"], "announcements are no phases"
    assert any("seconds_left" in p for p in seen if p["phase"] == "gate")
