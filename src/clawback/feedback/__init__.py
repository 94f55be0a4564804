"""What was said about a turn becomes a reward."""

from clawback.feedback.aggregate import reward, samples
from clawback.feedback.balance import Balance, balance, training_due
from clawback.feedback.give import critique, edit, prefer, rate, score, undo
from clawback.feedback.implicit import notice
from clawback.feedback.split import split

__all__ = [
    "Balance",
    "balance",
    "critique",
    "edit",
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
