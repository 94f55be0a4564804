"""Trackers get the figures of every step, whichever are named; those that are not installed are said."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from clawback.errors import MissingExtra, UsageError
from clawback.jobs import tracking

STEPS = [
    {"phase": "plan", "steps": 2},
    {"phase": "alert", "text": "the reward fell", "step": 2},
    *({"phase": "train", "step": n, "steps": 2, "loss": 1.0 / n, "reward": n, "note": "x"} for n in (1, 2)),
]


def told(*names: str, folder: Path) -> None:
    with tracking.track(names, folder, "run-0001", {"rank": 16}) as tell:
        for progress in STEPS:
            tell(progress)


def test_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told("tensorboard", folder=tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard" / "run-0001"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(1, 1.0), (2, 0.5)]
    assert [e.value for e in events.Scalars("train/reward")] == [1.0, 2.0]
    assert "alert/text_summary" in events.Tags()["tensors"]
    assert "train/step" not in events.Tags()["scalars"]


def test_weights_and_biases_stays_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    told("wandb", "tensorboard", folder=tmp_path)
    wandb.teardown()  # its own process writes the file; so it does when a run's process ends
    [kept] = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    data = kept.read_bytes()
    assert b"train/loss" in data
    assert b"run-0001" in data
    assert b"the reward fell" in data
    assert (tmp_path / "tensorboard").is_dir(), "two at once"


def test_trackio_keeps_a_database_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio")
    told("trackio", folder=tmp_path)
    kept = [file for file in (tmp_path / "trackio").rglob("*") if file.suffix == ".db"]
    assert kept
    assert b"train/loss" in b"".join(
        file.read_bytes() for file in (tmp_path / "trackio").rglob("*") if file.is_file()
    )


def test_what_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="there are: tensorboard, wandb, trackio"):
        told("mlflow", folder=tmp_path)
    for name in ("wandb", "trackio"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(MissingExtra, match=f"pip install {name}"):
            told(name, folder=tmp_path)


def test_the_folder_that_wandb_makes_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec("wandb"):
        pytest.skip("it is installed")
    (tmp_path / "wandb").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingExtra, match="pip install wandb"):
        told("wandb", folder=tmp_path)
    sys.modules.pop("wandb", None)
