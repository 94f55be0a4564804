"""What is said before a run starts: too few ratings, an algorithm that there is not."""

from __future__ import annotations

import pytest

from clawback import feedback, jobs, store
from clawback.errors import ClawbackError, TrainingError, UsageError
from clawback.paths import Home
from clawback.records import Turn


def rated(home: Home, *values: float) -> None:
    with store.connect(home.database) as db:
        for number, value in enumerate(values):
            messages = ({"role": "user", "content": f"question {number}"},)
            turn = db.add_turn(Turn(session="s", messages=messages, response=f"answer {number}"))
            feedback.rate(db, turn.id, value)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ((), "There is nothing to learn from yet"),
        (
            (1, -1),
            "1 good and 1 bad ratings, and the gate needs at least 2 of each: give 1 more good and 1 more bad",
        ),
        ((1, 1, 1), "3 good and 0 bad ratings, and the gate needs at least 2 of each: give 2 more bad first"),
        ((1, -1, -1), "give 1 more good first"),
    ],
)
def test_too_few_ratings_are_said_before_a_run_begins(
    home: Home, values: tuple[float, ...], sentence: str
) -> None:
    rated(home, *values)
    phases: list[object] = []
    with pytest.raises(TrainingError, match=sentence):
        jobs.train_once(home, on_progress=lambda p: phases.append(p["phase"]))
    with pytest.raises(TrainingError, match=sentence):
        jobs.startable(home, None)
    assert "load" not in phases, "no model was loaded for it"
    with store.connect(home.database) as db:
        assert db.runs() == []


def test_an_edit_is_not_counted_as_a_tap(home: Home) -> None:
    rated(home, 1)
    with store.connect(home.database) as db:
        feedback.edit(db, 1, "A better answer.")
    with pytest.raises(TrainingError, match=r"There are 1 good \(1 of them an edit\) and 1 bad ratings"):
        jobs.startable(home, None)


def test_an_algorithm_that_there_is_not_is_named_with_the_nearest(home: Home) -> None:
    rated(home, 1, 1, -1, -1)
    for start in (lambda: jobs.startable(home, "ppoo"), lambda: jobs.train_once(home, algorithm="ppoo")):
        with pytest.raises(UsageError, match="no algorithm `ppoo`; did you mean `ppo`"):
            start()
    jobs.startable(home, "auto")


def test_an_interrupted_run_is_gone_on_with_whatever_stands_now(home: Home) -> None:
    from clawback.records import Run

    with store.connect(home.database) as db:
        db.start_run(
            Run(
                base="embedded", base_revision="", algorithm="reinforce", recipe={}, seed=0, parent=0, train_ids=(), held_out_ids=(), pid=None
            )
        )  # fmt: skip
    jobs.startable(home, None)
    assert issubclass(TrainingError, ClawbackError)
