"""Versions on disk: whole, provable, and never in the way of going back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawback import release, store
from clawback.engine.types import TrainResult
from clawback.errors import ModelError, NotFound, UsageError
from clawback.paths import Home
from clawback.records import Run, Turn, Version
from clawback.release import registry
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
    (folder / registry.WEIGHTS).write_text(text)
    (folder / "adapter_config.json").write_text("{}")
    result = TrainResult(str(folder), "reinforce", "because", "embedded", "r", 3, 4, "", (1,), 0.0)
    version = release.propose(db, home, run, result)
    db.update_run(run.id, status="done")
    return version


def test_a_version_is_a_folder_that_says_exactly_what_made_it(db: Store, home: Home) -> None:
    version = propose(db, home)
    folder = Path(version.path)
    assert folder == home.versions / "0001"
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["seed"] == 3
    assert provenance["recipe"] == {"steps": 1}
    assert provenance["adapter_sha256"] == registry.file_hash(folder / registry.WEIGHTS)
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
    (stray / registry.WEIGHTS).write_text("half")
    version = propose(db, home)
    assert (Path(version.path) / registry.WEIGHTS).read_text() == "weights"
    assert [p.name for p in home.versions.iterdir()] == ["0001"]


def test_going_live_and_back_in_any_order(db: Store, home: Home) -> None:
    for _ in range(3):
        release.promote(db, home, propose(db, home).number)
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


def test_a_rejected_version_never_goes_live(db: Store, home: Home) -> None:
    version = propose(db, home)
    db.reject(version.number)
    with pytest.raises(UsageError, match="rejected by the gate"):
        release.promote(db, home, version.number)
    assert db.live().number == 0


@pytest.mark.parametrize("harm", ["changed", "gone", "no provenance"])
def test_tampered_files_are_refused_and_the_newest_whole_version_answers(
    db: Store, home: Home, harm: str
) -> None:
    versions = [propose(db, home, text) for text in "abc"]
    for version in versions:
        release.promote(db, home, version.number)
    for version in versions[1:]:
        folder = Path(version.path)
        if harm == "changed":
            (folder / registry.WEIGHTS).write_text("evil")
        else:
            (folder / (registry.WEIGHTS if harm == "gone" else registry.PROVENANCE)).unlink()
    with pytest.raises(ModelError, match=r"[Vv]ersion 3"):
        release.check(db.live())
    with pytest.raises(ModelError):
        release.promote(db, home, 2)
    healed = release.heal(db, home)
    assert healed is not None
    assert healed.number == db.live().number == 1
    assert release.heal(db, home) is None


def test_reset_keeps_ratings_unless_told_otherwise(db: Store, home: Home) -> None:
    from clawback import feedback

    turn = db.add_turn(Turn(session="s", messages=(), response="x"))
    feedback.rate(db, turn.id, 1)
    release.promote(db, home, propose(db, home).number)
    release.reset(db, home)
    assert [v.number for v in db.versions()] == [0]
    assert db.live().number == 0
    assert not home.versions.exists()
    assert len(db.feedback()) == 1
    assert propose(db, home).number == 2, "a number is never used twice"
    release.reset(db, home, ratings=True)
    assert db.feedback(active=False) == []
    assert db.count_turns() == 1
