"""Moving to another base model: everything is learned again on the new one, in a home of its own, and the person chooses.

``$CLAWBACK_HOME/move`` is a home with a copy of the database, without runs and versions, whose settings name the new base. A run there
learns from all ratings, and its gate judges it; then both versions answer the same prompts (``move_worker.py``). Nothing in the
person's own home changes before they choose. ``keep_new`` brings the version over, ``keep_old`` removes the folder, ``undo`` goes back.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import config, files, jobs, store
from clawback.admin import model_choice
from clawback.encryption import keys
from clawback.errors import Busy, ModelError, NotFound, UsageError
from clawback.feedback import provenance
from clawback.jobs import inputs
from clawback.models import converted_before, gguf_file, local_models
from clawback.paths import Home
from clawback.processes import identity, is_alive
from clawback.records import Run, Version
from clawback.release import prompted, trial, version_registry
from clawback.runs import trigger
from clawback.runs.trigger import under_way

if TYPE_CHECKING:
    from clawback.records import JsonObject
    from clawback.store import Store

WORKER = "clawback.extensions.moving.move_worker"
STATE = "move.json"
MOVED = "moved"
"""In the store: what the last move came from, for ``undo``."""
ASK = "Choose with `clawback move --keep new` or `clawback move --keep old`."
COMPARED = 0.35
"""What answering the gate's prompts takes of the time of a run, for each of the two models, roughly."""


@dataclass(frozen=True, slots=True)
class Move:
    """A move that is under way, or waits for the person's choice."""

    to: str
    origin: str
    live: int
    """The version of ``origin`` that answers."""
    note: str = ""
    phase: str = "learn"
    """``learn``, ``compare``, ``ready``, ``failed`` or ``stop``."""
    error: str = ""
    progress: JsonObject = field(default_factory=dict)
    pid: int = 0
    process: str = ""
    began: float = 0.0
    comparison: JsonObject | None = None

    @property
    def running(self) -> bool:
        return (
            self.phase in ("learn", "compare", "stop") and bool(self.pid) and is_alive(self.pid, self.process)
        )

    @property
    def interrupted(self) -> bool:
        """Its process died, or was never started."""
        return self.phase in ("learn", "compare") and not self.running


@dataclass(frozen=True, slots=True)
class MovePlan:
    """What a move takes, roughly."""

    to: str
    origin: str
    ratings: int
    disk: int
    """Bytes, while both are kept."""
    minutes: float
    fits: bool
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        lines = [
            f"From {self.origin} to {self.to}, learning from {self.ratings} ratings.",
            f"Disk      {max(self.disk / 1e9, 0.1):.1f} GB more, until you choose",
            f"Time      about {model_choice.span(60 * self.minutes)}, in the background",
            *self.notes,
            "What answers now goes on answering. Nothing is changed before you choose.",
        ]
        return "\n".join(lines)


# ------------------------------------------------------------------------------------------------------- state


def copy_of(home: Home) -> Home:
    """The home in which the new base learns."""
    return Home(home.move)


def current(home: Home) -> Move | None:
    """The move that there is; None where there is none. Raises ``UsageError`` for a state that cannot be read."""
    try:
        held = json.loads((home.move / STATE).read_text("utf-8"))
        known = {one.name for one in fields(Move)}
        return Move(**{name: value for name, value in held.items() if name in known})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{home.move / STATE} cannot be read ({error}). `clawback move --keep old` removes it."
        ) from error


def save(home: Home, move: Move) -> Move:
    files.replace(home.move / STATE, (json.dumps(asdict(move), indent=1) + "\n").encode(), mode=0o600)
    return move


def progress_of(home: Home, move: Move) -> JsonObject:
    """How far it is: of the run while it learns, else as the worker wrote."""
    if move.phase == "learn" and copy_of(home).database.exists():
        with store.connect(copy_of(home).database) as db:
            if (run := db.active_run()) is not None:
                return dict(run.progress)
    return move.progress


# ------------------------------------------------------------------------------------------------------- begin


def plan(home: Home, to: str) -> MovePlan:
    """What a move to this model would take. Raises ``UsageError``, ``ModelError``, ``TrainingError`` where it cannot begin."""
    name, note = model_choice.check(to, local_models.find())
    settings = config.load(home.config)
    if name == settings.model.base:
        raise UsageError(f"{name} is the model of your settings already.")
    with store.connect(home.database) as db:
        _same_home(db, settings.model.base)
        inputs.enough_in(db, settings)
        good, bad = db.count_ratings()
    model, here = model_choice.local_model(name), model_choice.machine()
    converted = _conversion_bytes(home, name)
    disk = sum(path.stat().st_size for path in (home.database,) if path.exists()) + converted
    seconds = model_choice.run_seconds(model.info, here) if model else 0.0
    origin = None if settings.model.base == config.EMBEDDED else _quietly(settings.model.base)
    both = (1 + COMPARED) * seconds + (
        COMPARED * model_choice.run_seconds(origin.info, here) if origin else 0.0
    )
    fits = model is None or model_choice.fits(model.info, here)
    notes = [note] if note else []
    if not fits and model is not None:
        notes.append(f"{name} is {model_choice.verdict(model, here)}: learning on it will be refused.")
    if converted:
        notes.append(f"{name} is made ready for training first ({converted / 1e9:.1f} GB of the disk, kept).")
    return MovePlan(name, settings.model.base, good + bad, disk, max(both / 60, 1.0), fits, tuple(notes))


def _same_home(db: Store, base: str) -> None:
    live = db.live()
    if live.base and live.base != base:
        raise UsageError(
            f"Version {live.number}, which is live, was trained on {live.base}, and the settings name {base}. "
            f"Set the old model again first: `clawback config set model.base {live.base}`."
        )


def _quietly(base: str) -> Any:
    try:
        return model_choice.local_model(base)
    except (ModelError, UsageError, NotFound):
        return None


def _conversion_bytes(home: Home, base: str) -> int:
    source = local_models.source(base)
    if source is None or converted_before(home.models, source):
        return 0
    return gguf_file.read(source.path).converted_bytes


def begin(home: Home, to: str) -> Move:
    """Make the copy in which the new base learns; a move to the same model that was interrupted or failed is taken up.

    Raises ``UsageError`` where another move is open, ``Busy`` while a run trains, and whatever ``plan`` raises.
    """
    if (held := current(home)) is not None:
        name, _ = model_choice.check(to, local_models.find())
        if held.to != name:
            raise UsageError(f"A move to {held.to} is open. End it first: `clawback move --keep old`.")
        if held.running:
            raise Busy(f"The move to {held.to} is under way: `clawback move` shows how far it is.")
        if held.phase == "ready":
            raise UsageError(f"The move to {held.to} is done. {ASK}")
        return save(
            home, replace(held, phase="learn" if held.phase != "compare" else "compare", error="", pid=0)
        )
    wanted = plan(home, to)
    if under_way(home):
        raise Busy("A run is training. Move when it is done: `clawback status` shows how far it is.")
    shutil.rmtree(home.move, ignore_errors=True)  # one without its state was not made whole
    copy = copy_of(home)
    copy.create()
    with store.connect(home.database) as db:
        live = db.live()
        db.backup(copy.database)
    keys.share(home.database, copy.database)
    _settle_copy(home, copy, live, wanted)
    return save(home, Move(wanted.to, wanted.origin, live.number, " ".join(wanted.notes), began=time.time()))


def _settle_copy(home: Home, copy: Home, live: Version, plan: MovePlan) -> None:
    """In the copy: the new base in the settings; no runs and versions of the old one; the live prompt, which needs no weights."""
    if home.config.exists():
        shutil.copyfile(home.config, copy.config)
    commit = model_choice.commit_of(plan.to) or None
    config.save(
        copy.config,
        {
            "model": {"base": plan.to, "revision": commit},
            "trial": {"share": 0.0},
            "judge": {"enabled": False},
            "publish": {"targets": None},
            "gate": {
                "more_ratings": None
            },  # nobody answers questions there: the person compares both models in the end
        },
    )
    with store.connect(copy.database) as db:
        db.promote(0)
        if (dead := db.active_run()) is not None:
            db.update_run(dead.id, status="failed", error="it belongs to another base")
        changes = provenance.timeline(db)
        db.forget_training(feedback=False)
        db.set(provenance.KEY, changes)
        provenance.switch(db, plan.origin, plan.to, time.time())
        if live.prompt:
            version = prompted.propose(db, prompted.source(live), spoken=live.prompt, origin=live.origin)
            db.promote(version.number)


def start(home: Home) -> subprocess.Popen[bytes]:
    """Start the process that learns and compares."""
    return trigger.start_process(
        home, WORKER, [str(home.root)], trigger.key_variables(config.load(home.config))
    )


def entered(move: Move, pid: int, **changes: Any) -> Move:
    """The same, worked on by this process."""
    return replace(move, pid=pid, process=identity(pid), **changes)


# ------------------------------------------------------------------------------------------------------ choose


def candidate(copy: Store) -> Version:
    """What the new base is judged by: the version that its gate put live, or left undecided; else the live one, which is the base itself."""
    undecided = copy.waiting()
    return copy.version(undecided[0]) if undecided else copy.live()


def keep_new(home: Home) -> Version:
    """The new base answers, with what it learned: its version is brought over and goes live. What the old base had stays.

    Each step is there before the next begins, so that the same call finishes one that was killed. Raises ``UsageError``, ``Busy``.
    """
    move = _ready(home)
    with version_registry.alone(home), store.connect(home.database) as db:
        copy = copy_of(home)
        with store.connect(copy.database) as learned:
            version = candidate(learned)
            settings = config.load(copy.config).model
            run = learned.run(version.run_id) if version.run_id is not None else None
            number = _bring(db, home, move, version, run) if version.number else 0
        mark, held = _mark(move), db.get(MOVED) or {}
        if held.get("mark") != mark:
            _note_origin(db, home, move)
        version_registry.set_base(db, home, move.to, settings.revision)
        live = version_registry.go_live(db, home, number)
        remove(home)
    return live


def _mark(move: Move) -> str:
    """Tells this move from others, in what it leaves in the person's own home."""
    return f"{move.to} {move.began}"


def _note_origin(db: Store, home: Home, move: Move) -> None:
    """What ``undo`` goes back to. What waits for a verdict on the old base waits no more: the gate compares versions of one base."""
    revision = config.load(home.config).model.revision
    with db.together():
        if trial.running(db) is not None:
            trial.stop(db)
        for version in db.versions():
            if version.status == "candidate" and version.base not in ("", move.to):
                db.reject(version.number)
        origin = {"base": move.origin, "revision": revision, "live": db.live().number, "mark": _mark(move)}
        db.set(MOVED, origin)


def _ready(home: Home) -> Move:
    move = current(home)
    if move is None:
        raise UsageError("No move is open. `clawback move --to MODEL` begins one.")
    if move.phase != "ready":
        raise UsageError(f"The move to {move.to} is not done yet: `clawback move` shows how far it is.")
    return move


def _bring(db: Store, home: Home, move: Move, version: Version, run: Run | None) -> int:
    """Enter a version of the copy in the person's own home, with its run and its report; the number that it has there."""
    known = {v.origin.get("moved"): v.number for v in db.versions()}
    mark = _mark(move)
    if mark in known:
        return known[mark]
    number = db.next_version()
    path = version_registry.bring(home, Path(version.path), number) if version.path else ""
    live = db.live()
    report = _report(version, move, number, live.number)
    with db.together():
        there = {f.id for f in db.feedback(active=False)}
        entered_run = None
        if run is not None:
            entered_run = db.add_ended_run(
                replace(
                    run,
                    parent=live.number,
                    version=None,
                    train_ids=tuple(number for number in run.train_ids if number in there),
                    held_out_ids=tuple(number for number in run.held_out_ids if number in there),
                )
            )
        candidate_here = replace(
            version,
            number=number,
            status="candidate",
            base=version.base or move.to,
            parent=live.number,
            run_id=entered_run.id if entered_run else None,
            path=str(path),
            origin={**version.origin, "moved": mark},
            report=report,
        )
        db.add_candidate(candidate_here) if entered_run else db.add_version(candidate_here)
    return number


def _report(version: Version, move: Move, number: int, live: int) -> JsonObject | None:
    """The gate's report on the new base, as it stands in the person's own home: they chose after a comparison."""
    if version.report is None:
        return None
    held = dict(version.report)
    why = f"you chose it over version {live} of {move.origin}, after both had answered the same prompts"
    return held | {
        "version": number,
        "against": live,
        "accepted": True,
        "again_at": 0,
        "by_hand": not held.get("accepted"),
        "reasons": [why, *(f"on {move.to} alone: {reason}" for reason in held.get("reasons", ()))],
        "moved": move.comparison or {},
    }


def keep_old(home: Home) -> str:
    """The old base goes on answering, and what was learned on the new one is removed. Returns what became of it, in a sentence."""
    try:
        move = current(home)
    except UsageError:  # what cannot be read is removed
        move = None
    if move is not None and move.running:
        save(home, replace(move, phase="stop"))
        with store.connect(copy_of(home).database) as db:
            learning = db.active_run() is not None
        if learning:
            jobs.stop(copy_of(home))
        return (
            f"The move to {move.to} stops after its present step, and is removed then. Nothing has changed."
        )
    if not home.move.exists():
        raise UsageError("No move is open, so there is nothing to end.")
    remove(home)
    named = f" to {move.to}" if move else ""
    return f"The move{named} is removed. Nothing has changed: what answered goes on answering."


def undo(home: Home) -> Version:
    """Back to the base and the version that answered before the last move. What was learned on the new base stays as a version."""
    with version_registry.alone(home), store.connect(home.database) as db:
        held = db.get(MOVED)
        if not held:
            raise UsageError("No move was made in this home, so there is nothing to undo.")
        number = int(held["live"])
        version_registry.check(db.version(number))
        version_registry.set_base(db, home, str(held["base"]), held.get("revision"))
        live = version_registry.go_live(db, home, number)
        db.set(MOVED, None)
    return live


def remove(home: Home) -> None:
    keys.unshare(copy_of(home).database)
    # Without its state it is no move any more, should the rest be killed half-way.
    (home.move / STATE).unlink(missing_ok=True)
    shutil.rmtree(home.move, ignore_errors=True)
