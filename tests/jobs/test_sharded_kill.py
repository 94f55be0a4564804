"""SIGKILL to a run whose base is in parts: its processes end with it, and `clawback runs resume` makes the adapter that it would have made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

from clawback import store
from clawback.paths import Home
from clawback.trainer.run import CHECKPOINT
from tests.conftest import rate_some

STEPS = 5
LEARNER = """
import os, signal, sys
from pathlib import Path
import psutil
from clawback import jobs
from clawback.trainer import training_loop
from clawback.paths import Home
training_loop.CHECKPOINT_SECONDS = 0.0
dies = int(sys.argv[2])
def tell(progress):
    if progress["phase"] == "train" and progress["step"] == dies:
        print(*[child.pid for child in psutil.Process().children(recursive=True)], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
jobs.train_once(Home(Path(sys.argv[1])), processes=2, shard=True, on_progress=tell)
"""
SETTINGS = f"""
[model]
dtype = "float32"
[training]
algorithm = "reinforce"
background = false
overrides = {{ steps = {STEPS}, rank = 4 }}
[generation]
max_tokens = 24
"""


def rated(folder: Path) -> Home:
    home = Home(folder)
    rate_some(home, 24)
    home.config.write_text(SETTINGS)
    return home


def learn(home: Home, dies: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LEARNER, str(home.root), str(dies)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_a_run_with_the_base_in_parts_that_is_killed_goes_on_to_the_same_adapter(tmp_path: Path) -> None:
    whole, killed = rated(tmp_path / "whole"), rated(tmp_path / "killed")
    assert learn(whole, 0).returncode == 0
    done = learn(killed, 3)
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    workers = [psutil.Process(int(pid)) for pid in done.stdout.split() if psutil.pid_exists(int(pid))]
    assert psutil.wait_procs(workers, timeout=60)[1] == [], "a process goes on without the run"

    assert len(list(killed.root.rglob(CHECKPOINT))) == 1

    resumed = subprocess.run(
        [sys.executable, "-m", "clawback", "runs", "resume"],
        env=os.environ | {"CLAWBACK_HOME": str(killed.root)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    with store.connect(killed.database) as db:
        runs = db.runs()
    assert [
        (run.status, run.recipe["conditions"]["processes"], run.recipe["conditions"]["shard"]) for run in runs
    ] == [("done", 2, True)]

    def adapter(home: Home) -> Path:
        with store.connect(home.database) as db:
            return Path(db.version(1).path) / "adapter_model.safetensors"

    one, other = load_file(adapter(whole)), load_file(adapter(killed))
    assert one.keys() == other.keys()
    assert max(float((one[name] - other[name]).abs().max()) for name in one) == 0.0
