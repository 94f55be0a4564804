"""A run that is being prepared: there from the first moment, and closed with a sentence by whatever ends its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clawback import store
from clawback.cli import main
from clawback.errors import UsageError
from clawback.extensions.agents import status_line
from clawback.feedback import command
from clawback.feedback.due import claim_start, last_failure
from clawback.jobs import control
from clawback.paths import Home
from clawback.records import Run

WISH = Run("embedded", "", "auto", {}, 0, 0, pid=os.getpid(), progress={"phase": "load", "model": "smollm2"})
INPUTS = Run("embedded", "r", "reinforce", {"steps": 2}, 7, 0, pid=os.getpid())


def test_a_prepared_run_begins_under_its_number(home: Home) -> None:
    with store.connect(home.database) as db:
        number = db.prepare_run(WISH).id
        assert (db.run(number).state, db.active_run()) == ("preparing", None)
        assert db.current_run() == db.run(number)
        begun = db.begin_run(number, INPUTS)
        assert (begun.id, begun.state, begun.algorithm, begun.seed) == (number, "running", "reinforce", 7)
        db.drop_preparation(number)
        db.end_preparation(number, "no")
        assert db.run(number).state == "running", (
            "what has begun is neither dropped nor closed as a preparation"
        )


@pytest.mark.parametrize("reused", [False, True])
def test_whatever_ends_the_process_closes_it_with_a_sentence(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reused: bool
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with store.connect(home.database) as db:
            number = db.prepare_run(WISH).id
            db.update_run(number, pid=process.pid)
            assert "is being prepared" in command.status(db)
            assert not claim_start(db)
        assert "preparing a run" in str(status_line._read(home))
        assert main(["status"]) == 0
        assert f"Preparing run {number}: loading smollm2" in capsys.readouterr().out
        assert main(["runs"]) == 0
        assert "preparing" in capsys.readouterr().out
        os.kill(process.pid, signal.SIGKILL)
    with store.connect(home.database) as db:
        if reused:  # the number belongs to another process now
            db._db.execute("UPDATE runs SET pid = ?", (os.getpid(),))
        run = db.run(number)
        assert (run.state, db.current_run()) == ("failed", None)
        assert run.finished_at is not None
        failure = last_failure(db)
        assert failure is not None
        assert "process ended while the run was being prepared" in failure.why
        assert claim_start(db)
        assert db.begin_run(number, INPUTS).state == "running"


def test_one_that_is_stopped_before_it_began_cannot_be_resumed(home: Home) -> None:
    with store.connect(home.database) as db:
        number = db.prepare_run(WISH).id
    assert control.stop(home).stop_at is not None
    with store.connect(home.database) as db:
        db.end_preparation(number, "It was stopped before it had begun.")
        assert (db.run(number).state, db.run(number).begun) == ("failed", False)
    with pytest.raises(UsageError, match="cannot be resumed"):
        control.resumable(home)


def test_what_was_refused_leaves_nothing(home: Home) -> None:
    with store.connect(home.database) as db:
        db.drop_preparation(db.prepare_run(WISH).id)
        assert db.runs() == []


def test_the_database_of_before_reads_as_it_did(tmp_path: Path) -> None:
    with store.connect(tmp_path / "clawback.db") as db:
        number = db.start_run(INPUTS).id
        db.update_run(number, status="failed", error="no memory")
        assert (db.run(number).state, db.run(number).error) == ("failed", "no memory")
