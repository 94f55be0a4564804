"""Moving to another base: nothing changes before the person chooses, whatever is killed, and one command goes back."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clawback import config, embedded, feedback, release, store
from clawback.admin import health
from clawback.cli import main
from clawback.errors import Busy, ClawbackError, TrainingError, UsageError
from clawback.extensions.moving import move_worker, moving
from clawback.feedback import provenance
from clawback.gate import adapter_gate
from clawback.jobs import training_job
from clawback.models import local_models
from clawback.paths import Home
from clawback.records import Rule, Turn
from clawback.release import version_registry

from ..conftest import copied


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """Another base: the embedded model in a folder of its own."""
    return Path(shutil.copytree(embedded.path(), tmp_path / "new-model"))


@pytest.fixture(autouse=True)
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_models, "find", list)


def state_of(home: Home) -> tuple[Any, ...]:
    """All that a person could tell a difference by."""
    with store.connect(home.database) as db:
        rows = [(v.number, v.status, v.base, v.path) for v in db.versions()]
        return (
            rows,
            db.live().number,
            len(db.runs()),
            db.count_turns(),
            db.count_fresh(),
            home.config.read_text(),
        )


def learned(home: Home, trained_once: Home, new: Path, *, accepted: bool = True) -> moving.Move:
    """A move that is ready: version 1 was learned on the new base, in the copy."""
    move = moving.begin(home, str(new))
    copy = moving.copy_of(home)
    for part in ("clawback.db", "clawback.db-wal", "clawback.db-shm"):
        (copy.root / part).unlink(missing_ok=True)
    settings = copy.config.read_text()
    copied(trained_once, copy)
    copy.config.write_text(settings)
    with store.connect(copy.database) as db:
        db._db.execute("UPDATE versions SET base = ? WHERE number = 1", (str(new),))
        report = dict(db.version(1).report or {}) | {"accepted": accepted, "again_at": 0 if accepted else 5}
        db.set_report(1, report)
        db._db.execute("UPDATE versions SET status = 'candidate' WHERE number = 1")
        if accepted:
            db.promote(1)
    found = {
        "version": 1,
        "gate": "",
        "learned": True,
        "answers": 4,
        "prompts": 2,
        "held_back": 1,
        "gain": 0.1,
        "gain_sd": 0.2,
    }
    found |= {side: {"length": 9, "empty": 0, "repeating": 0} for side in ("new", "old")}
    rule = {"rule": "Be brief.", "owners": True, "answers": 4, "p_more": 0.01, "p_less": 1.0}
    found |= {
        "rules": [
            rule | {"candidate": 1.0, "live": 0.25},
            rule | {"rule": "No lists.", "candidate": 0.5, "live": 0.75},
        ]
    }
    found |= {"examples": [{"prompt": "Who?", "new": "An otter.", "old": "Somebody."}]}
    return moving.save(home, replace(move, phase="ready", comparison=found))


def test_a_move_begins_beside_what_there_is(
    rated: Home, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with store.connect(rated.database) as db:
        db.add_rule(Rule("Be brief.", "words <= 20", status="believed"))
    before = state_of(rated)
    assert main(["move", "--to", str(new), "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["to"], plan["origin"], plan["ratings"], plan["fits"]) == (str(new), "embedded", 12, True)
    assert not rated.move.exists()
    move = moving.begin(rated, str(new))
    assert state_of(rated) == before
    assert (move.to, move.origin, move.live, move.interrupted) == (str(new), "embedded", 0, True)
    copy = moving.copy_of(rated)
    assert config.load(copy.config).model.base == str(new)
    assert config.load(copy.config).training == config.load(rated.config).training
    with store.connect(copy.database) as db:
        assert (len(db.versions()), db.live().number, db.runs()) == (1, 0, [])
        assert sum(db.count_ratings()) == 12
        assert [rule.text for rule in db.rules("believed")] == ["Be brief."]
    assert (copy.database.stat().st_mode | copy.root.stat().st_mode) & 0o077 == 0


def test_a_learned_prompt_needs_no_weights_and_comes_along(trained: Home, new: Path) -> None:
    from clawback.release import prompted

    with store.connect(trained.database) as db:
        version = prompted.propose(db, "Answer in one sentence.")
        version_registry.go_live(db, trained, version.number)
    moving.begin(trained, str(new))
    with store.connect(moving.copy_of(trained).database) as db:
        assert (db.live().prompt, db.live().path) == ("Answer in one sentence.", "")


def test_what_cannot_begin_says_why(rated: Home, new: Path) -> None:
    with pytest.raises(UsageError, match="is the model of your settings already"):
        moving.begin(rated, "embedded")
    with pytest.raises(ClawbackError, match="no model"):
        moving.begin(rated, "nothing-of-this-name")
    with version_registry.alone(rated), pytest.raises(Busy):
        moving.begin(rated, str(new))
    with pytest.raises(UsageError, match="No move is open"):
        moving.keep_new(rated)
    with pytest.raises(UsageError, match="nothing to undo"):
        moving.undo(rated)
    moving.begin(rated, str(new))
    with pytest.raises(UsageError, match=r"A move to .* is open"):
        moving.begin(rated, "embedded")
    with pytest.raises(UsageError, match="is not done yet"):
        moving.keep_new(rated)


def test_without_ratings_no_move_begins(home: Home, new: Path) -> None:
    with pytest.raises(TrainingError, match="rate some answers"):
        moving.begin(home, str(new))
    assert not home.move.exists()


def test_what_was_killed_before_its_state_was_written_is_no_move(rated: Home, new: Path) -> None:
    moving.begin(rated, str(new))
    (rated.move / moving.STATE).unlink()
    assert moving.current(rated) is None
    assert moving.begin(rated, str(new)).phase == "learn"


@pytest.mark.parametrize("accepted", [True, False])
def test_the_new_base_answers_once_the_person_says_so_and_the_old_one_comes_back(
    trained: Home, trained_once: Home, new: Path, accepted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    learned(trained, trained_once, new, accepted=accepted)
    before = state_of(trained)
    assert main(["move"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "gained 100% 25% Be brief." in shown
    assert "lost 50% 75% No lists." in shown
    assert "new: An otter." in shown
    assert state_of(trained) == before
    assert main(["move", "--keep", "new"]) == 0
    assert not trained.move.exists()
    assert config.load(trained.config).model.base == str(new)
    with store.connect(trained.database) as db:
        old, live = db.version(1), db.live()
        assert (old.status, old.base, live.number, live.base, live.parent) == (
            "retired",
            "embedded",
            2,
            str(new),
            1,
        )
        version_registry.check(old)
        version_registry.check(live)
        assert live.report is not None
        assert (live.report["accepted"], live.report["by_hand"]) == (True, not accepted)
        assert db.run(live.run_id or 0).train_ids == db.run(old.run_id or 0).train_ids
        assert json.loads((Path(live.path) / "provenance.json").read_text())["version"] == 2
        with pytest.raises(UsageError, match="versions of one base"):
            adapter_gate.gate(db, trained, 1)
    assert main(["move", "--undo", "--json"]) == 0
    assert config.load(trained.config).model.base == "embedded"
    with store.connect(trained.database) as db:
        assert (db.live().number, db.version(2).status) == (1, "retired")
        assert version_registry.rollback(db, trained, 2).number == 2
        assert config.load(trained.config).model.base == str(new), "the settings follow what answers"
        assert version_registry.rollback(db, trained).number == 1
    assert config.load(trained.config).model.base == "embedded"
    assert all(f["ok"] for f in health._of_model(trained, ""))
    with pytest.raises(UsageError, match="nothing to undo"):
        moving.undo(trained)


class Killed(BaseException):
    """As kill -9."""


@pytest.mark.parametrize("at", ["bring", "set_base", "go_live", "remove"])
def test_a_choice_that_was_killed_is_finished_by_the_same_command(
    trained: Home, trained_once: Home, new: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned(trained, trained_once, new)
    place = moving if at == "remove" else version_registry

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(place, at, die)
        with pytest.raises(Killed):
            moving.keep_new(trained)
    with store.connect(trained.database) as db:
        version_registry.check(db.live())
    assert moving.keep_new(trained).number == 2
    with store.connect(trained.database) as db:
        assert [v.number for v in db.versions()] == [0, 1, 2]
    assert moving.undo(trained).number == 1
    assert config.load(trained.config).model.base == "embedded"


def test_the_old_base_goes_on_and_nothing_is_left(trained: Home, trained_once: Home, new: Path) -> None:
    before = state_of(trained)
    learned(trained, trained_once, new)
    assert main(["move", "--keep", "old"]) == 0
    assert state_of(trained) == before
    assert not trained.move.exists()
    assert main(["move", "--keep", "old"]) == 2
    assert main(["move", "--keep", "old", "--undo"]) == 2


def test_what_waits_on_the_old_base_waits_no_more(trained: Home, trained_once: Home, new: Path) -> None:
    """The gate compares versions of one base: a verdict on the old one will never come."""
    from clawback.records import Version

    with store.connect(trained.database) as db:
        db.add_version(
            Version(0, "candidate", "embedded", parent=1, report={"again_at": 5, "reasons": ["?"]})
        )
    learned(trained, trained_once, new)
    moving.keep_new(trained)
    with store.connect(trained.database) as db:
        assert db.version(2).status == "rejected"
        assert db.live().number == 3


def test_whoever_forgets_forgets_in_the_copy_too(rated: Home, new: Path) -> None:
    from clawback.privacy import erasure

    moving.begin(rated, str(new))
    with store.connect(rated.database) as db:
        erased = erasure.erase(db, rated, erasure.wanted(db, turns=[1]))
    assert "A move to another model" in erased.also
    assert not rated.move.exists()


def test_answers_of_an_earlier_base_are_those_of_another_model(home: Home) -> None:
    ask = ({"role": "user", "content": "Who swims?"},)
    with store.connect(home.database) as db:
        for at, version, model in (
            (10.0, 0, "clawback"),
            (30.0, 1, ""),
            (30.0, None, "gpt-x"),
            (10.0, None, "gpt-x"),
        ):
            turn = Turn("s", ask, "Otters.", version=version, model=model, created_at=at, response_ids=(1, 2))
            feedback.rate(db, db.add_turn(turn).id, 1)
        plain = [(s.version, s.model, s.response_ids) for s in feedback.samples(db)]
        assert plain == [
            (0, "clawback", (1, 2)),
            (1, "", (1, 2)),
            (None, "gpt-x", (1, 2)),
            (None, "gpt-x", (1, 2)),
        ]
        provenance.switch(db, "old", "new", 20.0)
        moved = [(s.version, s.model, s.response_ids) for s in feedback.samples(db)]
        assert moved == [(None, "old", None), *plain[1:]]
        provenance.switch(db, "new", "old", 40.0)
        back = [(s.version, s.model, s.response_ids) for s in feedback.samples(db)]
        assert back == [plain[0], (None, "new", None), *plain[2:]]
        assert provenance.known(db) == {"old", "new"}


def test_a_server_answers_with_the_base_that_it_has_loaded(
    trained: Home, trained_once: Home, new: Path
) -> None:
    from clawback.inference.server import Server

    server = Server(trained)
    learned(trained, trained_once, new)
    moving.keep_new(trained)
    with store.connect(trained.database) as server.db:
        assert server.db.live().number == 2
        assert server.version_for("clawback", "s").number == 1
        assert Server(trained)._of_this_base(server.db.version(2)).number == 2


# ------------------------------------------------------------------------------------------------------ for real


DYING = """
import os, signal, sys
from clawback.jobs import move_worker, training
whole = training.train_once
def dying(home, *, on_progress, **more):
    def tell(progress):
        on_progress(progress)
        if progress["phase"] == "save":
            os.kill(os.getpid(), signal.SIGKILL)
    return whole(home, on_progress=tell, **more)
training.train_once = dying
move_worker.main([sys.argv[1]])
"""


@pytest.mark.slow
def test_a_run_and_a_comparison_killed_in_between_and_taken_up(
    rated: Home, new: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process of its own learns, is killed, and another goes on; then both bases answer, and the person chooses."""
    with store.connect(rated.database) as db:
        db.add_rule(Rule("Be brief.", "words <= 20", status="believed"))
    before = state_of(rated)
    move = moving.begin(rated, str(new))
    done = subprocess.run([sys.executable, "-c", DYING, str(rated.root)], capture_output=True)
    assert done.returncode == -signal.SIGKILL
    held, copy = moving.current(rated), moving.copy_of(rated)
    assert held is not None
    assert held.interrupted
    assert state_of(rated) == before
    assert main(["status"]) == 0
    assert "it was interrupted" in " ".join(capsys.readouterr().out.split())
    assert moving.begin(rated, str(new)).began == move.began, "the same move goes on"
    with monkeypatch.context() as patch:
        patch.setattr(move_worker, "compare", lambda *_: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            move_worker.work(rated)
    with store.connect(copy.database) as db:
        assert [run.status for run in db.runs()] == ["done"], "the run was taken up, not made anew"
    ready = move_worker.work(rated)
    assert (ready.phase, ready.error) == ("ready", "")
    assert ready.comparison is not None
    assert ready.comparison["learned"]
    [rule] = ready.comparison["rules"]
    assert rule["rule"] == "Be brief."
    assert main(["move"]) == 0
    assert "Be brief." in capsys.readouterr().out
    assert state_of(rated) == before
    made = moving.keep_new(rated)
    policy = release.load(rated, made)
    assert policy.has_adapter
    assert policy.info.base == str(new)


@pytest.mark.slow
def test_a_move_that_is_ended_while_it_learns_leaves_nothing(
    rated: Home, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, said = state_of(rated), []
    moving.begin(rated, str(new))
    whole = training_job.train_once

    def ended(home: Home, *, on_progress: Any, **more: Any) -> Any:
        def tell(progress: Any) -> None:
            if progress["phase"] == "train" and not said:
                said.append(moving.keep_old(rated))
            on_progress(progress)

        return whole(home, on_progress=tell, **more)

    monkeypatch.setattr(training_job, "train_once", ended)
    move_worker.work(rated)
    assert "stops after its present step" in said[0]
    assert not rated.move.exists()
    assert state_of(rated) == before
