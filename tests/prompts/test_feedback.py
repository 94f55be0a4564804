"""Ratings from wherever the person is find the answer that they are about."""

import re
import threading

import pytest

import clawback
from clawback.errors import UsageError
from clawback.prompts import (
    FeedbackAggregator,
    HumanFeedbackCollector,
    NoFeedback,
    preference_to_scores,
    rating_to_score,
    thumbs_to_score,
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CLAWBACK_HOME", str(tmp_path))
    return clawback.home()


def test_the_answer_is_kept_and_its_rating_found(home):
    collector = HumanFeedbackCollector(home=home, tell=lambda _: None)
    turn = collector.ask("What is a haiku?", "A poem.")
    assert collector.result(turn) is None
    with clawback.connect(home.database) as store:
        clawback.rate(store, turn, -1, note="too short")
        clawback.critique(store, turn, "say how many lines")
        clawback.edit(store, turn, "A poem of three lines.")
    found = collector.result(turn)
    assert found.value < 0
    assert found.score < 0.5
    assert not found.thumbs_up
    assert set(found.remarks) == {"too short", "say how many lines"}
    assert found.edit == "A poem of three lines."


def test_it_waits_until_somebody_has_rated(home):
    def rates(line):
        def tap():
            with clawback.connect(home.database) as store:
                clawback.score(store, int(re.search(r"--turn (\d+)", line)[1]), 10)

        threading.Thread(target=tap).start()

    found = HumanFeedbackCollector(home=home, timeout=60, tell=rates).get_feedback("Q?", "A.")
    assert (found.score, found.rating) == (1.0, 5)
    with pytest.raises(NoFeedback, match="kept"):
        HumanFeedbackCollector(home=home, timeout=0, tell=lambda _: None).get_feedback("Q?", "B.")


def test_scores_of_the_kinds():
    assert (thumbs_to_score(True), thumbs_to_score(False)) == (1.0, 0.0)
    assert [rating_to_score(r) for r in (1, 3, 5)] == [0.0, 0.5, 1.0]
    assert preference_to_scores(1, 3) == [0.0, 1.0, 0.0]
    for wrong in (lambda: rating_to_score(6), lambda: preference_to_scores(2)):
        with pytest.raises(UsageError):
            wrong()


def test_a_preference_against_is_not_one_for():
    both = FeedbackAggregator()
    assert both.aggregate() is None
    assert both.aggregate(preferred=True) == 1.0
    assert both.aggregate(preferred=False) == 0.0
    assert both.aggregate(explicit=1.0, implicit=0.0) == pytest.approx(1 / 1.5)
