"""Versions on disk and in the store. The row is the truth: a folder without a row is no version.

A version is written beside, synced, renamed to its number, and only then entered. Going live is one transaction.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.errors import ModelError, UsageError
from clawback.paths import Home
from clawback.records import Run, Version

if TYPE_CHECKING:
    from clawback.engine.types import TrainResult
    from clawback.store import Store

WEIGHTS = "adapter_model.safetensors"
PROVENANCE = "provenance.json"


def propose(store: Store, home: Home, run: Run, result: TrainResult) -> Version:
    """Make a candidate version of what a run wrote; the run's folder may go afterwards.

    Called again after a crash it finds the version that the run already has.
    """
    done = store.run(run.id)
    if done.version is not None:
        return store.version(done.version)
    clear_strays(store, home)
    number = store.next_version()
    provenance = provenance_of(run, result, number)
    beside = home.versions / f".{number:04d}.part"
    home.versions.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copytree(result.path, beside)
    (beside / PROVENANCE).write_text(json.dumps(provenance, indent=2) + "\n", "utf-8")
    (beside / "README.md").write_text(card(provenance), "utf-8")
    sync_folder(beside)
    folder = home.version(number)
    beside.rename(folder)
    sync(home.versions)
    version = Version(
        number, "candidate", run.base, run.base_revision, parent=run.parent, run_id=run.id, path=str(folder)
    )
    return store.add_candidate(version)


def clear_strays(store: Store, home: Home) -> list[Path]:
    """Remove folders that no row names: what a crash left between writing a version and entering it."""
    known = {Path(v.path).name for v in store.versions() if v.path}
    strays = [p for p in home.versions.glob("*") if p.name not in known] if home.versions.is_dir() else []
    for stray in strays:
        shutil.rmtree(stray, ignore_errors=True)
    return strays


def check(version: Version) -> None:
    """Raises ``ModelError`` when a version's files are gone or not what was written."""
    if not version.path:
        return
    folder = Path(version.path)
    try:
        wanted = json.loads((folder / PROVENANCE).read_text("utf-8"))["adapter_sha256"]
        found = file_hash(folder / WEIGHTS)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"Version {version.number} is incomplete ({folder}): {error}.") from error
    if wanted != found:
        raise ModelError(
            f"The weights of version {version.number} ({folder}) are not those that were trained: "
            "the file was changed or is damaged. `clawback rollback` goes to a version that is whole."
        )


def promote(store: Store, home: Home, number: int) -> Version:
    """Make a version live, after checking that its files are what was trained. Atomic."""
    del home  # the same call shape as its neighbours; publishers will need it
    version = store.version(number)
    if version.status == "rejected":
        raise UsageError(f"Version {number} was rejected by the gate. `clawback versions` says why.")
    check(version)
    return store.promote(number)


def rollback(store: Store, home: Home, number: int | None = None) -> Version:
    """Go back to a version (by default the one that was live before), the base model being 0.

    Versions whose files are damaged are passed over when none is named. Raises ``UsageError`` when there is nowhere to go.
    """
    live = store.live()
    if number is not None:
        if number == live.number:
            raise UsageError(f"Version {number} is live already.")
        return promote(store, home, number)
    retired = [v for v in store.versions() if v.status == "retired" and v.number < live.number]
    for version in reversed(retired):
        try:
            return promote(store, home, version.number)
        except ModelError:
            continue
    raise UsageError("There is no older version to go back to: the base model is live.")


def heal(store: Store, home: Home) -> Version | None:
    """When the live version cannot be used, go back to the newest whole one and return it; None when all is well."""
    try:
        check(store.live())
    except ModelError:
        return rollback(store, home)
    return None


def reset(store: Store, home: Home, *, ratings: bool = False) -> None:
    """Start over from the base model: versions, runs and checkpoints go; ratings stay unless ``ratings``.

    The base model is live before anything is removed, so a crash half-way leaves a working state.
    """
    store.promote(0)
    store.forget_training(feedback=ratings)
    for folder in (home.versions, home.runs):
        shutil.rmtree(folder, ignore_errors=True)


# ------------------------------------------------------------------------------------------------- what is written


def provenance_of(run: Run, result: TrainResult, number: int) -> dict[str, Any]:
    """Exactly what made a version."""
    return {
        "version": number,
        "base": run.base,
        "base_revision": run.base_revision,
        "parent": run.parent,
        "run": run.id,
        "algorithm": result.algorithm,
        "algorithm_note": result.note,
        "recipe": dict(run.recipe),
        "seed": run.seed,
        "feedback": list(run.train_ids),
        "held_out_feedback": list(run.held_out_ids),
        "steps": result.steps,
        "stopped": result.stopped,
        "metrics": dict(result.metrics),
        "adapter_sha256": file_hash(Path(result.path) / WEIGHTS),
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "software": software(),
    }


def software() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    found = {"python": platform.python_version()}
    for package in ("clawback", "torch", "transformers", "peft"):
        try:
            found[package] = installed(package)
        except PackageNotFoundError:
            continue
    return found


def card(provenance: Mapping[str, Any]) -> str:
    """A model card for the adapter."""
    note = f" {provenance['algorithm_note']}" if provenance["algorithm_note"] else ""
    return f"""---
base_model: {provenance["base"]}
library_name: peft
tags: [lora, clawback]
---
# Version {provenance["version"]}

A LoRA adapter for `{provenance["base"]}` (revision `{provenance["base_revision"]}`), made by
[Clawback](https://github.com/clawback-ai/clawback) from one person's feedback on their own machine.

- {len(provenance["feedback"])} pieces of feedback trained on, {len(provenance["held_out_feedback"])} kept for the gate
- algorithm: `{provenance["algorithm"]}`, {provenance["steps"]} steps, seed {provenance["seed"]}.{note}
- everything else that made it is in `provenance.json`
"""


def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Make a file or a folder's entries reach the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)
