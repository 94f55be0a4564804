"""Background runs as commands see them: starts one that is due, finds the one that can be resumed, stops one.

This is called after every rating, so it imports nothing of torch.
"""

from __future__ import annotations

import subprocess
import time

from clawback import config, store
from clawback.errors import Busy, NotFound, NothingToGain, TrainingError, UsageError
from clawback.feedback.due import FAILED, no_gain
from clawback.jobs.run_job import plays
from clawback.paths import Home
from clawback.progress import OnProgress
from clawback.records import Run
from clawback.release import following
from clawback.runs.trigger import start, start_if_due, under_way

__all__ = ["begun", "maybe_train", "stamp", "start", "under_way"]

BEGIN_SECONDS = 60.0
"""How long a command waits for a background process to begin its run: loading a model and measuring the machine take some of it."""
POLL_SECONDS = 0.1


def maybe_train(home: Home) -> bool:
    """Start a run in the background if one is due and may start now; says whether it was started."""
    with store.connect(home.database) as db:
        following.retry(db, home, config.load(home.config))
        return start_if_due(home, db)


def begun(
    home: Home,
    process: subprocess.Popen[bytes],
    seconds: float = BEGIN_SECONDS,
    on_progress: OnProgress | None = None,
) -> Run | None:
    """Wait until a process that ``start`` made has begun its run, and return the run; None if it is still preparing it after ``seconds``.

    Raises ``TrainingError`` with the reason if the process failed before there was a run, ``Busy`` if it found another one training.
    """
    since = time.time()
    while True:
        ended = (
            process.poll() is not None
        )  # asked first: a process that ends in between has entered all it had to
        with store.connect(home.database) as db:
            run = next((r for r in db.runs(limit=3, ids=False) if r.pid == process.pid), None)
            failed, skipped = db.get(FAILED), no_gain(db)
        if run is not None and run.status == "failed":
            raise TrainingError(f"Run {run.id} failed: {run.error}" if run.begun else run.error)
        if run is not None and run.status != "preparing":
            return run
        if run is not None and on_progress:
            on_progress(run.progress)
        if ended and skipped and run is None:
            raise NothingToGain(f"{skipped['why']}. `clawback train --anyway` trains all the same.")
        if ended and process.returncode and failed is not None:
            raise TrainingError(failed["why"])
        if ended:
            raise Busy(f"No run was begun; the last lines of {home.logs / 'train.log'} say why.")
        if time.time() - since > seconds:
            return None
        time.sleep(POLL_SECONDS)


def stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S")


def stop(home: Home, number: int | None = None) -> Run:
    """Ask the run under way to stop after its step; one that nobody works on any more is stopped at once.

    The run as it is then: ``stopped``, or still ``running`` with its ``stop_at``. Raises ``NotFound`` where none is under way,
    ``UsageError`` for one that has ended.
    """
    with store.connect(home.database) as db:
        run = db.current_run() if number is None else db.run(number)
        if run is None:
            raise NotFound(
                "No run is under way, so there is nothing to stop. `clawback runs` lists what there was."
            )
        if run.status not in ("running", "preparing"):
            raise UsageError(f"Run {run.id} is {run.status} already, so there is nothing to stop.")
        db.update_run(run.id, stop_at=time.time())
        if run.status == "running" and not under_way(home):
            db.update_run(run.id, status="stopped")
        return db.run(run.id)


def resumable(home: Home, number: int | None = None) -> Run:
    """The run that ``resume`` continues: the newest, if it was stopped or its process died. Raises ``UsageError`` otherwise."""
    with store.connect(home.database) as db:
        newest = next(iter(db.runs(limit=1, ids=False)), None)
        run = newest if number is None else db.run(number)
    if run is None:
        raise NotFound("There is no run yet. `clawback train` begins one.")
    if plays(run):
        raise UsageError(f"Run {run.id} plays episodes: `clawback env train --resume {run.id}` continues it.")
    if run.status not in ("stopped", "running") or newest is None or run.id != newest.id:
        why = f"is {run.status}" if newest is None or run.id == newest.id else "is not the newest"
        raise UsageError(f"Run {run.id} {why}, so it cannot be resumed. `clawback train` begins a new one.")
    return run
