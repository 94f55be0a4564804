"""A clock that is set ahead deletes nothing; time that has really passed does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clawback import config, feedback, processes, store
from clawback.admin import rating_inbox
from clawback.cli import main
from clawback.paths import Home
from clawback.records import Feedback, Turn
from clawback.store import Store, database
from clawback.store.pending import PendingPrompt

DAY = 86_400.0
T = 1_800_000_000.0


class Machine:
    """A machine whose clock can be set, and whose counter cannot."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.wall, self.counter, self.boot = T, 1000.0, "one"
        patch.setattr(database.time, "time", lambda: self.wall)
        patch.setattr(database, "_counter", lambda: self.counter)
        patch.setattr(database, "boot_identity", lambda: self.boot)

    def passes(self, seconds: float) -> None:
        self.wall, self.counter = self.wall + seconds, self.counter + seconds

    def restarts(self, seconds: float) -> None:
        """Off for so long."""
        self.wall, self.counter, self.boot = self.wall + seconds, 5.0, self.boot + "'"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    config.save(home.config, {"capture": {"unrated": "drop", "fade_days": 30}})
    return home


def a_turn(db: Store, number: int) -> int:
    return db.add_turn(Turn("s", ({"role": "user", "content": f"q{number}"},), "a", agent="t")).id


def count(home: Home) -> int:
    with store.connect(home.database) as db:
        return db.count_turns()


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("days", [8, 40, 4000])
def test_a_clock_that_is_ahead_deletes_nothing(
    home: Home, machine: Machine, known: bool, restarted: bool, days: int
) -> None:
    with store.connect(home.database) as db:
        a_turn(db, 1)
    if known:
        assert rating_inbox.fade(home) == 0
    machine.restarts(days * DAY) if restarted else setattr(machine, "wall", machine.wall + days * DAY)
    for _ in range(20):
        assert rating_inbox.fade(home) == 0
        machine.passes(3600)
    machine.wall -= days * DAY  # somebody sets it right
    assert rating_inbox.fade(home) == 0
    assert count(home) == 1
    machine.passes(29.5 * DAY)
    assert rating_inbox.fade(home) == 1


def test_time_that_passes_deletes_on_the_day(home: Home, machine: Machine) -> None:
    with store.connect(home.database) as db:
        a_turn(db, 1)
    deleted = []
    for day in range(40):
        deleted += [day] * rating_inbox.fade(home)
        machine.passes(DAY) if day % 3 else machine.restarts(DAY)
    assert deleted == [31]


def test_a_machine_that_slept_for_forty_days_has_seen_them_pass(home: Home, machine: Machine) -> None:
    with store.connect(home.database) as db:
        a_turn(db, 1)
    rating_inbox.fade(home)
    machine.passes(40 * DAY)
    assert rating_inbox.fade(home) == 1


def test_after_a_long_absence_deletion_waits_for_one_period_and_no_longer(
    home: Home, machine: Machine
) -> None:
    with store.connect(home.database) as db:
        a_turn(db, 1)
    rating_inbox.fade(home)
    machine.restarts(40 * DAY)
    deleted = []
    for day in range(40):
        deleted += [day] * rating_inbox.fade(home)
        machine.passes(DAY)
    assert deleted == [30]


def test_ratings_that_wait_for_their_answer_are_not_lost_by_a_clock(home: Home, machine: Machine) -> None:
    with store.connect(home.database) as db:
        a_turn(db, 1)
        db.put_early("here", Feedback(0, "rating", 1.0, created_at=machine.wall))
        machine.wall += 40 * DAY
        db.put_early("there", Feedback(0, "rating", -1.0, created_at=machine.wall))
        assert [(one.post, one.lost) for one in db.early()] == [("here", ""), ("there", "")]
        assert db.untold("") == []
        turn = a_turn(db, 2)
        assert [given.value for given in db.put_post("here", turn)] == [1.0]


def test_prompts_and_commands_outlive_a_clock(
    home: Home, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clawback.store import pending

    monkeypatch.setattr(pending, "KEPT_PROMPTS", 2)
    with store.connect(home.database) as db:
        a_turn(db, 1)
        db.put_obeyed("event", "done")
        for number in range(4):
            db.put_prompt("a", "s", PendingPrompt(str(number), "text"))
        machine.wall += 40 * DAY
        db.put_obeyed("another", "done")
        db.put_prompt("a", "s", PendingPrompt("9", "text"))
        assert db.obeyed("event") == "done"
        assert db.kept_prompt("a", "s", "0") is not None


def test_prune_by_age_says_so_and_can_be_told_that_the_clock_is_right(
    home: Home, machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with store.connect(home.database) as db:
        feedback.rate(db, a_turn(db, 1), 1)
        a_turn(db, 2)
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    machine.restarts(100 * DAY)
    assert main(["prune", "--days", "90", "--yes"]) == 0
    said = capsys.readouterr()
    assert "100 days ahead" in said.err
    assert "0 turns" in said.out
    assert count(home) == 2
    assert main(["prune", "--days", "90", "--yes", "--trust-clock"]) == 0
    assert count(home) == 1


def test_a_number_of_a_process_that_is_used_again_is_another_process() -> None:

    mine = processes.identity(os.getpid())
    assert mine
    assert processes.is_alive(os.getpid(), mine)
    assert processes.is_alive(os.getpid())
    assert not processes.is_alive(os.getpid(), mine + "1")
    assert not processes.is_alive(None)
    assert not processes.is_alive(2**22 + 1)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(
        os.P_PID, child, os.WEXITED | os.WNOWAIT
    )  # dead, and nobody has taken note: a zombie trains nothing
    assert not processes.is_alive(child)
    os.waitpid(child, 0)
