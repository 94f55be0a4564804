"""Jobs: when, where and how runs and other long tasks happen. Importing it is cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import plugins

if TYPE_CHECKING:
    from clawback.jobs.control import begun, maybe_train, resumable, start, stop
    from clawback.jobs.inputs import startable
    from clawback.jobs.training_job import RunResult, judge_waiting, train_once
else:
    __all__, __getattr__ = plugins.face(
        __name__,
        {
            "control": "begun maybe_train start resumable stop",
            "inputs": "startable",
            "training_job": "RunResult judge_waiting train_once",
        },
    )
