"""Jobs: when, where and how runs and other long tasks happen."""

from clawback.jobs.background import begun, maybe_train, start
from clawback.jobs.control import resumable, stop
from clawback.jobs.preflight import startable
from clawback.jobs.training_job import RunResult, judge_waiting, train_once

__all__ = [
    "RunResult",
    "begun",
    "judge_waiting",
    "maybe_train",
    "resumable",
    "start",
    "startable",
    "stop",
    "train_once",
]
