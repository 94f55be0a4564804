"""What doctor says of ratings that teach nothing, and of versions that drift away."""

from __future__ import annotations

from clawback import feedback, store
from clawback.admin import health
from clawback.paths import Home
from clawback.records import Turn, Version


def findings(home: Home, look: object) -> list[health.Finding]:
    return list(look(home))  # type: ignore[operator]


def rate(home: Home, good: int, bad: int) -> None:
    with store.connect(home.database) as db:
        for number in range(good + bad):
            turn = db.add_turn(Turn("s", ({"role": "user", "content": f"{number}?"},), "A."))
            feedback.rate(db, turn.id, 1 if number < good else -1)


def test_ratings_that_are_all_alike_are_told_of(home: Home) -> None:
    rate(home, 20, 0)
    assert findings(home, health._ratings)[0]["ok"]  # too few to say
    rate(home, 20, 1)
    [found] = findings(home, health._ratings)
    assert not found["ok"]
    assert "40 of 41 ratings are good" in found["what"]
    rate(home, 0, 5)
    assert findings(home, health._ratings)[0]["ok"]


def test_versions_that_drift_one_after_the_other_are_told_of(home: Home) -> None:
    with store.connect(home.database) as db:
        for reason in ("drifted 10.7 nats an answer (8 is the most)", "no better than the live version"):
            made = db.add_version(Version(0, "candidate", "embedded", report={"reasons": [reason]}))
            db.reject(made.number)
        assert findings(home, health._diverged)[0]["ok"]
        made = db.add_version(Version(0, "candidate", "embedded", report={"reasons": ["it drifted 20 nats"]}))
        db.reject(made.number)
    [found] = findings(home, health._diverged)
    assert not found["ok"]
    assert "careful" in found["fix"]
