"""Versions on disk: whole, provable, and never in the way of going back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from clawback import release, store
from clawback.errors import Busy, ModelError, NotFound, UsageError
from clawback.files import sha256
from clawback.models.types import TrainResult
from clawback.paths import Home
from clawback.records import Run, Turn, Version
from clawback.release import version_registry
from clawback.store import Store


@pytest.fixture
def db(home: Home) -> Iterator[Store]:
    with store.connect(home.database) as opened:
        yield opened


def propose(db: Store, home: Home, text: str = "weights") -> Version:
    """A version whose files are what they are: the registry does not look into them."""
    run = db.start_run(
        Run(
            base="embedded",
            base_revision="r",
            algorithm="auto",
            recipe={"steps": 1},
            seed=3,
            parent=db.live().number,
        )
    )
    folder = home.runs / str(run.id) / "adapter"
    folder.mkdir(parents=True)
    (folder / version_registry.WEIGHTS).write_text(text)
    (folder / "adapter_config.json").write_text("{}")
    result = TrainResult(str(folder), "reinforce", "because", "embedded", "r", 3, 4, "", (1,), 0.0)
    version = release.propose(db, home, run, result)
    db.update_run(run.id, status="done")
    return version


def passed(db: Store, home: Home, text: str = "weights") -> Version:
    """A version that the gate let through."""
    version = propose(db, home, text)
    db.set_report(version.number, {"accepted": True})
    return version


def test_a_version_is_a_folder_that_says_exactly_what_made_it(db: Store, home: Home) -> None:
    version = propose(db, home)
    folder = Path(version.path)
    assert folder == home.versions / "0001"
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["seed"] == 3
    assert provenance["recipe"] == {"steps": 1}
    assert provenance["adapter_sha256"] == sha256(folder / version_registry.WEIGHTS)
    assert "base_model: embedded" in (folder / "README.md").read_text()
    assert (version.status, version.parent) == ("candidate", 0)


def test_proposing_again_after_a_crash_gives_the_same_version(db: Store, home: Home) -> None:
    first = propose(db, home)
    run = db.run(first.run_id or 0)
    again = release.propose(db, home, run, TrainResult("/gone", "x", "", "b", "r", 0, 0, "", (), 0.0))
    assert again.number == first.number


@pytest.mark.parametrize("leftover", [".0001.part", "0001", "0009"])
def test_what_a_crash_left_between_files_and_row_is_cleared(db: Store, home: Home, leftover: str) -> None:
    stray = home.versions / leftover
    stray.mkdir(parents=True)
    (stray / version_registry.WEIGHTS).write_text("half")
    version = propose(db, home)
    assert (Path(version.path) / version_registry.WEIGHTS).read_text() == "weights"
    assert [p.name for p in home.versions.iterdir()] == ["0001"]


def test_going_live_and_back_in_any_order(db: Store, home: Home) -> None:
    for _ in range(3):
        release.promote(db, home, passed(db, home).number)
    assert release.rollback(db, home).number == 2
    assert release.rollback(db, home).number == 1
    assert release.rollback(db, home).number == 0
    with pytest.raises(UsageError, match="no older version"):
        release.rollback(db, home)
    assert release.rollback(db, home, 3).number == 3
    assert release.rollback(db, home, 0).number == 0
    with pytest.raises(UsageError, match="live already"):
        release.rollback(db, home, 0)
    with pytest.raises(NotFound):
        release.rollback(db, home, 9)


def test_what_was_rolled_back_from_does_not_come_back_by_rolling_back(db: Store, home: Home) -> None:
    for _ in range(2):
        release.promote(db, home, passed(db, home).number)
    release.rollback(db, home)  # the person did not like 2, so 3 grows out of 1
    release.promote(db, home, passed(db, home).number)
    assert release.rollback(db, home).number == 1


@pytest.mark.parametrize("report", [None, {"accepted": False}])
def test_a_version_that_the_gate_has_not_passed_never_goes_live(
    db: Store, home: Home, report: dict[str, bool] | None
) -> None:
    version = propose(db, home)
    if report is not None:
        db.set_report(version.number, report)
    for put in (release.promote, release.rollback):
        with pytest.raises(UsageError, match="has not passed the gate"):
            put(db, home, version.number)
    assert db.live().number == 0


def test_a_rejected_version_never_goes_live(db: Store, home: Home) -> None:
    version = propose(db, home)
    db.reject(version.number)
    with pytest.raises(UsageError, match="was rejected"):
        release.promote(db, home, version.number)
    assert db.live().number == 0


@pytest.mark.parametrize("harm", ["changed", "gone", "no provenance", "settings changed", "odd provenance"])
def test_tampered_files_are_refused_and_the_newest_whole_version_answers(
    db: Store, home: Home, harm: str
) -> None:
    versions = []
    for text in "abc":
        versions.append(passed(db, home, text))
        release.promote(db, home, versions[-1].number)
    for version in versions[1:]:
        folder = Path(version.path)
        if harm == "changed":
            (folder / version_registry.WEIGHTS).write_text("evil")
        elif harm == "settings changed":
            (folder / "adapter_config.json").write_text('{"auto_mapping": "evil"}')
        elif harm == "odd provenance":
            (folder / version_registry.PROVENANCE).write_text("[]")
        else:
            (folder / (version_registry.WEIGHTS if harm == "gone" else version_registry.PROVENANCE)).unlink()
    with pytest.raises(ModelError, match=r"[Vv]ersion 3"):
        release.check(db.live())
    with pytest.raises(ModelError):
        release.promote(db, home, 2)
    healed = release.heal(db, home)
    assert healed is not None
    assert healed.number == db.live().number == 1
    assert release.heal(db, home) is None


def test_a_home_can_be_moved(db: Store, home: Home) -> None:
    release.promote(db, home, passed(db, home).number)
    db.close()
    moved = Home(home.root.rename(home.root.with_name("elsewhere")))
    with store.connect(moved.database) as there:
        live = there.live()
        assert Path(live.path) == moved.version(1)
        release.check(live)
        assert release.heal(there, moved) is None


def test_reset_keeps_ratings_unless_told_otherwise(db: Store, home: Home) -> None:
    from clawback import feedback

    turn = db.add_turn(Turn(session="s", messages=(), response="x"))
    feedback.rate(db, turn.id, 1)
    release.promote(db, home, passed(db, home).number)
    release.reset(db, home)
    assert [v.number for v in db.versions()] == [0]
    assert db.live().number == 0
    assert not home.versions.exists()
    assert len(db.feedback()) == 1
    assert propose(db, home).number == 2, "a number is never used twice"
    release.reset(db, home, ratings=True)
    assert db.feedback(active=False) == []
    assert db.count_turns() == 1


def test_reset_waits_for_nobody_and_changes_nothing_while_a_run_is_under_way(db: Store, home: Home) -> None:
    release.promote(db, home, passed(db, home).number)
    with FileLock(home.train_lock), pytest.raises(Busy, match="A run is training"):
        release.reset(db, home)
    assert db.live().number == 1
    release.check(db.live())


def test_reset_takes_an_interrupted_run_with_it(db: Store, home: Home) -> None:
    db.start_run(
        Run(base="embedded", base_revision="r", algorithm="auto", recipe={}, seed=0, parent=0, pid=1)
    )
    home.runs.mkdir()
    release.reset(db, home)
    assert db.runs() == []
    assert not home.runs.exists()


def test_going_back_needs_nothing_that_training_needs(home: Home) -> None:
    """On a base install, without numpy and torch: versions, rollback, reset and doctor work, the others say what is missing."""
    blocked = (
        "import sys\n"
        "sys.modules |= dict.fromkeys(('numpy', 'torch', 'transformers', 'peft', 'safetensors'))\n"
        "from clawback.cli import main\n"
        "print([main(command.split()) for command in sys.argv[1:]])\n"
    )
    commands = ["versions", "runs", "reset --yes", "rollback", "train", "ask hello", "doctor"]
    done = subprocess.run(
        [sys.executable, "-c", blocked, *commands],
        env=os.environ | {"CLAWBACK_HOME": str(home.root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[0, 0, 0, 2, 1, 1, 1]", done.stderr
    assert "unexpected" not in done.stderr
    assert "[train]'" in done.stderr
    assert "training needs torch" in done.stdout
