"""Keeps track of folders that were converted from GGUF files. No torch: ``torch/models/gguf.py`` does the conversion."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.models.local_models import GgufSource

if TYPE_CHECKING:
    from clawback.records import JsonObject

CARD = "gguf.json"
"""In a converted folder: the file it was made from."""
FORMAT = 1
"""Goes up when a conversion would come out differently; older folders are then made again."""


def conversion_of(models: Path, name: str) -> tuple[Path, str] | None:
    """What was once made of a file that is no longer there, by the name of its model: (folder, the file's identity)."""
    for folder, card in _cards(models):
        if card.get("name") == name:
            return folder, str(card["identity"])
    return None


def _cards(models: Path) -> Iterator[tuple[Path, JsonObject]]:
    """Converted folders, newest first, with what they were made of."""
    found = sorted(models.glob(f"*/{CARD}"), key=lambda path: -path.stat().st_mtime)
    for path in found:
        if path.parent.name.startswith("."):
            continue
        with contextlib.suppress(OSError, ValueError):
            card = json.loads(path.read_text("utf-8"))
            if card.get("format") == FORMAT:
                yield path.parent, card


def stamp(source: GgufSource) -> JsonObject:
    """What tells without reading it whether a file is the one that was converted, and how it is to be run."""
    stat = source.path.stat()
    return {
        "name": source.name,
        "file": str(source.path),
        "bytes": stat.st_size,
        "modified": stat.st_mtime_ns,
        "sampling": dict(source.sampling),
        "stop": list(source.stop),
    }


def converted_before(models: Path, source: GgufSource) -> tuple[Path, str] | None:
    """What was made of this very file: (folder, the file's identity)."""
    wanted = stamp(source)
    for folder, card in _cards(models):
        if card.get("source") == wanted:
            return folder, str(card["identity"])
    return None
