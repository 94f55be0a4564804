"""Whether there is anything to gain for a run: somebody who likes what they get is left alone."""

from __future__ import annotations

import random

import pytest

from clawback import config, feedback, jobs, store
from clawback.cli import main
from clawback.errors import NothingToGain
from clawback.feedback import due
from clawback.gate import headroom
from clawback.jobs import worker
from clawback.paths import Home
from clawback.records import Turn

GOOD, BAD = (
    "Otters eat fish.",
    "Sorry for the wait! I would be happy to help. It eats fish, as far as I know, and more.",
)


def filled(
    home: Home,
    good_share: float,
    *,
    wrong: float = 0.1,
    only_bad: bool = False,
    seed: int = 0,
    version: int = 0,
) -> None:
    """128 answers of a version, of which the person likes a share; 32 are rated, of the bad ones more where ``only_bad``: as an inbox chooses."""
    rng = random.Random(seed)
    with store.connect(home.database) as db:
        turns = []
        for i in range(128):
            good = rng.random() < good_share
            text = f"{GOOD if good else BAD} {rng.choice(['Yes', 'No', 'Indeed'])}, {i}."
            turn = db.add_turn(
                Turn("s", ({"role": "user", "content": f"{seed} {i}?"},), text, version=version)
            )
            turns.append((turn.id, good))
        if only_bad:
            turns.sort(key=lambda one: one[1])
        else:
            rng.shuffle(turns)
        for number, good in turns[:32]:
            feedback.rate(db, number, 1 if good != (rng.random() < wrong) else -1)


def found(home: Home) -> headroom.Headroom:
    with store.connect(home.database) as db:
        estimate = headroom.estimate(db, config.load(home.config))
    assert estimate is not None
    return estimate


@pytest.mark.parametrize("seed", [1, 2])
def test_a_contented_person_leaves_nothing_to_gain(home: Home, seed: int) -> None:
    filled(home, 0.94, seed=seed)
    assert found(home).nothing_to_gain


def test_what_the_inbox_asked_about_is_not_taken_for_all_there_is(home: Home) -> None:
    """It asks about doubtful answers: nearly half of what was rated is bad, and nearly all of what was said is good."""
    filled(home, 0.91, only_bad=True, seed=3)
    estimate = found(home)
    with store.connect(home.database) as db:
        good, bad = db.count_ratings()
    assert good / (good + bad) < 0.7 < estimate.liked
    assert estimate.nothing_to_gain


@pytest.mark.parametrize("share", [0.3, 0.5, 0.75])
def test_whoever_likes_a_part_of_the_answers_has_something_to_gain(home: Home, share: float) -> None:
    filled(home, share, seed=4)
    assert not found(home).nothing_to_gain
    assert found(home).gain > 0.4


def test_whoever_likes_nothing_has_something_to_gain_although_no_answer_is_better(home: Home) -> None:
    filled(home, 0.08, seed=5)
    assert not found(home).nothing_to_gain


def test_with_few_ratings_or_those_of_another_model_nothing_is_known(home: Home) -> None:
    with store.connect(home.database) as db:
        for i in range(40):
            own = 0 if i < headroom.LEAST_RATED - 1 else None
            turn = db.add_turn(
                Turn(
                    "s",
                    ({"role": "user", "content": f"{i}?"},),
                    f"{GOOD} {i}",
                    version=own,
                    model="" if own == 0 else "other",
                )
            )
            feedback.rate(db, turn.id, 1)
        assert headroom.estimate(db, config.Config()) is None


def test_a_broken_rule_is_something_to_gain(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from clawback.records import Rule

    filled(home, 0.97, seed=6)
    assert found(home).nothing_to_gain
    monkeypatch.setattr(
        "clawback.gate.guards.checked", lambda _: [(Rule("Name a number twice."), lambda q, a: 0.0)]
    )
    assert found(home).broken == ("Name a number twice.",)
    assert not found(home).nothing_to_gain


def test_nothing_to_gain_is_no_run_and_a_sentence(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    monkeypatch.setattr(
        "clawback.engine.load", lambda *_, **__: (_ for _ in ()).throw(KeyError("a run begins"))
    )
    filled(home, 0.95, seed=7)
    with store.connect(home.database) as db:
        assert due.training_due(db, home)
    monkeypatch.setattr(worker.os, "nice", lambda _: 0)
    assert worker.main([str(home.root), "--if-due"]) == 0
    with store.connect(home.database) as db:
        assert db.runs() == []
        assert not due.training_due(db, home), "not looked at again before there is as much to look at"
        assert due.last_failure(db) is None
    assert main(["train"]) == 1
    assert "There is little to gain" in capsys.readouterr().err
    main(["status"])
    said = " ".join(capsys.readouterr().out.split())
    assert "No run There is little to gain: by 32 ratings of the live version about" in said
    assert "Next run 0 of 32 fresh ratings" in said
    with pytest.raises(KeyError, match="a run begins"):
        jobs.train_once(home, anyway=True)
    with pytest.raises(NothingToGain, match="--anyway"):
        jobs.train_once(home)


def test_after_as_many_ratings_more_it_is_looked_at_again(home: Home) -> None:
    filled(home, 0.95, seed=8)
    with store.connect(home.database) as db:
        db.set(due.NO_GAIN, {"fresh": 32, "live": 0, "why": "x"})
        assert not due.enough_fresh(db, 32)
    filled(home, 0.3, seed=9)
    with store.connect(home.database) as db:
        assert due.enough_fresh(db, 32)
        db.set(due.NO_GAIN, {"fresh": 40, "live": 3, "why": "x"})
        assert due.enough_fresh(db, 32), "another version is live since"
