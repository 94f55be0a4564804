"""Versions: proposed, put live, tried and rolled back. Whether one is better the room ``clawback.gate`` decides."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clawback.release import prompted
from clawback.release.version_registry import (
    check,
    clear_strays,
    heal,
    held_replies,
    load,
    promote,
    propose,
    reset,
    rollback,
    sentence_of,
)

if TYPE_CHECKING:
    from clawback.release import best_of, trial

__all__ = [
    "best_of",
    "check",
    "clear_strays",
    "heal",
    "held_replies",
    "load",
    "promote",
    "prompted",
    "propose",
    "reset",
    "rollback",
    "sentence_of",
    "trial",
]

_MOVED = {"Report": "clawback.gate.report", "gate": "clawback.gate.adapter_gate"}
"""Names that other programs know from here, and where they are now."""


def __getattr__(name: str) -> Any:
    if name in ("best_of", "trial"):  # a run holds neither
        return import_module(f"clawback.release.{name}")
    if name not in _MOVED:
        raise AttributeError(f"module 'clawback.release' has no attribute {name!r}")
    return getattr(import_module(_MOVED[name]), name)
