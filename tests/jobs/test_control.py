"""Stopping a run from another process, and going on with it to the same bytes; its curves are kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clawback import jobs, store
from clawback.errors import Stopped, UsageError
from clawback.paths import Home

from .test_training import Died, dying, rated_home, weights

if TYPE_CHECKING:
    from .conftest import Whole


def stop_at(home: Home, phase: str, step: int = 0) -> Any:
    def follow(progress: Any) -> None:
        if progress["phase"] == phase and progress.get("step", 0) == step:
            jobs.stop(home)  # as `clawback runs stop` does in a process of its own

    return follow


@pytest.mark.slow
def test_a_run_that_is_stopped_in_every_phase_goes_on_each_time_to_the_same_bytes(
    tmp_path: Path, whole: Whole
) -> None:
    stopped, resume = rated_home(tmp_path / "stopped"), None
    for phase, step in (("prepare", 0), ("train", 1), ("gate", 2)):
        with pytest.raises(Stopped, match="clawback runs resume"):
            jobs.train_once(stopped, on_progress=stop_at(stopped, phase, step), resume=resume)
        with store.connect(stopped.database) as db:
            run = db.run(1)
            assert (run.status, run.progress["phase"]) == ("stopped", phase)
            assert db.active_run() is None
        if phase == "train":
            kept = stopped.runs / "1" / "checkpoint.pt"
            assert kept.exists(), "written although it was not time for one"
        resume = jobs.resumable(stopped).id
        assert resume == 1
    outcome = jobs.train_once(stopped, resume=1)
    assert outcome.run.id == 1
    assert outcome.run.status == "done"
    assert outcome.run.stop_at is None
    assert weights(stopped, 1) == weights(whole.home, 1)
    assert outcome.report.evidence == whole.outcome.report.evidence
    with store.connect(stopped.database) as db, store.connect(whole.home.database) as other:
        strip = [{k: v for k, v in s.items() if "second" not in k} for s in db.steps(1)]
        assert strip == [{k: v for k, v in s.items() if "second" not in k} for s in other.steps(1)]
        assert [s["step"] for s in strip] == [1, 2, 3, 4][: len(strip)]
        assert {"loss", "reward", "drift"} <= strip[0].keys()


def test_a_new_run_begins_anew_and_the_stopped_one_is_over(tmp_path: Path) -> None:
    home = rated_home(tmp_path)
    with pytest.raises(Stopped):
        jobs.train_once(home, on_progress=stop_at(home, "train", 1))
    with pytest.raises(Died):
        jobs.train_once(home, on_progress=dying("train"))
    with store.connect(home.database) as db:
        another = db.active_run()
        assert another is not None
        assert another.id == 2
    assert not (home.runs / "1").exists(), "its checkpoint is of no use any more"
    with pytest.raises(UsageError, match="not the newest"):
        jobs.resumable(home, 1)
    with pytest.raises(UsageError, match="has begun since"):
        jobs.train_once(home, resume=1)


@pytest.mark.slow
def test_what_is_told_is_kept_with_the_time_that_is_left(whole: Whole) -> None:
    phases = list(dict.fromkeys(p["phase"] for p in whole.progress))
    assert phases == ["prepare", "train", "save", "gate"], "announcements are no phases"
    assert any("seconds_left" in p for p in whole.progress if p["phase"] == "gate")
