"""Checkpoints, each in one file: written to a temporary file, fsynced and renamed, so a crash leaves the new one or the one before."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import torch

from clawback.files import sync

State = dict[str, Any]
"""What a checkpoint holds, by name."""


def write(path: Path, state: State) -> None:
    """``state`` holds tensors, numbers, strings, lists and dicts only, so that it can be read without running code."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync(path.parent)


def read(path: Path | None, fingerprint: str) -> State | None:
    """The state of a run of this fingerprint, or None: no file, another run's, or one that cannot be read.

    Raises nothing: a run that starts again from its beginning ends in the same bits.
    """
    if path is None or not path.is_file():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError):
        return None
    return state if isinstance(state, dict) and state.get("fingerprint") == fingerprint else None
