"""What a run brought since the person last looked: one sentence from what the store has, and one key to it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from clawback import store
from clawback.capture import status_line
from clawback.cli import main
from clawback.feedback import command
from clawback.feedback.news import mark_seen, news, when
from clawback.jobs.news import decide
from clawback.paths import Home
from clawback.records import Feedback, Run, Turn, Version

EVIDENCE = {
    "candidate": {"length": 77.0},
    "live": {"length": 100.0},
    "rules": [
        {"rule": "Never apologise.", "candidate": 0.9, "live": 0.62},
        {"rule": "Be kind.", "candidate": 0.5, "live": 0.55},
    ],
}


@pytest.fixture
def brought(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Version 1, made from four ratings, live."""
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    with store.connect(home.database) as db:
        for number in range(4):
            turn = db.add_turn(Turn(session="s", messages=(), response=str(number)))
            db.add_feedback(Feedback(turn.id, "rating", 1.0))
        ids = tuple(one.id for one in db.feedback())
        run = db.start_run(Run("embedded", "", "reinforce", {"steps": 1}, 0, 0, train_ids=ids))
        db.add_candidate(
            Version(0, "candidate", "embedded", parent=0, run_id=run.id, report={"evidence": EVIDENCE})
        )
        db.update_run(run.id, status="done")
        db.promote(1)
    return home


def test_it_names_the_ratings_the_version_and_what_was_measured(brought: Home) -> None:
    with store.connect(brought.database) as db:
        current = news(db)
        assert current is not None
        assert current.sentence == (
            "Today: 4 ratings, version 1, answers 23 % shorter, “Never apologise” kept in 90 % of answers (before 62 %). Keep it?"
        )
        assert news(db, datetime.now() + timedelta(days=8)) is None, "nobody calls that news"


def test_a_version_that_waits_asks_for_comparisons_and_not_to_be_kept(brought: Home) -> None:
    with store.connect(brought.database) as db:
        mark_seen(db, 1)
        run = db.start_run(Run("embedded", "", "reinforce", {"steps": 1}, 0, 1, train_ids=(1, 2, 3, 4)))
        report = {"evidence": {}, "again_at": 3}
        db.add_candidate(Version(0, "candidate", "embedded", parent=1, run_id=run.id, report=report))
        current = news(db)
        assert current is not None
        assert (current.version, current.live, current.ratings) == (2, False, 0)
        assert "three pairs to compare before it answers (`clawback inbox --rate`)" in current.sentence
        assert "Keep" not in current.sentence


def test_keeping_is_the_end_of_it_everywhere(brought: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert "keep? /rl keep" in str(status_line._read(brought))
    assert main(["status"]) == 0
    assert "News      Today: 4 ratings, version 1" in " ".join(capsys.readouterr().out.split("\n"))
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["news"]["version"] == 1
    with store.connect(brought.database) as db:
        reply = command.run(db, ["keep"], None, source="claude-code")
        assert "version 1 stays" in reply.text
        assert news(db) is None
        assert db.live().number == 1
    assert "keep?" not in str(status_line._read(brought))


def test_a_stranger_keeps_nothing(brought: Home) -> None:
    with store.connect(brought.database) as db:
        assert "owner's alone" in command.run(db, ["keep"], None, source="slack:U1").text
        assert news(db) is not None


@pytest.mark.parametrize("keep", [True, False])
def test_one_key_keeps_it_or_goes_back(brought: Home, keep: bool) -> None:
    with store.connect(brought.database) as db:
        sentence = decide(db, brought, keep)
        assert db.live().number == int(keep)
        assert ("stays" in sentence) == keep
        assert news(db) is None
        assert len(db.feedback()) == 4, "ratings stay"
        assert "nothing new" in decide(db, brought, False)


@pytest.mark.parametrize(
    ("made", "now", "name"),
    [
        ((3, 2), (3, 8), "last night"),
        ((2, 22), (3, 8), "last night"),
        ((3, 2), (3, 3), "today"),
        ((2, 13), (3, 8), "yesterday"),
        ((3, 9), (3, 23), "today"),
        ((1, 12), (5, 8), "on Friday"),
    ],
)
def test_times_are_named_as_a_person_does(made: tuple[int, int], now: tuple[int, int], name: str) -> None:
    assert when(datetime(2026, 5, *made), datetime(2026, 5, *now)) == name
