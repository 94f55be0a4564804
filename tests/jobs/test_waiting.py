"""A version that the gate asks for more ratings about: it waits, is judged again when they are there, and goes when a run takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from clawback import config, feedback, jobs, release, store
from clawback.cli import main
from clawback.feedback import training_due
from clawback.jobs import training, worker
from clawback.paths import Home
from clawback.records import Run, Turn, Version
from clawback.release import Report
from clawback.release.rule import Evidence, Sampled, decide

FINE = Sampled(finished=1.0, empty=0.0, repeating=0.0, length=40.0)
UNSURE = Evidence(10, 22, (0.1,), (-0.1, 0.2), 0.2, 0.4, 0.2, 0.97, 2.0, 1.0, FINE, FINE, FINE)
SURE = replace(UNSURE, read_p=0.001, better=0.99)

Verdict = Callable[[Evidence], None]


@pytest.fixture
def waiting(home: Home, monkeypatch: pytest.MonkeyPatch) -> Verdict:
    """A home with 32 ratings that run 1 took, and its version, which waits for 16 more. Says what the gate measures from now on."""
    seen = [UNSURE]
    looked: list[int] = []

    def measured(*_: object, **__: object) -> Evidence:
        looked.append(1)
        return seen[0]

    monkeypatch.setattr("clawback.release.gating.measure", measured)
    monkeypatch.setattr("clawback.release.gating.base_of", lambda *_: None)
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    rate(home, 32)
    with store.connect(home.database) as db:
        ids = tuple(f.id for f in db.feedback())
        run = db.start_run(Run("embedded", "r", "auto", {}, 0, 0, train_ids=ids[:28], held_out_ids=ids[28:]))
        version = db.add_candidate(Version(0, "candidate", "embedded", parent=0, run_id=run.id))
        report = release.gate(db, home, version.number)
        db.update_run(run.id, status="done")  # as in a run: the gate is a part of it
        assert (report.verdict, report.again_at, report.looks) == ("waits", 16, 1)
        assert "16 more ratings are needed" in report.summary()
        assert Report.from_dict(asdict(report)) == report

    def says(evidence: Evidence) -> None:
        seen[0] = evidence

    return says


def rate(home: Home, count: int) -> None:
    with store.connect(home.database) as db:
        for i in range(count):
            turn = db.add_turn(Turn("s", ({"role": "user", "content": "Hello?"},), f"Hello {i}."))
            feedback.rate(db, turn.id, 1 if i % 3 else -1)


def status(home: Home) -> str:
    with store.connect(home.database) as db:
        return db.version(1).status


def test_it_is_judged_again_as_soon_as_the_ratings_are_there(home: Home, waiting: Verdict) -> None:
    waiting(SURE)
    rate(home, 15)
    with store.connect(home.database) as db:
        assert not training_due(db, home)
    assert training.judge_waiting(home) is None
    rate(home, 1)
    with store.connect(home.database) as db:
        assert training_due(db, home)
    assert worker.enough_to_train(home) is False, "a run takes 32"
    report = training.judge_waiting(home)
    assert report is not None
    assert (report.accepted, report.looks) == (True, 2)
    assert status(home) == "live"
    with store.connect(home.database) as db:
        assert db.waiting() is None
        assert not training_due(db, home)


def test_it_waits_twice_and_no_longer(home: Home, waiting: Verdict) -> None:
    rate(home, 16)
    report = training.judge_waiting(home)
    assert report is not None
    assert (report.verdict, report.looks, report.again_at) == ("waits", 2, 32)
    with store.connect(home.database) as db:
        again = release.gate(db, home, 1)
        assert (again.looks, again.again_at) == (2, 32), "to look twice at the same ratings is one look"
    rate(home, 16)
    report = training.judge_waiting(home)
    assert report is not None
    assert (report.verdict, report.looks) == ("rejected", 3)
    assert status(home) == "rejected"


def test_what_was_rated_since_is_evidence_that_it_has_not_learned_from(
    home: Home, waiting: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    def measured(
        _p: object, _c: object, _l: object, _s: object, kept: list[object], *_: object, **__: object
    ) -> Evidence:
        held.append(len(kept))
        return SURE

    monkeypatch.setattr("clawback.release.gating.measure", measured)
    rate(home, 16)
    training.judge_waiting(home)
    assert held == [4 + 16]


def test_a_run_begins_with_it_and_does_not_wait_for_it(
    home: Home, waiting: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's version has learned from what was waited for. What it is compared with is what came of the other one."""
    monkeypatch.setattr(
        training._Job, "candidate", lambda *_: (_ for _ in ()).throw(ZeroDivisionError("stop"))
    )
    monkeypatch.setattr("clawback.engine.load", lambda *_, **__: (_ for _ in ()).throw(KeyError("no model")))
    rate(home, 5)
    with pytest.raises(KeyError):
        jobs.train_once(home)
    assert status(home) == "candidate", "nothing has begun"
    with store.connect(home.database) as db:
        run = db.start_run(Run("embedded", "r", "auto", {}, 0, 0))
        training._Job(home, db, None).give_up_waiting(run)
    assert status(home) == "rejected"


def test_status_says_what_it_waits_for(
    home: Home, waiting: Verdict, capsys: pytest.CaptureFixture[str]
) -> None:
    rate(home, 3)
    main(["status"])
    assert "version 1: judged again after 13 more ratings" in capsys.readouterr().out


def test_whoever_wants_no_waiting_has_it_rejected(home: Home, waiting: Verdict) -> None:
    settings = config.Config(gate=config.Gate(more_ratings=0))
    with store.connect(home.database) as db:
        assert release.gate(db, home, 1, settings=settings).verdict == "rejected"


def test_only_what_may_still_turn_out_well_is_asked_about() -> None:
    gate = config.Gate()
    assert decide(UNSURE, gate, 1).asks == decide(UNSURE, gate, 2).asks == gate.more_ratings
    assert decide(UNSURE, gate, 3).asks == 0
    assert decide(SURE, gate, 1).accepted
    hopeless = replace(UNSURE, gain=-0.4, better=0.1)
    broken = replace(UNSURE, candidate=replace(FINE, finished=0.2))
    one_sign = replace(UNSURE, good=32, bad=0)
    for evidence in (hopeless, broken, one_sign):
        decision = decide(evidence, gate, 1)
        assert (decision.accepted, decision.asks) == (False, 0)
