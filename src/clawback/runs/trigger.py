"""Starts a training run: when it is due, or because a person asks for it. One at a time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

    from clawback.config import Config
    from clawback.paths import Home
    from clawback.runs.run_options import RunOptions
    from clawback.store import Store

WORKER = "clawback.jobs.worker"


def start_if_due(home: Home, store: Store) -> bool:
    """Start a run if there are enough fresh ratings, it may start now and none has been started; whether it was started.

    Cheap where nothing is due: one read and one count.
    """
    from clawback.feedback.due import claim_start, last_failure, not_now, training_due

    if not training_due(store, home):
        return False
    from clawback import config

    settings = config.load(home.config)
    if not_now(settings, last_failure(store)) or under_way(home) or not claim_start(store):
        return False
    start(home, if_due=True, store=store)
    return True


def start(
    home: Home, options: RunOptions | None = None, *, store: Store | None = None, **values: Any
) -> subprocess.Popen[bytes] | None:
    """Start a detached process that trains once (niced, with its own log); None if another one is training.

    ``values``: changes of ``options`` by name. ``store``: a connection that is open already.
    """
    if under_way(home):
        return None
    from clawback.runs import process  # a rating after which no run is due needs none of these
    from clawback.runs.run_options import DEFAULTS
    from clawback.store import connect

    options = (options or DEFAULTS).changed(**values)

    if store is None:
        with connect(home.database) as opened:
            return start(home, options, store=opened)
    from clawback import config

    settings, current = config.load(home.config), store.current_run()
    if current is not None and not current.interrupted:
        return None
    new = options.resume is None and current is None
    run = prepare(store, settings, options.algorithm, options.seed) if new else None
    arguments = [str(home.root), *options.changed(prepared=run).arguments()]
    try:
        worker = process.start(home, WORKER, arguments, process.key_variables(settings))
    except BaseException:
        if run is not None:
            store.drop_preparation(run)
        raise
    if run is not None:
        store.update_run(run, pid=worker.pid)
    return worker


def prepare(store: Store, settings: Config, algorithm: str | None = None, seed: int | None = None) -> int:
    """Enter the run that this process prepares, so that it is shown before a model is loaded; its number."""
    from clawback.records import Run

    training = settings.training
    run = Run(
        base=settings.model.base,
        base_revision="",
        algorithm=algorithm or training.algorithm,
        recipe={},
        seed=training.seed if seed is None else seed,
        parent=store.live().number,
        pid=os.getpid(),
        progress={"phase": "preparation"},
    )
    return store.prepare_run(run).id


def under_way(home: Home) -> bool:
    """Whether a live process trains."""
    from clawback.runs import process

    return process.is_held(home.train_lock)
