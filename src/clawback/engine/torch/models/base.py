"""The base model of a version: which of its weights training may change, and whether a folder was made for it."""

from __future__ import annotations

import json
from pathlib import Path

from clawback.engine.types import ModelInfo
from clawback.errors import ModelError

STAMP = "clawback.json"
"""Beside a version's weights: the base that they belong to."""
ROUTERS = frozenset({"gate", "router", "shared_expert_gate", "mlp_router"})
"""Layers that choose experts; they stay as they are."""


def in_layer(name: str) -> bool:
    """A module inside the numbered layers of the decoder: some part of its name is a number."""
    return any(part.isdigit() for part in name.split(".")) and "vision" not in name and "audio" not in name


def check_base(folder: Path, info: ModelInfo) -> None:
    """An adapter of ours says which base it belongs to. One from elsewhere is judged by its shapes alone."""
    try:
        stamp = json.loads((folder / STAMP).read_text("utf-8"))
        base, revision = str(stamp["base"]), str(stamp["base_revision"])
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(
            f"The adapter {folder} is damaged: {STAMP} cannot be read. Roll back to another version."
        ) from error
    if revision != info.revision:
        raise ModelError(
            f"The adapter {folder} was made for {base} ({_short(revision)}), not for {info.base} "
            f"({_short(info.revision)}). Load it on the base it was made for."
        )


def _short(revision: str) -> str:
    return revision.removeprefix("sha256:")[:12]
