"""What came after an answer becomes a hint, and only where it is one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clawback import feedback, store
from clawback.feedback.calibrate import hints_of
from clawback.feedback.endpoint import Ask, CallBudget, JudgeAnswer, NoAnswer
from clawback.feedback.hints import candidates, extract, pending_hints
from clawback.feedback.passes import PassPlan
from clawback.paths import Home
from clawback.records import Turn
from clawback.store import Store
from tests.feedback.test_judge import budget, fill

GOOD = "\\boxed{1}\n[HINT_START]Answer with a list of bullet points.[HINT_END]"


@pytest.fixture
def db(home: Home) -> Iterator[Store]:
    with store.connect(home.database) as opened:
        yield opened


def saying(*texts: str) -> tuple[Ask, list[str]]:
    left, asked = list(texts), []

    def ask(_: str, user: str) -> JudgeAnswer:
        asked.append(user)
        return JudgeAnswer(left.pop(0) if len(left) > 1 else left[0], 10)

    return ask, asked


def test_all_different_candidates_are_kept_and_are_no_reward(db: Store) -> None:
    [turn] = fill(db, 1)
    ask, _ = saying(GOOD, GOOD.replace("bullet points", "numbers"), "\\boxed{-1}")
    found = extract(db, ask, PassPlan("m", budget(), votes=3))
    assert (found.turns, found.hinted, found.hints) == (1, 1, 2)
    rows = db.feedback(turn_id=turn.id)
    assert [(f.kind, f.source, f.value) for f in rows] == [("critique", "hint:m", 0.0)] * 2
    assert hints_of(rows) == ("Answer with a list of bullet points.", "Answer with a list of numbers.")
    assert feedback.samples(db) == []
    assert db.count_fresh() == 0
    assert db.turns(rated=True) == []
    assert pending_hints(db, "m") == []


def test_the_same_hint_twice_is_one_and_too_short_a_one_is_none(db: Store) -> None:
    [turn] = fill(db, 1)
    short = "\\boxed{1}[HINT_START]Be brief.[HINT_END]"
    assert candidates(saying(GOOD, short, GOOD)[0], turn, 3) == ["Answer with a list of bullet points."]


def test_where_there_is_nothing_to_learn_it_is_not_asked_again(db: Store) -> None:
    fill(db, 3)
    ask, asked = saying("\\boxed{-1}")
    assert extract(db, ask, PassPlan("m", budget(), votes=2)).hinted == 0
    assert len(asked) == 6
    assert db.feedback() == []
    assert extract(db, ask, PassPlan("m", budget())).turns == 0


def test_a_correction_is_shown_in_place_of_what_came_back(db: Store) -> None:
    asked_for = ({"role": "user", "content": "q"},)
    turn = db.add_turn(Turn("s", asked_for, "what was said"))
    assert pending_hints(db, "m") == []
    feedback.edit(db, turn.id, "what was wanted instead")
    ask, asked = saying(GOOD)
    extract(db, ask, PassPlan("m", budget(), votes=1))
    assert "what was wanted instead" in asked[0]
    assert "NEXT STATE" not in asked[0]
    assert len(hints_of(db.feedback(turn_id=turn.id))) == 1


def test_a_persons_own_words_are_the_hint(db: Store) -> None:
    first, second = fill(db, 2)
    feedback.critique(db, first.id, "Shorter, please.")
    assert [t.id for t in pending_hints(db, "m")] == [second.id]
    extract(db, saying(GOOD)[0], PassPlan("other", budget(), votes=1))
    feedback.critique(db, second.id, "No bullets.")
    assert hints_of(db.feedback(turn_id=second.id)) == ("No bullets.", "Answer with a list of bullet points.")
    feedback.undo(db, second.id)
    assert hints_of(db.feedback(turn_id=second.id)) == ("Answer with a list of bullet points.",)


def test_no_answer_leaves_it_for_another_time(db: Store) -> None:
    fill(db, 2)

    def gone(*_: str) -> JudgeAnswer:
        raise NoAnswer("nobody there")

    assert extract(db, gone, PassPlan("m", budget())).failed == 2
    assert extract(db, saying("Hm.", "Hm.")[0], PassPlan("m", budget())).failed == 2
    assert len(pending_hints(db, "m")) == 2


def test_a_spent_budget_ends_it(db: Store) -> None:
    fill(db, 5)
    few = CallBudget(3, 60, 10**9)

    def ask(*_: str) -> JudgeAnswer:
        few.take(1)
        return JudgeAnswer(GOOD, 1)

    found = extract(db, ask, PassPlan("m", few, votes=1))
    assert (found.turns, found.hints) == (3, 3)
    assert "max_calls" in found.stopped
