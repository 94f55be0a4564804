"""Ratings that cannot be told from chance begin no run, and that is said wherever somebody looks."""

from __future__ import annotations

import json
import re
import shlex
from types import SimpleNamespace

import pytest

from clawback import config, feedback, jobs, store
from clawback.cli import main
from clawback.errors import NothingRead
from clawback.feedback import command, due
from clawback.jobs import worker
from clawback.learning import run_budget
from clawback.models.types import ModelInfo
from clawback.paths import Home
from clawback.records import Turn
from clawback.runs import trigger
from clawback.serve import api
from clawback.trainer import TrainingRun
from tests.gate.test_headroom import filled

pytest.importorskip("peft")


@pytest.fixture
def chance(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with 32 ratings by a coin, of a model that is taken for a large one."""
    monkeypatch.setattr(ModelInfo, "bucket", property(lambda _: "tiny"))
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    filled(home, 0.5, wrong=0.5, seed=3)
    return home


def test_ratings_by_chance_begin_no_run_and_say_so(
    chance: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(worker.os, "nice", lambda _: 0)
    monkeypatch.setattr(run_budget, "fit", lambda *_, **__: pytest.fail("the machine was measured"))
    with store.connect(chance.database) as db:
        assert due.training_due(db, chance)
    assert worker.main([str(chance.root), "--if-due"]) == 0
    with store.connect(chance.database) as db:
        assert db.runs() == []
        assert not due.training_due(db, chance)
        assert due.last_failure(db) is None
        assert "Nothing read: these" in command.status(db)
        shown = api.status(
            SimpleNamespace(home=chance, settings=config.load(chance.config), forward=None), None
        )
        assert "Nothing read: these" in shown["nothing_to_gain"]
        assert (shown["fresh"], shown["towards_run"]) == (32, 0)
        assert shown["threshold"] == 8
        for turn in db.turns(limit=200, rated=False)[:8]:
            assert not due.training_due(db, chance)
            feedback.rate(db, turn.id, 1)
        assert due.training_due(db, chance), "a few further ratings are a reason to read again"
    assert list(chance.runs.glob("*")) == []


def test_who_asks_is_told_what_needs_no_reading(chance: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "Nothing read: these" in said
    assert "read again after 8 further ratings" in said
    assert "An edit, an A or B, or a sentence on a bad answer needs no reading" in said
    main(["status"])
    said = " ".join(capsys.readouterr().out.split())
    assert "No run Nothing read: these" in said
    assert "Next run 0 of 8 fresh ratings" in said


def test_who_rates_another_models_answers_is_told_what_lets_them_be_learned(
    chance: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with store.connect(chance.database) as db:
        turn = Turn("strong", ({"role": "user", "content": "Hi"},), "Hello.", model="acme's strong-1")
        feedback.rate(db, db.add_turn(turn).id, 1)
    assert main(["train"]) == 1
    message = " ".join(capsys.readouterr().err.split())
    command = re.search(r"`(clawback config set training[^`]+)`", message)
    assert command is not None
    assert json.loads(shlex.split(command.group(1))[-1]) == ["acme's strong-1"]


def test_anyway_is_measured_and_remembered(chance: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = []

    def fit(run: TrainingRun, *_: object) -> object:
        recipes.append(run.recipe)
        raise KeyError("measured")

    monkeypatch.setattr(run_budget, "fit", fit)
    with pytest.raises(KeyError, match="measured"):
        jobs.train_once(chance, anyway=True)
    assert recipes[0].conditions.anyway
    with pytest.raises(NothingRead, match="--anyway"):
        jobs.train_once(chance)


def test_ratings_that_were_read_before_are_trusted_less_easily(chance: Home) -> None:
    with store.connect(chance.database) as db:
        assert due.significance(db, 32, 0.08) == 0.08
        with pytest.raises(NothingRead, match="at most 8% are allowed"):
            jobs.train_once(chance)
        assert due.significance(db, 32, 0.08) == 0.0
        unrated = db.turns(limit=200, rated=False)
        for turn in unrated[:8]:
            feedback.rate(db, turn.id, 1 if turn.id % 2 else -1)
        assert due.significance(db, 32, 0.08) == pytest.approx(0.02)
        with pytest.raises(NothingRead, match="at most 2% are allowed"):
            jobs.train_once(chance)
        for turn in unrated[8:48]:
            feedback.rate(db, turn.id, 1 if turn.id % 2 else -1)
        assert due.significance(db, 32, 0.08) == 0.08


def test_somebody_who_likes_every_answer_starts_no_run_until_one_can_begin(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    monkeypatch.setattr(trigger, "start_process", lambda *_: pytest.fail("a process was started"))
    with store.connect(home.database) as db:
        for number in range(40):
            turn = db.add_turn(
                Turn("s", ({"role": "user", "content": f"What is {number}?"},), f"It is {number}.")
            )
            feedback.rate(db, turn.id, 1)
        assert not trigger.start_if_due(home, db)
        assert due.last_failure(db) is None
        assert main(["status"]) == 0
        assert "it starts once 2 answers are rated bad" in " ".join(capsys.readouterr().out.split())
        shown = api.status(SimpleNamespace(home=home, settings=config.load(home.config), forward=None), None)
        assert shown["missing_sign"] == "bad"
        feedback.edit(db, 1, "It is nothing.")
        assert not due.training_due(db, home)
        feedback.rate(db, 2, -1)
        assert due.training_due(db, home), "an edit speaks against an answer as a bad rating does"
