"""Asking again is a sign, silence is none."""

from __future__ import annotations

import pytest

from clawback import feedback, store
from clawback.capture import ingest
from clawback.capture.events import AnswerEvent, PromptEvent
from clawback.feedback.implicit import asked_again
from clawback.paths import Home
from clawback.records import Turn


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ("How do I boil eggs?", "how do I boil eggs?", True),
        ("How do I boil eggs?", "How do I really boil eggs?", True),
        ("How do I boil eggs?", "How do I boil rice?", False),
        ("How do I boil eggs?", "And how long does rice take?", False),
        ("go on", "go on", False),
        ("", "How do I boil eggs?", False),
        ("word " * 500, "word " * 500, False),
    ],
)
def test_the_same_question_is_known_again(before: str, now: str, same: bool) -> None:
    assert asked_again(before, now) is same


def test_it_counts_once_a_turn_and_not_where_somebody_spoke(home: Home) -> None:
    with store.connect(home.database) as db:
        turn = db.add_turn(Turn("s", ({"role": "user", "content": "How do I boil eggs?"},), "No idea.")).id
        for _ in range(2):
            feedback.notice(db, turn, [{"role": "user", "content": "How do I boil eggs"}])
        assert [(f.kind, f.value) for f in db.feedback()] == [("implicit", -1.0)]
        feedback.rate(db, turn, 1)
        reward, _ = feedback.reward(turn, db.feedback())
        assert reward == 1.0


def test_a_prompt_is_what_came_back_after_the_answer_before_it(home: Home) -> None:
    for number, text in enumerate(("How do I boil eggs?", "How do I boil eggs please?", "Thanks for that")):
        for _ in range(2):  # events may come twice: an answer is not what came back after itself
            ingest.take(home, "codex", PromptEvent("s", text, str(number)))
        for _ in range(2):
            ingest.take(home, "codex", AnswerEvent("s", f"answer {number}", str(number)))
    with store.connect(home.database) as db:
        assert [t.next_state for t in reversed(db.turns())] == [
            ({"role": "user", "content": "How do I boil eggs please?"},),
            ({"role": "user", "content": "Thanks for that"},),
            (),
        ]
        assert [f.turn_id for f in db.feedback()] == [1]


def test_a_guess_never_weakens_what_somebody_said() -> None:
    from clawback.feedback import reward
    from clawback.records import Feedback

    guess = Feedback(1, "implicit", -1.0, source="asked-again", id=2)
    assert reward(1, [Feedback(1, "rating", 1.0, id=1), guess])[0] == 1.0
    assert reward(1, [Feedback(1, "edit", 0.0, "better", id=3), guess])[0] == -0.5
    assert reward(1, [guess])[0] == -0.25
