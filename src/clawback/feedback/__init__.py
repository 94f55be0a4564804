"""What was said about a turn becomes a reward."""

from clawback.feedback.aggregate import evidence, judges, reward, samples
from clawback.feedback.balance import Balance, balance, training_due
from clawback.feedback.calibrate import Reliability
from clawback.feedback.give import critique, edit, prefer, rate, score, undo
from clawback.feedback.split import split

__all__ = [
    "Balance",
    "Reliability",
    "balance",
    "critique",
    "edit",
    "evidence",
    "judges",
    "prefer",
    "rate",
    "reward",
    "samples",
    "score",
    "split",
    "training_due",
    "undo",
]
