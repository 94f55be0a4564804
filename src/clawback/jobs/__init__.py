"""Jobs: when, where and how runs and other long tasks happen. Importing it is cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import faces

if TYPE_CHECKING:
    from clawback.jobs.background import begun, maybe_train, start
    from clawback.jobs.control import resumable, stop
    from clawback.jobs.preflight import startable
    from clawback.jobs.training_job import RunResult, judge_waiting, train_once
else:
    __all__, __getattr__ = faces.face(
        __name__,
        {
            "background": "begun maybe_train start",
            "control": "resumable stop",
            "preflight": "startable",
            "training_job": "RunResult judge_waiting train_once",
        },
    )
