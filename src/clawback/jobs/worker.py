"""The background process: ``python -m clawback.jobs.worker HOME [--if-due] [--seed=N] …`` trains once, at low priority, and logs the result.

With ``--if-due`` it trains only if there is enough fresh feedback; if there is only enough to judge a version
that waits, it judges that version.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from pathlib import Path

from clawback import config, store
from clawback.errors import Busy, ClawbackError, NothingToGain, Stopped
from clawback.feedback.due import (
    FAILED,
    SCHEDULED,
    STARTED,
    enough_fresh,
    last_failure,
    not_now,
    scheduled_is_due,
    training_due,
)
from clawback.jobs.control import stamp
from clawback.paths import Home
from clawback.runs.run_options import RunOptions
from clawback.store import copies

MAX_LOG = 5_000_000


def main(arguments: list[str]) -> int:
    home = Home(Path(arguments[0]))
    os.environ["CLAWBACK_HOME"] = str(home.root)
    write_to_log(home)
    options = RunOptions.from_arguments(arguments[1:])
    run = options.prepared
    try:
        if options.if_due and (reason := waits(home)):
            return say(f"no run was started: {reason}")
        os.nice(config.load(home.config).schedule.nice)
        from clawback.jobs.training_job import train_once

        if options.if_due and not enough_to_train(home):
            return say(judge(home) or "no run was started: none is due")
        judge_first(home)
        outcome = train_once(home, options)
    except (Busy, NothingToGain, Stopped) as error:
        return say(str(error))
    except ClawbackError as error:
        return failed(home, str(error), run)
    except Exception as error:
        traceback.print_exc()
        return failed(home, f"{type(error).__name__}: {error}", run)
    finally:
        drop_preparation(home, run)
    with store.connect(home.database) as db:
        db.set(FAILED, None)
    with contextlib.suppress(ClawbackError), store.connect(home.database) as db:
        copies.copy_if_due(db, config.load(home.config).privacy.copies)
    return say(f"run {outcome.run.id}: {outcome.report.summary()}")


def judge(home: Home) -> str:
    """Judge the version that waits, once more for answers that came meanwhile; the last verdict in a line, "" where there was nothing to judge.

    Such answers could start no process of their own (``feedback.due.claim_start``), and after the last one nobody would look again.
    """
    from clawback.jobs.training_job import judge_waiting

    summary = ""
    while (report := judge_waiting(home)) is not None:
        summary = report.summary()
        with store.connect(home.database) as db:
            db.set(STARTED, 0.0)  # before the next look: who answers after it may start a process
    return summary


def judge_first(home: Home) -> None:
    """If a judge is configured, run a pass of it first, within its limits. A run does not fail because of it."""
    if config.load(home.config).judge.enabled:
        from clawback.jobs.judge_pass import judge_once

        try:
            say(f"judge: {judge_once(home).summary()}")
        except ClawbackError as error:
            say(f"judge: {error}")


def waits(home: Home) -> str:
    """Why no run should start now; "" when one should."""
    settings = config.load(home.config)
    with store.connect(home.database) as db:
        return "none is due" if not training_due(db, home) else not_now(settings, last_failure(db))


def enough_to_train(home: Home) -> bool:
    """Whether there is enough for a run; if not, a version that waits may still be judged."""
    threshold = config.load(home.config).training.threshold
    with store.connect(home.database) as db:
        # An interrupted run is resumed, whatever feedback there has been since.
        if scheduled_is_due(db):
            db.set(SCHEDULED, None)
            return True
        return db.active_run() is not None or enough_fresh(db, threshold)


def drop_preparation(home: Home, run: int | None) -> None:
    """Nothing was due, or another run came first: the run that was being prepared is none."""
    if run is not None:
        with contextlib.suppress(ClawbackError), store.connect(home.database) as db:
            db.drop_preparation(run)


def failed(home: Home, why: str, run: int | None = None) -> int:
    """Log it, and keep it for ``doctor`` and for the next attempt, which waits a while. ``run``: closed where it did not begin."""
    say(why)
    with contextlib.suppress(ClawbackError), store.connect(home.database) as db:
        if run is not None:
            db.end_preparation(run, why)
        db.set(FAILED, {"at": time.time(), "why": why})
        db.set(STARTED, 0.0)
    return 1


def say(line: str) -> int:
    print(stamp(), line, flush=True)
    return 0


def write_to_log(home: Home) -> None:
    """From here on all that is printed, by libraries too, goes to ``logs/train.log``; one older file is kept."""
    home.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = home.logs / "train.log"
    if log.exists() and log.stat().st_size > MAX_LOG:
        log.replace(log.with_suffix(".log.1"))
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
