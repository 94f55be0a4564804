"""The small model that ships with Clawback: its training text, its training, its weights, and the simulated people who rate it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import faces

if TYPE_CHECKING:
    from clawback.embedded import axes, corpus, facts, tastes

    __all__ = ["axes", "corpus", "facts", "info", "path", "tastes"]
else:
    # The weights alone are needed to answer and to learn.
    names, __getattr__ = faces.face(__name__, {n: n for n in ("axes", "corpus", "facts", "tastes")})
    __all__ = sorted([*names, "info", "path"])


def path() -> Path:
    """The folder with the shipped weights, a plain Hugging Face model."""
    return Path(__file__).with_name("weights")


def info() -> dict[str, Any]:
    """What the model is and how it was made: the content of its ``provenance.json``."""
    data: dict[str, Any] = json.loads((path() / "provenance.json").read_text("utf-8"))
    return data
