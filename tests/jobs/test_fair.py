"""Who trains next, where many share a machine."""

from pathlib import Path

import pytest

from clawback.extensions.people.fair import HALVED, FairQueue


@pytest.fixture
def waiting(tmp_path: Path) -> FairQueue:
    return FairQueue(tmp_path / "training")


def test_nobody_waits_at_first(waiting: FairQueue) -> None:
    assert waiting.next() is None
    waiting.drop("ada")


def test_of_those_who_had_the_same_the_first_who_asked_is_next(waiting: FairQueue) -> None:
    for name in ("zoe", "ada", "bob"):
        waiting.ask(name)
    waiting.ask("zoe")  # keeps their place
    served = []
    while name := waiting.next():
        served.append(name)
        waiting.drop(name)
    assert served == ["zoe", "ada", "bob"]


def test_who_asks_all_the_time_does_not_keep_others_waiting(waiting: FairQueue) -> None:
    served = []
    for now in range(1000, 1040):
        waiting.ask("greedy")
        if now % 2 == 0:
            waiting.ask("modest")
        name = waiting.next(now)
        assert name
        waiting.drop(name)
        waiting.spent(name, 600 if name == "greedy" else 20, now)
        served.append(name)
    assert served.count("modest") == 20, "each time that they asked"


def test_what_somebody_had_counts_half_after_a_day(waiting: FairQueue) -> None:
    waiting.spent("ada", 1000, 0)
    waiting.spent("bob", 600, 0)
    waiting.spent("bob", 100, HALVED)  # 400 by now, and ada's are 500
    waiting.ask("ada")
    waiting.ask("bob")
    assert waiting.next(HALVED) == "bob"
    waiting.spent("bob", 200, HALVED)
    assert waiting.next(HALVED) == "ada"


def test_a_restart_forgets_nobody_and_a_damaged_ledger_is_an_empty_one(waiting: FairQueue) -> None:
    waiting.ask("ada")
    waiting.ledger.write_text("[]")
    again = FairQueue(waiting.folder)
    assert again.next() == "ada"
    again.spent("ada", 5)
    assert FairQueue(waiting.folder)._had()["ada"][0] == 5
