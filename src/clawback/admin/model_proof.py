"""Whether the model of the settings works on this machine: tried once, and remembered until its files or the libraries change."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from clawback import config, files
from clawback.errors import ClawbackError, NotFound
from clawback.models import conversion_of, converted_before, identity, local_models, model_files
from clawback.paths import Home

if TYPE_CHECKING:
    from clawback.admin.proof import Proof
    from clawback.records import JsonObject

MOST_KEPT = 64
LIBRARIES = ("clawback", "torch", "transformers")


def record(home: Home) -> Path:
    """The file of what was tried."""
    return home.models / "proofs.json"


def can_be_tried() -> bool:
    """Whether the parts are installed that loading a model needs."""
    return all(importlib.util.find_spec(part) for part in ("torch", "transformers", "peft"))


def folder_of(home: Home, base: str, revision: str | None) -> Path | None:
    """Where the files of a base are; None where they are not on this machine yet, or are not converted."""
    try:
        source = local_models.source(base)
    except NotFound:
        converted = conversion_of(home.models, base)
        return converted[0] if converted else None
    if source is not None:
        converted = converted_before(home.models, source)
        return converted[0] if converted else None
    folder = Path(base).expanduser()
    if folder.is_dir():
        return folder
    commit = revision or model_files.commit(base)
    snapshot = model_files.snapshot(base, commit) if commit else folder
    return (
        snapshot if identity.weight_files(snapshot) else None
    )  # what is not there yet is not fetched for this


def prove(home: Home, base: str, model: config.ModelSection) -> Proof | None:
    """Try a base, unless these very files were tried before. None for ``embedded``, and where it is not on this machine.

    Raises ``ModelError`` for a model that does not work here, ``TrainingError`` for one that does not fit into memory.
    """
    if base == config.EMBEDDED or not can_be_tried():
        return None
    revision = model.revision if base == model.base else None
    if (folder := folder_of(home, base, revision)) is None:
        return None
    from clawback.admin.proof import Proof, prove

    key = _key(base, folder, model)
    tried = _read(record(home))
    if key in tried:
        with suppress(TypeError):  # written by another release
            return Proof(**tried[key])
    result = prove(
        base,
        revision,
        model.chat_template_args,
        dtype=model.dtype,
        load_in_4bit=model.load_in_4bit,
        device=model.load_device,
    )
    newest = dict(list((tried | {key: asdict(result)}).items())[-MOST_KEPT:])
    with suppress(OSError):  # it is tried again then
        record(home).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.replace(record(home), (json.dumps(newest, indent=1) + "\n").encode())
    return result


def proven(home: Home, base: str, model: config.ModelSection) -> bool | None:
    """Whether these files were tried and worked; None where there is nothing to try. Loads nothing."""
    if base == config.EMBEDDED or (folder := folder_of(home, base, model.revision)) is None:
        return None
    return _key(base, folder, model) in _read(record(home))


def _read(path: Path) -> JsonObject:
    with suppress(OSError, ValueError):
        held = json.loads(path.read_text("utf-8"))
        return held if isinstance(held, dict) else {}
    return {}


def _key(base: str, folder: Path, model: config.ModelSection) -> str:
    parts = [base, str(model.dtype), str(model.load_in_4bit), str(model.load_device), *_libraries()]
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        stat = path.stat()
        parts.append(f"{path.name} {stat.st_size} {stat.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _libraries() -> Iterator[str]:
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            yield f"{name} {version(name)}"


def problem(home: Home, base: str, model: config.ModelSection) -> str:
    """Why a base does not work here, in a sentence; "" where it does, or cannot be tried."""
    try:
        prove(home, base, model)
    except ClawbackError as error:
        return str(error)
    return ""
