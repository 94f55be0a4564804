"""A version that the gate asks about: it waits, is judged again from the answers alone, and goes when a run takes its place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest

from clawback import config, feedback, jobs, release, store
from clawback.admin import rating_inbox
from clawback.cli import main
from clawback.errors import TrainingError, UsageError
from clawback.extensions.channels.mcp import LISTED, _seen
from clawback.feedback import training_due
from clawback.gate import adapter_gate, questions
from clawback.gate.guards import AnswerStatistics
from clawback.gate.questions import ShownAnswers
from clawback.gate.report import Report
from clawback.gate.rule import Evidence
from clawback.jobs import inputs, training_job, worker
from clawback.models.types import Completion
from clawback.paths import Home
from clawback.records import GATE, Message, Run, Turn, Version
from clawback.trainer import RunRules

FINE = AnswerStatistics(finished=1.0, empty=0.0, repeating=0.0, length=40.0)
UNSURE = Evidence(10, 22, (0.1,), (-0.1, 0.2), 0.2, 0.4, 0.2, 0.97, 2.0, 1.0, FINE, FINE, FINE, questions=16)
ASKED = [({"role": "user", "content": f"Question {i}?"},) for i in range(16)]


def answered(by: str) -> list[Completion]:
    return [Completion(f"Answer {i} of {by}.", (1, 2), (-0.5, -0.5), True) for i in range(len(ASKED))]


@pytest.fixture
def waiting(home: Home, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Sequence[Message]]]:
    """A home with 32 ratings that run 1 took, and its version, which waits for answers. Gives what the gate asked the models, once for each time it measured."""
    looked: list[Sequence[Sequence[Message]]] = []

    def measured(*given: object) -> tuple[Evidence, ShownAnswers]:
        looked.append(given[3])  # type: ignore[arg-type]
        pairs = [questions.Question(i, i, 1.0) for i in range(16)]
        return UNSURE, ShownAnswers(list(ASKED), answered("the new version"), answered("the base"), pairs)

    monkeypatch.setattr("clawback.gate.adapter_gate.measure", measured)
    monkeypatch.setattr("clawback.gate.adapter_gate.base_of", lambda *_: None)
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    rate(home, 32)
    with store.connect(home.database) as db:
        said = db.feedback()
        parts = feedback.split(feedback.samples(db), 0.125)
        train, held = (inputs.feedback_of(part, said) for part in parts)
        run = db.start_run(Run("embedded", "r", "auto", {}, 0, 0, train_ids=train, held_out_ids=held))
        version = db.add_candidate(Version(0, "candidate", "embedded", parent=0, run_id=run.id))
        report = release.gate(db, home, version.number)
        db.update_run(run.id, status="done")  # as in a run: the gate is a part of it
        assert (report.verdict, report.again_at, report.looks) == ("waits", 4, 1)
        assert "say which of two answers is better, 4 to 16 times" in report.summary()
        assert Report.from_dict(asdict(report)) == report
    return looked


def rate(home: Home, count: int) -> None:
    with store.connect(home.database) as db:
        for i in range(count):
            turn = db.add_turn(Turn("s", ({"role": "user", "content": f"Hello {i}?"},), f"Hello {i}."))
            feedback.rate(db, turn.id, 1 if i % 3 else -1)


def answer(home: Home, count: int, candidate: bool = True) -> int:
    """Say as often which of the two is better. Returns how many were asked."""
    asked = 0
    for _ in range(count):
        pair = next(iter(rating_inbox.Inbox(home).pairs(1)), None)
        if pair is None or not pair.why:
            break
        asked += 1
        better, worse = (
            (pair.first, pair.second) if (pair.first.version == 1) == candidate else (pair.second, pair.first)
        )
        with store.connect(home.database) as db:
            feedback.prefer(db, better.id, worse.id)
    return asked


def status(home: Home) -> str:
    with store.connect(home.database) as db:
        return db.version(1).status


def test_it_goes_live_by_the_answers_and_no_model_is_asked_again(home: Home, waiting: list[object]) -> None:
    rate(home, 16)
    with store.connect(home.database) as db:
        assert not training_due(db, home), "ratings of other answers decide nothing about it"
    assert training_job.judge_waiting(home) is None
    assert answer(home, 4) == 4
    with store.connect(home.database) as db:
        assert training_due(db, home)
        assert db.count_fresh() == 16, "answers to the gate are for the gate"
    assert worker.enough_to_train(home) is False, "a run takes 32"
    report = training_job.judge_waiting(home)
    assert report is not None
    assert (report.verdict, report.again_at, report.looks) == ("waits", 8, 2)
    assert answer(home, 16) == 4, "nothing is asked that is not needed"
    report = training_job.judge_waiting(home)
    assert report is not None
    assert report.accepted
    assert report.evidence.answers == (True,) * 8
    assert status(home) == "live"
    assert len(waiting) == 1, "measured once"
    with store.connect(home.database) as db:
        assert db.waiting() is None
        assert not training_due(db, home)
    assert rating_inbox.Inbox(home).questions() == []
    assert Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    assert "in 8 of 8 blind comparisons" in report.text()


def test_the_live_versions_answers_are_liked_better_and_it_is_rejected(
    home: Home, waiting: list[object]
) -> None:
    assert answer(home, 16, candidate=False) == 4
    report = training_job.judge_waiting(home)
    assert report is not None
    assert report.verdict == "rejected"
    assert status(home) == "rejected"
    assert answer(home, 16) == 0, "what is left of the pairs is not asked about any more"
    assert [one for one in rating_inbox.waiting(home, 100) if one.turn.agent == GATE] == []


def test_an_unknown_algorithm_is_refused_before_a_version_that_waits_is_judged(
    home: Home, waiting: list[object]
) -> None:
    assert answer(home, 4) == 4
    with pytest.raises(UsageError, match="There is no algorithm `nonsense`"):
        training_job.train_once(home, algorithm="nonsense")
    report = training_job.judge_waiting(home)
    assert report is not None
    assert report.looks == 2, "the answers were not looked at before"


def test_never_more_than_sixteen_are_asked(home: Home, waiting: list[object]) -> None:
    asked = 0
    for number in range(40):
        asked += answer(home, 1, candidate=number % 3 != 2)
        training_job.judge_waiting(home)
    assert asked <= questions.MOST
    assert status(home) != "candidate"


def test_what_is_taken_back_is_asked_again(home: Home, waiting: list[object]) -> None:
    answer(home, 1)
    with store.connect(home.database) as db:
        before = questions.answers(db, 1, 0)
        feedback.undo(db)
        assert (before, questions.answers(db, 1, 0)) == ((True,), ())
        assert db.count_gate_answers(1) == 0
    assert answer(home, 16) == 8


def test_a_run_begins_with_it_and_does_not_wait_for_it(
    home: Home,
    waiting: list[object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The run's version has learned from more. What it is compared with is what came of the other one."""
    monkeypatch.setattr("clawback.engine.load", lambda *_, **__: (_ for _ in ()).throw(KeyError("no model")))
    rate(home, 5)
    with pytest.raises(KeyError):
        jobs.train_once(home)
    assert status(home) == "candidate", "nothing has begun"
    with store.connect(home.database) as db:
        run = db.start_run(Run("embedded", "r", "auto", {}, 0, 0))
        training_job._Job(home, db, None).give_up_waiting(run)
    assert status(home) == "rejected"
    assert main(["versions", "show", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Rejected: given up before it was decided.")
    assert "inbox --rate" not in shown


@pytest.mark.parametrize("answers", [0, 16])
def test_a_run_that_fails_gives_nothing_up(
    home: Home, waiting: list[object], monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    def begin(job: training_job._Job) -> tuple[Run, None]:
        assert job.preparing is not None
        return job.db.begin_run(job.preparing, Run("embedded", "r", "auto", {}, 0, 0)), None

    def fail(*_: object) -> Version:
        answer(home, answers)
        raise KeyError("out of memory")

    monkeypatch.setattr(training_job._Job, "begin", begin)
    monkeypatch.setattr(training_job._Job, "candidate", fail)
    with pytest.raises(TrainingError):
        jobs.train_once(home)
    assert status(home) == "candidate"
    with store.connect(home.database) as db:
        training_job._Job(home, db, None).give_up_waiting(db.runs()[0])
    assert status(home) == ("live" if answers else "rejected"), "what was answered while it trained counts"


def test_status_says_what_it_waits_for(
    home: Home, waiting: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    answer(home, 1)
    main(["status"])
    assert "version 1: say which of two answers is better, 3 times or more" in " ".join(
        capsys.readouterr().out.split()
    )
    main(["inbox"])
    assert "up to 15 comparisons of two answers are needed" in " ".join(capsys.readouterr().out.split())


def test_whoever_wants_no_waiting_has_it_rejected(home: Home, waiting: list[object]) -> None:
    settings = config.Config(gate=config.GateSection(more_ratings=0))
    with store.connect(home.database) as db:
        assert release.gate(db, home, 1, settings=settings).verdict == "rejected"


def test_pairs_of_answers_to_kept_prompts_are_what_is_asked_about(
    home: Home, waiting: list[list[tuple[Message, ...]]]
) -> None:
    """No session, no prompt and no "last answer" of the person's own is among them, and nobody sees them one by one."""
    from clawback.feedback import turn_reward

    with store.connect(home.database) as db:
        last = db.last_turn()
        release.gate(db, home, 1)  # to look again adds nothing
        assert last is not None
        assert last.agent != GATE
        assert db.last_turn() == last
        own = inputs.prompts(db, set(), 1e12, 0.125)
    share = config.GateSection().held_out
    kept = [turn_reward.keeps(turn_reward.prompt_key(messages), share) for messages in waiting[0]]
    assert kept == sorted(kept, reverse=True), "kept ones first"
    assert len(waiting[0]) == max(sum(kept), 8)
    assert not [m for m in own if turn_reward.keeps(turn_reward.prompt_key(m), share)]
    pairs = rating_inbox.Inbox(home).pairs(100)
    asked = [p for p in pairs if p.why]
    assert len(asked) == 16
    assert all(p.first.prompt == p.second.prompt and p.first.response != p.second.response for p in asked)
    assert all({p.first.version, p.second.version} == {0, 1} for p in asked)
    assert {p.first.version for p in asked} == {0, 1}, "in no order that gives them away"
    assert not [one for one in rating_inbox.waiting(home, 100) if one.turn.agent == GATE]
    assert asked[0].first.response_ids == (1, 2)


def test_two_ratings_of_a_pair_say_which_is_better_and_an_edit_does_not(
    home: Home, waiting: list[object]
) -> None:
    with store.connect(home.database) as db:
        (first, second), (third, fourth), *_ = questions.pairs(db, 1, 0)
        feedback.rate(db, first.id, 1)
        assert questions.answers(db, 1, 0) == (), "one of two says nothing of the other"
        feedback.rate(db, second.id, -1)
        assert questions.answers(db, 1, 0) == (first.version == 1,)
        feedback.rate(db, third.id, 1)
        feedback.rate(db, fourth.id, 1)
        feedback.edit(db, fourth.id, "What it should have said.")
        assert questions.answers(db, 1, 0)[1:] == (None,), "both alike: neither is better"
    pair = rating_inbox.Inbox(home).questions()[0]
    assert pair.first.id > fourth.id, "both rated alike: it is not asked about again"


def test_nobody_is_told_whose_answer_it_is_before_it_is_compared(home: Home, waiting: list[object]) -> None:
    pairs = rating_inbox.Inbox(home).questions()
    assert {_seen(turn, LISTED)["version"] for p in pairs for turn in (p.first, p.second)} == {None}


def test_another_live_version_is_another_comparison(home: Home, waiting: list[object]) -> None:
    answer(home, 4)
    with store.connect(home.database) as db:
        other = db.add_version(Version(0, "candidate", "embedded", parent=0, report={"accepted": True}))
        db.promote(other.number)
    report = training_job.judge_waiting(home)
    assert report is not None
    assert (report.against, report.evidence.answers, len(waiting)) == (other.number, (), 2)


def test_the_package_can_be_called_as_the_function_was(home: Home, waiting: list[object]) -> None:
    import clawback

    with store.connect(home.database) as db:
        report: Report = clawback.gate(db, home, 1)
        assert report.version == 1
    assert release.gate is adapter_gate.gate


def test_its_own_answers_and_those_of_another_model_are_no_test_of_how_it_has_shifted(
    home: Home, waiting: list[object]
) -> None:
    """They are likelier under it whatever was said of them, and what another model wrote shifts by its length."""
    with store.connect(home.database) as db:
        run, live = db.run(1), db.live()
        before = adapter_gate.telling(db, adapter_gate.unseen(db, feedback.samples(db), run, live), run, 1)
        for first, second in questions.pairs(db, 1, 0):
            feedback.prefer(db, first.id, second.id)
        for model, version in (("claude", None), ("embedded", None), ("", 0)):
            asked = ({"role": "user", "content": f"{model} {version}?"},)
            turn = db.add_turn(Turn("later", asked, "An answer.", model=model, version=version))
            feedback.rate(db, turn.id, 1)
        samples = feedback.samples(db)
        after = adapter_gate.telling(db, adapter_gate.unseen(db, samples, run, live), run, 1)
        assert {db.turn(number).model for number in after - before} == {"embedded", ""}
        assert len(after - before) == 2


def test_the_gate_looks_at_the_verdicts_that_the_run_looked_at(
    home: Home, waiting: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    from clawback import engine

    rules = RunRules(features=(("Be kind.", ""),))
    recipe = engine.recipe(engine.load("embedded").info)
    kept = asdict(replace(recipe, conditions=replace(recipe.conditions, rules=rules)))
    judges: list[object] = []

    def measured(*given: object) -> tuple[Evidence, ShownAnswers]:
        judges.append(given[2].judge)  # type: ignore[attr-defined]
        return UNSURE, ShownAnswers([], [], [])

    monkeypatch.setattr("clawback.gate.adapter_gate.measure", measured)
    with store.connect(home.database) as db:
        first = db.run(1)
        for recorded in (kept, {}):
            run = db.start_run(replace(first, id=0, status="running", recipe=recorded))
            version = db.add_candidate(Version(0, "candidate", "embedded", parent=0, run_id=run.id))
            training_job._Job(home, db, None).judge(version)
            db.update_run(run.id, status="done")
    assert [one and [rule.text for rule in one.rules] for one in judges] == [["Be kind."], None]  # type: ignore[attr-defined]
