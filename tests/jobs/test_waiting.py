"""A version that the gate asks for more ratings about: it waits, is judged again when they are there, and goes when a run takes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace

import pytest
from clawback.release.evidence import Witness
from clawback.release.gating import prompts
from clawback.release.rule import Compared, Evidence, Sampled, decide

from clawback import config, feedback, jobs, release, store
from clawback.cli import main
from clawback.engine.types import Completion
from clawback.feedback import training_due
from clawback.jobs import inbox, inputs, training, worker
from clawback.paths import Home
from clawback.records import GATE, Run, Turn, Version
from clawback.release import Report, human_eval

FINE = Sampled(finished=1.0, empty=0.0, repeating=0.0, length=40.0)
UNSURE = Evidence(10, 22, (0.1,), (-0.1, 0.2), 0.2, 0.4, 0.2, 0.97, 2.0, 1.0, FINE, FINE, FINE)
SURE = replace(UNSURE, read_p=0.001, better=0.99)

Verdict = Callable[[Evidence], None]
ASKED = [({"role": "user", "content": f"Question {i}?"},) for i in range(40)]


def answered(by: str) -> list[Completion]:
    return [Completion(f"Answer {i} of {by}.", (1, 2), (-0.5, -0.5), True) for i in range(len(ASKED))]


@pytest.fixture
def waiting(home: Home, monkeypatch: pytest.MonkeyPatch) -> Verdict:
    """A home with 32 ratings that run 1 took, and its version, which waits for 16 more. Says what the gate measures from now on."""
    seen = [UNSURE]
    looked: list[int] = []

    def measured(*_: object, witness: Witness, **__: object) -> Evidence:
        looked.append(1)
        witness(ASKED, answered("the new version"), answered("the base"))
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


def test_answers_of_both_versions_are_what_is_asked_about(home: Home, waiting: Verdict) -> None:
    """Sixteen to different prompts; no session, no prompt and no "last answer" of the person's own is among them."""
    with store.connect(home.database) as db:
        last = db.last_turn()
        release.gate(db, home, 1)  # to look again adds nothing
        own = prompts(db, set()), inputs.prompts(db, set(), 1e12)
    asked = [one.turn for one in inbox.waiting(home, 100)]
    assert [turn.agent for turn in asked] == [GATE] * 16
    assert len({turn.prompt for turn in asked}) == len({turn.session for turn in asked}) == 16
    assert sum(turn.version == 1 for turn in asked) == 10
    assert all(("new" in turn.response) == (turn.version == 1) for turn in asked)
    assert [turn.version for turn in asked] != sorted((turn.version or 0 for turn in asked), reverse=True)
    assert last is not None
    assert last.agent != GATE
    with store.connect(home.database) as db:
        assert db.last_turn() == last
    assert all(len(found) == 32 for found in own)
    assert asked[0].response_ids == (1, 2)


def test_what_is_said_of_them_decides(home: Home, waiting: Verdict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read out of the ratings (p = 0.2), but the candidate's answers are good and the live version's are not. Its own are no test of how it has
    shifted: they are likelier under it whatever they are."""
    fitted: list[tuple[int, int]] = []
    before = release.gating.measure

    def measured(*given: object, **more: object) -> Evidence:
        fitted.append((len(given[3]), len(given[4])))  # type: ignore[arg-type]
        return before(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("clawback.release.gating.measure", measured)
    with store.connect(home.database) as db:
        for one in inbox.waiting(home, 100):
            feedback.rate(db, one.turn.id, 1 if one.turn.version == 1 else -1)
    report = training.judge_waiting(home)
    assert report is not None
    assert fitted == [(32 + 16, 4 + 6)]
    assert report.evidence.compared == Compared((10, 0), (0, 6), (0, 0)), "the 32 were of no version"
    assert report.accepted
    assert "10 of 10 of its own answers were good, of the live version's 0 of 6" in report.text()
    assert Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report


def test_as_many_good_ones_on_both_sides_do_not_help(home: Home, waiting: Verdict) -> None:
    with store.connect(home.database) as db:
        of: dict[int | None, int] = {0: 0, 1: 0}
        for one in inbox.waiting(home, 100):
            of[one.turn.version] += 1
            feedback.rate(db, one.turn.id, 1 if of[one.turn.version] % 2 else -1)
        unsure = db.version(1).report["probability"]  # type: ignore[index]
    report = training.judge_waiting(home)
    assert report is not None
    assert report.probability < unsure
    assert not report.accepted
    assert len([one for one in inbox.waiting(home, 100) if one.turn.agent == GATE]) == 16, "the next ones"


def test_an_edit_is_no_answer_of_the_version_that_it_mends(home: Home, waiting: Verdict) -> None:
    with store.connect(home.database) as db:
        turn = next(one.turn for one in inbox.waiting(home, 100) if one.turn.version == 1)
        feedback.edit(db, turn.id, "What it should have said.")
        found, own = human_eval.compared(db, feedback.samples(db), db.version(1), db.live())
    assert (found.candidate, own) == ((0, 1), {turn.id})


def test_nobody_is_told_whose_answer_it_is_before_it_is_rated(home: Home, waiting: Verdict) -> None:
    from clawback.channels.mcp import LISTED, _seen

    asked = [one.turn for one in inbox.waiting(home, 100)]
    assert {_seen(turn, LISTED)["version"] for turn in asked} == {None}
