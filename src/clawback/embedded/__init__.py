"""The small model that ships with Clawback: where its weights are, and how they were made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def path() -> Path:
    """The folder with the shipped weights, a plain Hugging Face model."""
    return Path(__file__).with_name("weights")


def info() -> dict[str, Any]:
    """What the model is and how it was made: the content of its ``provenance.json``."""
    data: dict[str, Any] = json.loads((path() / "provenance.json").read_text("utf-8"))
    return data
