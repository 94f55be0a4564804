"""When a run may start by itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from datetime import datetime, time
from types import SimpleNamespace

import pytest
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st

from clawback import config, store
from clawback.admin import health, remote_commands
from clawback.cli import main
from clawback.errors import ConfigError
from clawback.feedback import command, due
from clawback.feedback.due import Failure
from clawback.jobs import control, worker
from clawback.paths import Home
from clawback.records import Feedback, Turn
from clawback.runs import trigger


def playing(popen: Callable[..., object]) -> SimpleNamespace:
    """subprocess for the module that starts runs alone: whatever else starts processes does so."""
    return SimpleNamespace(**{**vars(subprocess), "Popen": popen})


def alive() -> SimpleNamespace:
    """A process that goes on."""
    return SimpleNamespace(pid=os.getpid())


@pytest.mark.parametrize(
    ("hours", "moment", "inside"),
    [
        ("22:00-07:00", time(23, 0), True),
        ("22:00-07:00", time(6, 59), True),
        ("22:00-07:00", time(7, 0), False),
        ("22:00-07:00", time(12, 0), False),
        ("09:00-17:00", time(9, 0), True),
        ("09:00-17:00", time(17, 0), False),
    ],
)
def test_quiet_hours_may_go_over_midnight(hours: str, moment: time, inside: bool) -> None:
    assert due.within(hours, moment) is inside


@given(st.times(), st.times(), st.times())
def test_each_moment_is_in_a_window_or_in_the_rest_of_the_day(start: time, end: time, moment: time) -> None:
    if start != end:
        window, rest = f"{start.isoformat()}-{end.isoformat()}", f"{end.isoformat()}-{start.isoformat()}"
        assert due.within(window, moment) != due.within(rest, moment)


@pytest.mark.parametrize("wrong", ["night", "25:00-26:00", "22:00", "a-b-c"])
def test_hours_that_are_none_are_named(wrong: str) -> None:
    with pytest.raises(ConfigError, match="quiet_hours"):
        due.within(wrong, time(1))


def test_what_keeps_a_run_from_starting_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 1, 1, 23, 0)
    quiet = config.Config(schedule=config.ScheduleSection(quiet_hours="22:00-07:00"))
    assert "quiet hours" in due.not_now(quiet, None, now)
    assert due.not_now(quiet, None, datetime(2026, 1, 1, 12, 0)) == ""
    assert "failed less than 15 minutes ago" in due.not_now(
        config.Config(), Failure(now.timestamp() - 60, ""), now
    )
    assert due.not_now(config.Config(), Failure(now.timestamp() - 16 * 60, ""), now) == ""
    idle = config.Config(schedule=config.ScheduleSection(only_when_idle=True))
    monkeypatch.setattr(due, "load_per_core", lambda: 0.9)
    assert "busy" in due.not_now(idle, None, now)
    monkeypatch.setattr(due, "load_per_core", lambda: 0.1)
    assert due.not_now(idle, None, now) == ""


def test_a_run_is_due_at_the_threshold_and_one_at_a_time(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.config.write_text("[training]\nthreshold = 3\n")
    started: list[list[str]] = []
    monkeypatch.setattr(
        trigger, "subprocess", playing(lambda command, **_: started.append(command) or alive())
    )
    with store.connect(home.database) as db:
        for number in range(3):
            assert control.maybe_train(home) is False
            turn = db.add_turn(Turn(session="s", messages=(), response=str(number)))
            db.add_feedback(Feedback(turn.id, "rating", 1.0))
    with FileLock(home.train_lock):
        assert control.maybe_train(home) is False, "one is at it already"
    assert control.maybe_train(home) is True
    assert len(started) == 1
    home.config.write_text("[training]\nthreshold = 3\nbackground = false\n")
    assert control.maybe_train(home) is False


def test_a_training_process_inherits_no_keys(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setattr(trigger, "subprocess", playing(lambda _, **options: seen.update(options) or alive()))
    assert control.start(home)
    assert "SOME_API_KEY" not in seen["env"]
    assert seen["env"]["CLAWBACK_HOME"] == str(home.root)
    assert seen["start_new_session"] is True


def test_a_process_that_fails_before_there_is_a_run_is_not_started_again_at_once(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home.config.write_text('[training]\nthreshold = 1\n[model]\nbase = "/nowhere/model"\n')
    with store.connect(home.database) as db:
        for value in (1.0, 1.0, -1.0, -1.0):
            turn = db.add_turn(
                Turn(session="s", messages=({"role": "user", "content": "Hi"},), response="Hello")
            )
            db.add_feedback(Feedback(turn.id, "rating", value))
    started: list[list[str]] = []
    monkeypatch.setattr(
        trigger, "subprocess", playing(lambda command, **_: started.append(command) or alive())
    )
    monkeypatch.setattr(worker.os, "nice", lambda _: 0)
    assert control.maybe_train(home) is True
    assert worker.main(started[0][3:]) == 1
    assert "/nowhere/model" in capsys.readouterr().out
    assert control.maybe_train(home) is False, "it has just failed"
    with store.connect(home.database) as db:
        assert "The last training run failed" in command.status(db)
        assert "/nowhere/model" in command.status(db)
        failed = db.get(due.FAILED)
        assert "/nowhere/model" in failed["why"]
        db.set(due.FAILED, failed | {"at": failed["at"] - 16 * 60})
        with db._write() as raw:
            raw.execute("UPDATE runs SET finished_at = finished_at - 16 * 60")
    assert any("/nowhere/model" in finding["what"] for finding in health.check(home) if not finding["ok"])
    assert control.maybe_train(home) is True, "a quarter of an hour later it is tried again"
    assert len(started) == 2


def test_a_run_in_the_background_gets_the_key_of_its_trainer_and_no_other(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, str] = {}

    def popen(command: list[str], **how: object) -> SimpleNamespace:
        given.update(how["env"])  # type: ignore[call-overload]
        return SimpleNamespace(pid=2**22 + 1)  # it ended at once

    monkeypatch.setattr(trigger, "subprocess", playing(popen))
    for name in ("TINKER_API_KEY", "FIREWORKS_API_KEY", "OTHER_API_KEY"):
        monkeypatch.setenv(name, f"the {name}")
    for provider, wanted in (("tinker", "TINKER_API_KEY"), ("fireworks", "FIREWORKS_API_KEY")):
        given.clear()
        home.config.write_text(f'[hosted]\nurl = "https://trainer.example"\nprovider = "{provider}"\n')
        control.start(home)
        assert {name for name in given if name.endswith("_API_KEY")} == {wanted}
    home.config.write_text("")
    given.clear()
    control.start(home)
    assert not any(name.endswith("_API_KEY") for name in given)


def test_a_run_that_the_budget_refuses_is_not_said_to_start(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether a run fits is known only to the process that measures it: what it found is in the next answer to `status`."""
    config.save(home.config, {"capture": {"admin": ["train"]}, "training": {"budget": "1s"}})
    with store.connect(home.database) as db:
        for number in range(8):
            asked = ({"role": "user", "content": f"Tell me about {number}."},)
            turn = db.add_turn(Turn("s", asked, "It is a number. " * 20))
            db.add_feedback(Feedback(turn.id, "rating", 1.0 if number % 2 else -1.0))
    started: list[list[str]] = []
    monkeypatch.setattr(
        trigger, "subprocess", playing(lambda command, **_: started.append(command) or alive())
    )
    monkeypatch.setattr(worker.os, "nice", lambda _: 0)
    said = str(remote_commands.order(home, "claude-code", "/rl train"))
    assert ("starts" in said, "being prepared" in said) == (False, True)
    with store.connect(home.database) as db:
        assert [run.state for run in db.runs()] == ["preparing"], (
            "it is there before its process has loaded anything"
        )
    assert worker.main(started[0][3:]) == 1
    capsys.readouterr()
    with store.connect(home.database) as db:
        assert "1 s" in command.status(db)
        [run] = db.runs()
        assert (run.state, run.begun) == ("failed", False)
        assert "1 s" in run.error
    assert main(["status"]) == 0
    assert "Failed" in capsys.readouterr().out


def test_answers_that_come_while_a_version_is_judged_are_judged_too(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They could start no process themselves, for one was running."""
    verdicts = iter(["undecided", "accepted"])

    def judge_waiting(_: Home) -> SimpleNamespace | None:
        summary = next(verdicts, None)
        if summary is None:
            with store.connect(home.database) as db:
                assert due.claim_start(db), "whoever answers after the last look may start a process"
            return None
        return SimpleNamespace(summary=lambda: summary)

    monkeypatch.setattr("clawback.jobs.training_job.judge_waiting", judge_waiting)
    with store.connect(home.database) as db:
        assert due.claim_start(db)
    assert worker.judge(home) == "accepted"
