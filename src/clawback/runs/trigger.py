"""Starts training runs, one at a time, and the background processes that train, search for a prompt or publish.

The environment of a process is made from an allow-list. An agent's hook, which starts most runs, has the agent's environment: API keys and tokens that no
run needs. Nothing heavy is imported here: this is called after every rating, in hooks too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from clawback.config import Config
    from clawback.paths import Home
    from clawback.runs.run_options import RunOptions
    from clawback.store import Store


ALLOWED = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_OFFLINE", "HF_ENDPOINT",
    "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PYTHONPATH", "VIRTUAL_ENV",
)  # fmt: skip
"""Variables that a training process gets: where things are, and how the machine is used."""
ALLOWED_WHERE_SET = (
    "LC_CTYPE", "TZ", "HF_HUB_CACHE", "OLLAMA_MODELS", "TRANSFORMERS_OFFLINE", "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM", "WANDB_MODE",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "XDG_RUNTIME_DIR", "CREDENTIALS_DIRECTORY", "DBUS_SESSION_BUS_ADDRESS",
)  # fmt: skip
"""Variables that only some machines set: further caches and devices, the way out to the network, where an encrypted home's key is kept."""


def hosted_key(settings: Config) -> str:
    """The variable that holds the key of a trainer elsewhere."""
    hosted = settings.hosted
    return hosted.key_env or ("FIREWORKS_API_KEY" if hosted.provider == "fireworks" else "TINKER_API_KEY")


def key_variables(settings: Config) -> set[str]:
    """The variables that hold the keys which a training run uses: of its judge and of its trainer, where the settings name one."""
    names = {settings.judge.key_env} if settings.judge.enabled else set()
    return names | ({hosted_key(settings)} if settings.hosted.url else set())


def environment(
    home: Home, keys: Iterable[str] = (), available: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a process of ours: the allowed variables, those of ``keys``, and this home."""
    available = os.environ if available is None else available
    names = {*ALLOWED, *ALLOWED_WHERE_SET, *keys} - {""}
    return {name: available[name] for name in names if name in available} | {"CLAWBACK_HOME": str(home.root)}


def is_held(lock: Path) -> bool:
    """Whether a live process holds this lock. A process that dies lets go of it."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True


def start_process(
    home: Home, module: str, arguments: Iterable[str] = (), keys: Iterable[str] = ()
) -> subprocess.Popen[bytes]:
    """Start ``python -m MODULE ARGUMENTS`` as a detached process. It outlives whoever started it, and writes its own log."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=home.root,
        env=environment(home, keys),
        start_new_session=True,
    )


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
    home: Home, options: RunOptions | None = None, *, store: Store | None = None, **values: object
) -> subprocess.Popen[bytes] | None:
    """Start a detached process that trains once (niced, with its own log); None if another one is training.

    ``values``: changes of ``options`` by name. ``store``: a connection that is open already.
    """
    if under_way(home):
        return None
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
        worker = start_process(home, WORKER, arguments, key_variables(settings))
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

    return is_held(home.train_lock)
