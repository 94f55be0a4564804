"""The small model that ships with Clawback: its training text, its training, its weights, and the simulated people who rate it."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clawback.embedded import axes, corpus, facts, tastes

__all__ = ["axes", "corpus", "facts", "info", "path", "tastes"]


def __getattr__(name: str) -> Any:
    if name in ("axes", "corpus", "facts", "tastes"):  # the weights alone are needed to answer and to learn
        return import_module(f"clawback.embedded.{name}")
    raise AttributeError(f"module 'clawback.embedded' has no attribute {name!r}")


def path() -> Path:
    """The folder with the shipped weights, a plain Hugging Face model."""
    return Path(__file__).with_name("weights")


def info() -> dict[str, Any]:
    """What the model is and how it was made: the content of its ``provenance.json``."""
    data: dict[str, Any] = json.loads((path() / "provenance.json").read_text("utf-8"))
    return data
