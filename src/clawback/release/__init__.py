"""Versions: proposed, judged by the gate, put live, and rolled back."""

from clawback.release import prompted, trial
from clawback.release.gating import Report, gate
from clawback.release.loading import load
from clawback.release.registry import (
    check,
    clear_strays,
    heal,
    promote,
    propose,
    reset,
    rollback,
    sentence_of,
)

__all__ = [
    "Report",
    "check",
    "clear_strays",
    "gate",
    "heal",
    "load",
    "promote",
    "prompted",
    "propose",
    "reset",
    "rollback",
    "sentence_of",
    "trial",
]
