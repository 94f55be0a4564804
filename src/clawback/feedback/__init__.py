"""What was said about a turn becomes a reward. What is not needed for a tap is imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clawback.feedback.aggregate import evidence, judges, reward, samples
from clawback.feedback.balance import Balance, balance, training_due
from clawback.feedback.give import critique, edit, prefer, rate, score, undo
from clawback.feedback.implicit import notice
from clawback.feedback.split import split

if TYPE_CHECKING:
    from clawback.feedback.ask import Belief, Question, most_informative
    from clawback.feedback.calibrate import Reliability
    from clawback.feedback.curriculum import easy_first
    from clawback.feedback.hints import hints_of

_WHERE = {
    **dict.fromkeys(("Belief", "Question", "most_informative"), "ask"),
    "Reliability": "calibrate",
    "easy_first": "curriculum",
    "hints_of": "hints",
}

__all__ = [
    "Balance",
    "Belief",
    "Question",
    "Reliability",
    "balance",
    "critique",
    "easy_first",
    "edit",
    "evidence",
    "hints_of",
    "judges",
    "most_informative",
    "notice",
    "prefer",
    "rate",
    "reward",
    "samples",
    "score",
    "split",
    "training_due",
    "undo",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'clawback.feedback' has no attribute {name!r}")
    return getattr(import_module(f"clawback.feedback.{_WHERE[name]}"), name)
