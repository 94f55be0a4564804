"""Feedback on turns and how it becomes a reward.

Each name is imported when it is first used: hooks and rating commands need few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clawback.feedback.calibrate import Reliability, hints_of
    from clawback.feedback.due import Balance, balance, training_due
    from clawback.feedback.give import critique, edit, prefer, rate, score, tie, undo
    from clawback.feedback.implicit import notice
    from clawback.feedback.turn_reward import (
        SampleQuery,
        evidence,
        judges,
        kept_out,
        rater_weights,
        reward,
        samples,
        split,
    )

_WHERE = {
    **dict.fromkeys(
        ("SampleQuery", "evidence", "judges", "kept_out", "rater_weights", "reward", "samples", "split"),
        "turn_reward",
    ),
    **dict.fromkeys(("Reliability", "hints_of"), "calibrate"),
    **dict.fromkeys(("critique", "edit", "prefer", "rate", "score", "tie", "undo"), "give"),
    "notice": "implicit",
    **dict.fromkeys(("Balance", "balance", "training_due"), "due"),
}

__all__ = [
    "Balance",
    "Reliability",
    "SampleQuery",
    "balance",
    "critique",
    "edit",
    "evidence",
    "hints_of",
    "judges",
    "kept_out",
    "notice",
    "prefer",
    "rate",
    "rater_weights",
    "reward",
    "samples",
    "score",
    "split",
    "tie",
    "training_due",
    "undo",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _WHERE:
        raise AttributeError(f"module 'clawback.feedback' has no attribute {name!r}")
    return getattr(import_module(f"clawback.feedback.{_WHERE[name]}"), name)
