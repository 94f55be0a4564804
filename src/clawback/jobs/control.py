"""Stopping a run of this or another process, and finding the run that can be resumed."""

from __future__ import annotations

import time

from clawback import store
from clawback.errors import NotFound, UsageError
from clawback.jobs.background import under_way
from clawback.jobs.run_job import plays
from clawback.paths import Home
from clawback.records import Run


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
