"""GGUF files that other programs and people keep in the usual folders. Only names are read here; nothing is opened."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from clawback.models import hub_cache

DEPTH = 4
"""Folders below one of the usual ones that are looked into."""
DOWNLOADS_DEPTH = 1
MOST_ENTRIES = 20_000
"""Names that are read of one usual folder: somebody may keep everything in it."""
_PART = re.compile(r"-(\d{5})-of-\d{5}\.gguf$", re.IGNORECASE)


def folders() -> list[tuple[Path, int]]:
    """Where GGUF files usually are, and how deep to look: llama.cpp, the hub cache, GPT4All, Jan, people's own folders."""
    person = Path.home()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or person / ".cache")
    data = Path(os.environ.get("XDG_DATA_HOME") or person / ".local" / "share")
    mac = person / "Library"
    named = os.environ.get("LLAMA_CACHE")
    llama = [Path(named).expanduser()] if named else [cache / "llama.cpp", mac / "Caches" / "llama.cpp"]
    others = [
        hub_cache.hub_folder(),
        data / "nomic.ai" / "GPT4All",
        mac / "Application Support" / "nomic.ai" / "GPT4All",
        cache / "gpt4all",
        data / "Jan" / "data",
        mac / "Application Support" / "Jan" / "data",
        person / "jan",
        person / "models",
        person / "Models",
    ]
    return [(path, DEPTH) for path in (*llama, *others)] + [(person / "Downloads", DOWNLOADS_DEPTH)]


def find() -> list[Path]:
    """GGUF files by absolute path, each file once: no projectors, and of a file in parts the first."""
    by_file: dict[Path, Path] = {}
    for folder, depth in folders():
        for path in _gguf_files(folder, depth):
            by_file.setdefault(path.resolve(), path)
    return sorted(by_file.values())


def _gguf_files(folder: Path, depth: int) -> Iterator[Path]:
    waiting, entries = [(str(folder), 0)], 0
    while waiting and entries < MOST_ENTRIES:
        place, level = waiting.pop()
        try:
            content = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError:  # not there, or only its owner may read it
            continue
        entries += len(content)
        for entry in content:
            name = entry.name.lower()
            if name.endswith(".gguf") and entry.is_file():
                part = _PART.search(name)
                if not name.startswith("mmproj") and (part is None or part[1] == "00001"):
                    yield Path(entry.path)
            elif level < depth and not name.startswith(".") and entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, level + 1))
