"""A run at a time of day: when that is, what waits for it, what takes it back, and what happens where nothing waits any more."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import pytest

from clawback import feedback, store
from clawback.errors import UsageError
from clawback.feedback.due import SCHEDULED, training_due
from clawback.jobs import scheduled_worker, worker
from clawback.paths import Home
from clawback.records import Turn
from clawback.runs import schedule
from clawback.runs.run_options import RunOptions


@pytest.mark.parametrize(
    ("clock", "now", "expected"),
    [
        ("02:00", "2026-03-01 23:10", "2026-03-02 02:00"),
        ("02:00", "2026-03-01 01:59", "2026-03-01 02:00"),
        ("02:00", "2026-03-01 02:00", "2026-03-02 02:00"),
        (" 23:30 ", "2026-12-31 23:31", "2027-01-01 23:30"),
    ],
)
def test_the_next_time_that_the_clock_shows_it(clock: str, now: str, expected: str) -> None:
    assert schedule.next_moment(clock, datetime.fromisoformat(now)) == datetime.fromisoformat(expected)


@pytest.mark.parametrize("clock", ["", "2", "25:00", "tonight", "2 am", "02:00Z", "2026-01-01"])
def test_what_is_no_time_of_day_is_refused(clock: str) -> None:
    with pytest.raises(UsageError, match="02:00"):
        schedule.next_moment(clock)


def test_it_waits_in_a_process_of_its_own_and_can_be_taken_back(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(
        schedule.trigger, "start_process", lambda _, module, words: started.append([module, *words])
    )
    moment = datetime.now().replace(microsecond=0) + timedelta(hours=5)
    with store.connect(home.database) as db:
        schedule.schedule(home, db, moment, RunOptions(seed=3))
        assert schedule.scheduled(db) == moment
        assert started == [[schedule.WORKER, str(home.root), str(moment.timestamp()), "--seed=3"]]
        assert f"{moment:%H:%M}" in schedule.sentence(moment)
        assert schedule.cancel(db)
        assert schedule.scheduled(db) is None
        assert not schedule.cancel(db)


def test_the_run_starts_when_the_moment_has_come(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[RunOptions] = []
    clock = [1000.0]
    monkeypatch.setattr(scheduled_worker, "write_to_log", lambda _: None)
    monkeypatch.setattr(
        scheduled_worker.trigger, "start", lambda _, options, store: began.append(options) or 1
    )
    monkeypatch.setattr(time, "time", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    with store.connect(home.database) as db:
        db.set(SCHEDULED, 1075.0)
        assert scheduled_worker.main([str(home.root), "1075.0", "--seed=3"]) == 0
        assert (began, clock[0]) == ([RunOptions(seed=3)], 1075.0)
        assert schedule.scheduled(db) is None


@pytest.mark.parametrize("stored", [None, 2000.0])
def test_what_was_taken_back_or_replaced_starts_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch, stored: float | None
) -> None:
    began: list[Any] = []
    monkeypatch.setattr(scheduled_worker, "write_to_log", lambda _: None)
    monkeypatch.setattr(scheduled_worker.trigger, "start", lambda *_, **__: began.append(1))
    with store.connect(home.database) as db:
        db.set(SCHEDULED, stored)
    assert scheduled_worker.main([str(home.root), "1075.0"]) == 0
    assert began == []


def test_where_nothing_waits_any_more_the_next_rating_starts_it(home: Home) -> None:
    """The machine was switched off in the night."""
    with store.connect(home.database) as db:
        turn = db.add_turn(Turn("s", ({"role": "user", "content": "q"},), "a")).id
        db.set(SCHEDULED, time.time() - 60)
        assert not training_due(db, home), "nothing has been said since"
        feedback.rate(db, turn, 1)
        assert training_due(db, home)
        assert worker.enough_to_train(home)
        assert schedule.scheduled(db) is None
        assert not training_due(db, home)
        db.set(SCHEDULED, time.time() + 3600)
        assert not training_due(db, home)
