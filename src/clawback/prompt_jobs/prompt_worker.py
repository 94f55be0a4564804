"""The background process that refines a prompt, where ``[prompts] automatic`` allows it: ``python -m clawback.prompt_jobs.prompt_worker HOME``.

What is due follows from the store (``prompt_learning.phase``), so the process may die at any time and another one
continues.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

from clawback import config, store
from clawback.errors import ClawbackError
from clawback.jobs.worker import say, write_to_log
from clawback.paths import Home
from clawback.prompt_jobs import prompt_learning
from clawback.runs import trigger

FAILED = "prompts_failed"
"""Where the store keeps when a search last failed: every look would begin another that fails."""


def maybe_start(home: Home) -> bool:
    """Start a search, or the gate for a candidate that waits, in the background if one is due; says whether it was started."""
    settings = config.load(home.config)
    if not settings.prompts.automatic or not due(home, settings) or trigger.is_held(home.prompts_lock):
        return False
    trigger.start_process(
        home, "clawback.prompt_jobs.prompt_worker", [str(home.root)], keys=[settings.prompts.key_env]
    )
    return True


def due(home: Home, settings: config.Config) -> bool:
    """Whether there is something to do, and the last try did not just fail."""
    with store.connect(home.database) as db:
        failed = db.get(FAILED)
        if failed is not None and time.time() - failed < 60 * settings.schedule.retry_minutes:
            return False
        waits = db.waiting(prompts=True)
        if waits is not None:
            return db.count_gate_answers(waits[0]) >= waits[1]
    return prompt_learning.phase(home) == "refinement"


def main(arguments: list[str]) -> int:
    home = Home(Path(arguments[0]))
    os.environ["CLAWBACK_HOME"] = str(home.root)
    write_to_log(home)
    try:
        report = prompt_learning.judge_waiting(home)
        if report is None:
            result = prompt_learning.optimize(home)
            what = (
                f"version {result.version.number}: {result.version.status}"
                if result.version
                else "nothing better"
            )
            say(f"prompt: {what} ({result.calls} calls, {result.tokens} tokens)")
        else:
            say(f"prompt: {report.summary()}")
    except Exception as error:
        if not isinstance(error, ClawbackError):
            traceback.print_exc()
        with store.connect(home.database) as db:
            db.set(FAILED, time.time())
        return say(f"prompt: {error}") or 1
    with store.connect(home.database) as db:
        db.set(FAILED, None)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
