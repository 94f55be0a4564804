"""A run whose process was killed is not under way, wherever one looks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clawback import store
from clawback.admin import health
from clawback.cli import main
from clawback.extensions.agents import status_line
from clawback.feedback import command
from clawback.feedback.due import claim_start
from clawback.paths import Home
from clawback.records import Run
from clawback.serve import bodies

RUNS = """
import os, sys, time
from pathlib import Path
from clawback import store
from clawback.records import Run
with store.connect(Path(sys.argv[1])) as db:
    db.start_run(Run("embedded", "r", "reinforce", {}, 0, 0, pid=os.getpid(), progress={"phase": "train", "step": 3, "steps": 9}))
print("begun", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("reused", [False, True])
def test_a_killed_run_is_interrupted_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reused: bool
) -> None:
    home = Home(tmp_path)
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    with store.connect(home.database):
        pass
    with subprocess.Popen(
        [sys.executable, "-c", RUNS, str(home.database)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        with store.connect(home.database) as db:
            assert db.run(1).state == "running"
            assert "under way" in command.status(db)
            assert not claim_start(db)
        os.kill(process.pid, signal.SIGKILL)
    if reused:  # the number belongs to another process now
        with store.connect(home.database) as db:
            db._db.execute("UPDATE runs SET pid = ?", (os.getpid(),))
    with store.connect(home.database) as db:
        run = db.run(1)
        assert (run.status, run.state, run.interrupted) == ("running", "interrupted", True)
        assert "was interrupted" in command.status(db)
        assert claim_start(db)
    shown = bodies.run(run, 0)
    assert (shown["status"], shown["interrupted"]) == ("interrupted", True)
    assert any("was interrupted" in finding["what"] for finding in health._lock(home))
    assert "training" not in str(status_line._read(home))
    assert main(["runs"]) == 0
    said = capsys.readouterr().out
    assert "interrupted" in said
    assert "running" not in said
    assert "clawback train" in " ".join(said.split())
    assert main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["status"] == "interrupted"
    assert main(["status"]) == 0
    assert "interrupted" in capsys.readouterr().out
    assert main(["runs", "show", "1"]) == 0
    assert "interrupted" in capsys.readouterr().out


def test_a_run_that_another_process_goes_on_with_is_under_way(tmp_path: Path) -> None:
    with store.connect(tmp_path / "clawback.db") as db:
        db.start_run(Run("embedded", "r", "reinforce", {}, 0, 0, pid=2**22 + 1))
        assert db.run(1).interrupted
        db.update_run(1, pid=os.getpid())
        assert not db.run(1).interrupted
        db.update_run(1, status="done")
        assert db.run(1).state == "done"
