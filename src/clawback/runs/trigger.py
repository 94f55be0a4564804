"""Starts a training run: when it is due, or because a person asks for it. One at a time."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from clawback.runs import process

if TYPE_CHECKING:
    from clawback.paths import Home
    from clawback.store import Store

WORKER = "clawback.jobs.worker"


def start_if_due(home: Home, store: Store) -> bool:
    """Start a run if there are enough fresh ratings, it may start now and none has been started; whether it was started.

    Cheap where nothing is due: one read and one count.
    """
    from clawback.feedback.due import claim_start, last_failure, not_now, training_due

    if not training_due(store, home):
        return False
    from clawback import config

    settings = config.load(home.config)
    if not_now(settings, last_failure(store)) or under_way(home) or not claim_start(store):
        return False
    start(home, if_due=True)
    return True


def start(
    home: Home,
    *,
    algorithm: str | None = None,
    preset: str | None = None,
    seed: int | None = None,
    resume: int | None = None,
    anyway: bool = False,
    if_due: bool = False,
) -> subprocess.Popen[bytes] | None:
    """Start a detached process that trains once (niced, with its own log); None if another one is training.

    Arguments override the settings for this run; ``resume`` names a stopped run to continue. ``anyway``: also where there is little to gain.
    ``if_due``: the process does only what is due.
    """
    if under_way(home):
        return None
    from clawback import config

    overrides = {
        "algorithm": algorithm,
        "preset": preset,
        "seed": seed,
        "resume": resume,
        "anyway": 1 if anyway else None,
    }
    arguments = [str(home.root)] + [
        f"--{name}={value}" for name, value in overrides.items() if value is not None
    ]
    arguments += ["--if-due"] if if_due else []
    return process.start(home, WORKER, arguments, process.key_variables(config.load(home.config)))


def under_way(home: Home) -> bool:
    """Whether a live process holds the training lock (one that died has let go of it)."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(home.train_lock, timeout=0):
            return False
    except Timeout:
        return True
