"""The registry of versions, on disk and in the store; and a version, loaded and ready to answer.

The row is authoritative: a folder without a row is no version. A version is written to a temporary folder, synced, renamed to its number, and only then
entered in the store. Going live is one transaction.
"""

from __future__ import annotations

import json
import platform
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import config
from clawback.errors import Busy, ModelError, UsageError
from clawback.feedback import provenance
from clawback.files import sha256, sync
from clawback.models import identity
from clawback.paths import Home
from clawback.records import JsonObject, Run, Version
from clawback.release import data_card, prompted

if TYPE_CHECKING:
    from clawback.models import TrainResult
    from clawback.policy import Policy
    from clawback.store import Store


WEIGHTS = "adapter_model.safetensors"
DELTA = "delta.safetensors"
"""The weights of a version of full-parameter training (``models/delta.py``)."""
PROVENANCE = "provenance.json"
DATA_CARD = "DATA.md"
ADOPTED = "adopted"
"""What the runs of adapters that another program trained are called."""
FOREIGN = "adapter"
"""In the origin of a version: where its adapter was adopted from."""
LOCK_SECONDS = 0.5
"""How long to wait for the training lock: others take it for a moment to see whether it is free."""


def propose(
    store: Store, home: Home, run: Run, result: TrainResult, origin: Mapping[str, object] | None = None
) -> Version:
    """Make a candidate version of what a run wrote; the run's folder may go afterwards. ``origin``: of an adapter that was adopted.

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
    (beside / DATA_CARD).write_text(data_card.markdown(store, run.train_ids, number), "utf-8")
    sync_folder(beside)
    folder = home.version(number)
    beside.rename(folder)
    sync(home.versions)
    prompt, of_prompt = prompted.of_run(store, run)
    kept = {name: value for name, value in of_prompt.items() if name != FOREIGN}
    version = Version(
        number,
        "candidate",
        run.base,
        run.base_revision,
        parent=run.parent,
        run_id=run.id,
        path=str(folder),
        prompt=prompt,
        origin=kept | dict(origin or {}),
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
        wanted = json.loads((folder / PROVENANCE).read_text("utf-8"))["files"]
        # One file of weights, and only one that was written with the version: another beside it would be another policy.
        named = {weights_of(folder).name: "", **wanted}
        changed = [name for name in named if sha256(folder / name) != wanted[name]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"Version {version.number} is incomplete ({folder}): {error}. "
            "`clawback versions rollback` restores an intact version."
        ) from error
    if changed:
        raise ModelError(
            f"{changed[0]} of version {version.number} ({folder}) is not what was trained: "
            "the file was changed or is damaged. `clawback versions rollback` restores an intact version."
        )


def weights_of(folder: Path) -> Path:
    """The file of a version's weights: what is added to the base's own where all were trained, else the adapter."""
    return folder / (DELTA if (folder / DELTA).exists() else WEIGHTS)


def promote(store: Store, home: Home, number: int) -> Version:
    """Make a version live, after checking that the gate passed it and its files are what was trained. Atomic.

    Raises ``UsageError`` for a version that the gate has not passed, ``ModelError`` for one whose files are not whole.
    """
    version = store.version(number)
    passed(version)
    seen(store, version)
    check(version)
    return go_live(store, home, number)


def seen(store: Store, version: Version) -> None:
    """Raises ``UsageError`` where the version's prompt holds sentences that the person has neither said nor seen (``release.screening``)."""
    if version.status in ("live", "retired"):
        return  # it was live before
    if new := prompted.unseen(store, version):
        raise UsageError(
            f"The prompt of version {version.number} has {len(new)} sentences that nobody has accepted yet. "
            f"`clawback prompts show {version.number}` shows them, `clawback prompts use {version.number}` accepts them."
        )


def go_live(store: Store, home: Home, number: int) -> Version:
    """The one step at which a version becomes live, with the plain file of its prompt. A hand edit of the file that nobody has entered yet is entered.

    Servers elsewhere that follow the live version are told by a process of their own.
    """
    prompted.edited(store, home)
    version = store.promote(number)
    follow_base(store, home, version)
    if version.prompt:
        from clawback.release import screening

        store.accept_sentences(screening.sentences(version.prompt), number)
    prompted.write(home, version)
    from clawback.release import following

    following.start(store, home)
    return version


@contextmanager
def alone(home: Home) -> Iterator[None]:
    """A context manager that holds the training lock. Raises ``Busy`` while a run trains."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(home.train_lock, timeout=LOCK_SECONDS):
            yield
    except Timeout:
        raise Busy(
            "A run is training. Wait until it is done: `clawback status` shows how far it is."
        ) from None


def bring(home: Home, folder: Path, number: int) -> Path:
    """Copy the folder of a version of another home into this one, under its number here."""
    beside = home.versions / f".{number:04d}.part"
    home.versions.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(folder, beside)
    provenance = json.loads((beside / PROVENANCE).read_text("utf-8")) | {"version": number}
    (beside / PROVENANCE).write_text(json.dumps(provenance, indent=2) + "\n", "utf-8")
    (beside / "README.md").write_text(card(provenance), "utf-8")
    sync_folder(beside)
    shutil.rmtree(home.version(number), ignore_errors=True)  # one without a row is no version
    beside.rename(home.version(number))
    sync(home.versions)
    return home.version(number)


def follow_base(store: Store, home: Home, version: Version) -> None:
    """The settings name the base of the version that answers, in a home that has moved from one base to another (``feedback.provenance``)."""
    if version.number and version.base in provenance.known(store):
        set_base(store, home, version.base, version.base_revision)


def set_base(store: Store, home: Home, base: str, revision: str | None) -> None:
    """Make this the base of the settings, and note when that was: what answered before was another model."""
    held = config.load(home.config).model
    if held.base != base:
        commit = revision if revision and identity.is_commit(revision) else None
        config.save(home.config, {"model": {"base": base} | ({"revision": commit} if commit else {})})
    provenance.switch(store, held.base, base, time.time())


def passed(version: Version) -> None:
    """Raises ``UsageError`` for a version that the gate has not passed."""
    if version.status == "rejected":
        raise UsageError(
            f"Version {version.number} was rejected. `clawback versions --report {version.number}` says why."
        )
    if version.status == "candidate" and not (version.report or {}).get("accepted"):
        raise UsageError(
            f"Version {version.number} has not passed the gate, so it cannot go live. "
            f"`clawback versions check {version.number}` judges it."
        )


def rollback(store: Store, home: Home, number: int | None = None) -> Version:
    """Go back to a version (0: the base model), by default the one that was live when this one was made.

    Not simply the next lower number: a version that was itself rolled back does not become live again this way.
    Damaged versions are passed over when none is named. Raises ``UsageError`` when there is nowhere to go.
    """
    live = store.live()
    if number is not None:
        if number == live.number:
            raise UsageError(f"Version {number} is live already.")
        return promote(store, home, number)
    if live.number == 0:
        raise UsageError("There is no older version to go back to: the base model is live.")
    for ancestor in ancestors(store, live):
        try:
            check(ancestor)
        except ModelError:
            continue
        return go_live(store, home, ancestor.number)
    return go_live(store, home, 0)


def ancestors(store: Store, version: Version) -> Iterator[Version]:
    """What was live when a version was made, what was live when that was made, and so on."""
    while version.parent is not None:
        version = store.version(version.parent)
        yield version


def heal(store: Store, home: Home) -> Version | None:
    """When the live version cannot be used, go back to the newest whole one and return it; None when all is well."""
    try:
        check(store.live())
    except ModelError:
        return rollback(store, home)
    return None


def reset(store: Store, home: Home, *, ratings: bool = False) -> None:
    """Start over from the base model: versions, runs and checkpoints go; ratings stay unless ``ratings``.

    The base model is live before anything is removed, so a crash half-way leaves a working state. A run that was
    interrupted goes, too; raises ``Busy``, and changes nothing, while one is under way.
    """
    with alone(home):
        go_live(store, home, 0)
        if (dead := store.active_run()) is not None:  # whoever worked on it would hold the lock
            store.update_run(dead.id, status="failed", error="it was interrupted, then everything was reset")
        store.forget_training(feedback=ratings)
        for folder in (home.versions, home.runs, home.prompts, home.move):
            shutil.rmtree(folder, ignore_errors=True)


# ------------------------------------------------------------------------------------------------- what is written


def provenance_of(run: Run, result: TrainResult, number: int) -> JsonObject:
    """Exactly what made a version."""
    return {
        "version": number,
        "base": run.base,
        "base_revision": run.base_revision,
        "parent": run.parent,
        "run": run.id,
        "algorithm": result.algorithm,
        "algorithm_note": result.note,
        "instruction": result.instruction,
        "recipe": dict(run.recipe),
        "seed": run.seed,
        "feedback": list(run.train_ids),
        "held_out_feedback": list(run.held_out_ids),
        "steps": result.steps,
        "stopped": result.stopped,
        "metrics": dict(result.metrics),
        "adapter_sha256": sha256(weights_of(Path(result.path))),
        "files": {p.name: sha256(p) for p in sorted(Path(result.path).iterdir()) if p.is_file()},
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "software": software(),
    } | {k: v for k, v in (("rewards", list(result.rewards)), ("episodes", result.episodes)) if v}


def sentence_of(version: Version) -> str:
    """The sentence that a version was to learn, "" for none."""
    return str(_record(version).get("instruction", ""))


def held_replies(version: Version, environment: str) -> tuple[str, ...]:
    """The replies that a version was held to when it learned in this environment; none where it was not."""
    episodes = _record(version).get("episodes") or {}
    return tuple(episodes.get("held_to", ())) if episodes.get("environment") == environment else ()


def _record(version: Version) -> Mapping[str, Any]:
    """What made a version; empty where that cannot be read."""
    try:
        provenance = json.loads((Path(version.path) / PROVENANCE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return provenance if isinstance(provenance, dict) else {}


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
    source = "one person's feedback"
    if played := provenance.get("episodes"):
        source = f"episodes of {played.get('environment', 'an environment')}"
    full = DELTA in provenance["files"]
    what = f"What was added to all weights of the layers (`{DELTA}`)" if full else "A LoRA adapter"
    return f"""---
base_model: {provenance["base"]}
library_name: {"clawback" if full else "peft"}
tags: [{"full" if full else "lora"}, clawback]
---
# Version {provenance["version"]}

{what} for `{provenance["base"]}` (revision `{provenance["base_revision"]}`), made by
[Clawback](https://github.com/clawback-ai/clawback) from {source} on their own machine.

- {len(provenance["feedback"])} pieces of feedback trained on, {len(provenance["held_out_feedback"])} kept for the gate
- algorithm: `{provenance["algorithm"]}`, {provenance["steps"]} steps, seed {provenance["seed"]}.{note}
- who rated, and where their ratings lean: `DATA.md`
- everything else that made it is in `provenance.json`
"""


def sync_folder(folder: Path) -> None:
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def revision_of(settings: config.Config, base: str, recorded: str) -> str | None:
    """The commit to load a version's base at: that of the settings, if they name the same base, else the one that the version records."""
    if base == settings.model.base:
        return settings.model.revision
    return recorded if identity.is_commit(recorded) else None


def load(home: Home, version: Version, settings: config.Config | None = None) -> Policy:
    """Load a version's base model with its adapter and its prompt, after checking that the files are what was trained.

    Raises ``ModelError`` when they are not, ``MissingExtra`` when torch is not installed.
    """
    from clawback import engine

    check(version)
    settings = settings or config.load(home.config)
    model = settings.model
    base = version.base or model.base
    policy = engine.load(
        base,
        revision=revision_of(settings, base, version.base_revision),
        adapter=Path(version.path) if version.path else None,
        dtype=model.dtype,
        load_in_4bit=model.load_in_4bit,
        device=model.load_device,
    )
    policy.configure(
        settings.generation, settings.model.chat_template_args, settings.training.thinking, version.prompt
    )
    return policy
