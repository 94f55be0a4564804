"""Runs that start automatically in the background: when they may start, and the process that makes them.

Nothing of torch is imported here: this is called after every rating.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from clawback import config, store
from clawback.errors import Busy, TrainingError
from clawback.feedback.due import FAILED, last_failure, not_now, training_due
from clawback.paths import Home
from clawback.records import Run
from clawback.release import following

KEPT_VARIABLES = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_OFFLINE", "HF_ENDPOINT",
    "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PYTHONPATH", "VIRTUAL_ENV",
)  # fmt: skip
"""A training process gets these and no other (but for the keys of a judge and a trainer elsewhere, where there is one): an agent's environment is
full of keys that are none of its business."""


BEGIN_SECONDS = 60.0
"""How long a command waits for a background process to begin its run: loading a model and measuring the machine take some of it."""
POLL_SECONDS = 0.1


def maybe_train(home: Home) -> bool:
    """Start a run in the background if one is due and may start now; says whether it was started."""
    settings = config.load(home.config)
    with store.connect(home.database) as db:
        following.retry(db, home, settings)
        if not training_due(db, home) or not_now(settings, last_failure(db)):
            return False
    return start(home, if_due=True) is not None


def start(
    home: Home,
    *,
    algorithm: str | None = None,
    preset: str | None = None,
    seed: int | None = None,
    resume: int | None = None,
    if_due: bool = False,
) -> subprocess.Popen[bytes] | None:
    """Start a detached process that trains once (niced, with its own log); None if another one is training.

    What is given counts for this run instead of the settings; ``resume`` names a stopped run to go on with. ``if_due``: it does only what
    is due.
    """
    if under_way(home):
        return None
    given = {"algorithm": algorithm, "preset": preset, "seed": seed, "resume": resume}
    settings = config.load(home.config)
    kept = set(KEPT_VARIABLES)
    if settings.judge.enabled:
        kept.add(settings.judge.key_env)
    if settings.hosted.url:
        from clawback.jobs import elsewhere

        kept.add(elsewhere.key_env(settings))
    asked = [f"--{name}={value}" for name, value in given.items() if value is not None]
    asked += ["--if-due"] if if_due else []
    return subprocess.Popen(
        [sys.executable, "-m", "clawback.jobs.worker", str(home.root), *asked],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=home.root,
        env={k: v for k, v in os.environ.items() if k in kept} | {"CLAWBACK_HOME": str(home.root)},
        start_new_session=True,
    )


def begun(home: Home, process: subprocess.Popen[bytes], seconds: float = BEGIN_SECONDS) -> Run | None:
    """Wait until a process that ``start`` made has entered its run, and return the run; None if it is still preparing after ``seconds``.

    Raises ``TrainingError`` with the reason if the process failed before there was a run, ``Busy`` if it found another one training.
    """
    since = time.time()
    while True:
        ended = (
            process.poll() is not None
        )  # asked first: a process that ends in between has entered all it had to
        with store.connect(home.database) as db:
            run = next((r for r in db.runs(limit=3, ids=False) if r.pid == process.pid), None)
            failed = db.get(FAILED)
        if run is not None and run.status == "failed":
            raise TrainingError(f"Run {run.id} failed: {run.error}")
        if run is not None:
            return run
        if ended and process.returncode and failed is not None:
            raise TrainingError(failed["why"])
        if ended:
            raise Busy(f"No run was begun; the last lines of {home.logs / 'train.log'} say why.")
        if time.time() - since > seconds:
            return None
        time.sleep(POLL_SECONDS)


def under_way(home: Home) -> bool:
    """Whether a live process holds the training lock (one that died has let go of it)."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(home.train_lock, timeout=0):
            return False
    except Timeout:
        return True


def stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S")
