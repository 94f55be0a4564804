"""Waits for the moment of a scheduled run and starts it: ``python -m clawback.jobs.scheduled_worker HOME MOMENT [--seed=N …]`` (``runs.schedule``).

It looks at the clock again and again, for a machine that sleeps does not count the seconds, and at the store: what was taken back or replaced
ends it.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

from clawback import store
from clawback.errors import ClawbackError
from clawback.feedback.due import SCHEDULED
from clawback.jobs.control import stamp
from clawback.jobs.worker import write_to_log
from clawback.paths import Home
from clawback.runs import trigger
from clawback.runs.run_options import RunOptions

LOOK_SECONDS = 30.0


def main(arguments: list[str]) -> int:
    home, moment = Home(Path(arguments[0])), float(arguments[1])
    options = RunOptions.from_arguments(arguments[2:])
    write_to_log(home)
    while is_wanted(home, moment):
        left = moment - time.time()
        if left <= 0:
            started = begin(home, options)
            print(
                stamp(),
                "the scheduled run " + ("was started" if started else "found another one training"),
                flush=True,
            )
            return 0
        time.sleep(min(left, LOOK_SECONDS))
    return 0


def is_wanted(home: Home, moment: float) -> bool:
    """Whether this is the moment that the store names."""
    if not home.database.exists():
        return False
    with contextlib.suppress(ClawbackError), store.connect(home.database) as db:
        return bool(db.get(SCHEDULED) == moment)
    return True  # a database that is busy for a moment is looked at again


def begin(home: Home, options: RunOptions) -> bool:
    """Start the run; whether none was under way."""
    with store.connect(home.database) as db:
        db.set(SCHEDULED, None)
        return trigger.start(home, options, store=db) is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
