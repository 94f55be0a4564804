"""The checks of ``clawback doctor``: each reports whether all is well, what was found, and how to fix it."""

from __future__ import annotations

import importlib.util
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from clawback import config, installed, plugins, store
from clawback.admin import model_choice, model_proof
from clawback.errors import ClawbackError, ModelError, NotFound
from clawback.models import check_folder, check_trainable, conversion_of
from clawback.paths import Home, tidy
from clawback.store import connection

GLANCE = 8_000_000
"""Bytes of a database above which somebody who waits for the page does not wait for all of it to be read."""
LOW_DISK = 2_000_000_000
"""Bytes under which a training run may not find room for its checkpoints."""


class Finding(TypedDict):
    ok: bool
    what: str
    fix: str


def check(home: Home, *, thorough: bool = True) -> list[Finding]:
    """Every check, in the order in which trouble usually comes. Never raises for trouble that it found. ``thorough``: a large database is read to
    its end, too, which takes a second for 100 MB, and a model that was not tried yet is loaded."""
    findings: list[Finding] = []
    quick = {} if thorough else {_database: _glance, _model: _model_glance}
    for look in (
        _settings,
        _database,
        _versions,
        _agents,
        _server,
        _training_parts,
        _model,
        _lock,
        _background,
        _published,
        _ratings,
        _diverged,
        _taps,
        _disk,
        _private,
        _sandbox,
    ):
        try:
            findings.extend(quick.get(look, look)(home))
        except ClawbackError as error:
            findings.append({"ok": False, "what": str(error), "fix": "See the message."})
        except OSError as error:
            findings.append({"ok": False, "what": f"{error}", "fix": "Check the file and its permissions."})
    return findings


def _well(what: str) -> Finding:
    return {"ok": True, "what": what, "fix": ""}


def _settings(home: Home) -> Iterator[Finding]:
    config.load(home.config)
    yield _well(f"settings can be read ({tidy(home.config)})")


def _database(home: Home) -> Iterator[Finding]:
    with store.connect(home.database) as db:
        problems = db.integrity()
    copy = connection.newest_copy(home.database)
    if problems:
        yield {
            "ok": False,
            "what": f"the database is damaged: {problems[0]}",
            "fix": "`clawback data salvage` saves what can be read, and keeps the damaged file aside."
            + (f" The newest copy that was made by itself: {copy}." if copy else ""),
        }
    else:
        yield _well("the database is intact")


def _glance(home: Home) -> Iterator[Finding]:
    """Of a large database: that it can be read."""
    if not home.database.exists() or home.database.stat().st_size < GLANCE:
        yield from _database(home)
        return
    with store.connect(home.database) as db:
        turns = db.count_turns()
        db.turns(limit=1)
    yield _well(f"the database can be read ({turns} turns; `clawback doctor` checks all of it)")


def _versions(home: Home) -> Iterator[Finding]:
    from clawback import release

    with store.connect(home.database) as db:
        live = db.live()
    try:
        release.check(live)
    except ModelError as error:
        yield {
            "ok": False,
            "what": str(error),
            "fix": "Go back with `clawback versions rollback` (the next answer or run does so by itself).",
        }
    else:
        yield _well(f"the live version ({live.number}) is intact")


def _agents(home: Home) -> Iterator[Finding]:
    from clawback.capture import agent_integration

    installed = 0
    for name in agent_integration.names():
        agent = agent_integration.find(name)
        state = agent.status(home)
        installed += state.installed
        if state.problem:
            fix = f"Run `clawback init --agent {name}` again, or do what it says."
            yield {"ok": False, "what": f"{agent.title}: {state.problem}", "fix": fix}
        elif state.installed:
            yield _well(f"{agent.title} is set up ({state.settings})")
    if not installed:
        yield {"ok": True, "what": "no agent is set up", "fix": "`clawback init` sets one up."}


def _server(home: Home) -> Iterator[Finding]:
    import socket

    from clawback.admin import system_service
    from clawback.capture import script, server_proof

    told = home.root / script.SERVER
    announced = script.announced(home)
    port = announced[0] if announced else config.load(home.config).serve.port
    with socket.socket() as trying:
        trying.settimeout(1)
        taken = trying.connect_ex(("127.0.0.1", port)) == 0
    state = system_service.status(home)
    if announced and not taken:
        yield {
            "ok": False,
            "what": f"the server on port {port} is not running, but was not stopped properly",
            "fix": f"Start it again (`clawback serve`), or remove {told}. Until then hooks work, but slower.",
        }
    elif announced and not server_proof.proven(home, port):
        yield {
            "ok": False,
            "what": f"what listens on port {port} does not answer as our server does: it is very busy, hangs, or is another program",
            "fix": "Try again once the machine is less busy. If it stays so, end it, and start `clawback serve` again. Until then hooks tell it nothing, and work more slowly.",
        }
    elif not announced and taken:
        yield {
            "ok": False,
            "what": f"something else listens on port {port}, so `clawback serve` cannot start",
            "fix": "End it, or set another: port = … under [serve] in config.toml.",
        }
    elif state.installed and not state.running:
        yield {
            "ok": False,
            "what": f"the service is not running: {state.note}",
            "fix": "`clawback connect service install`",
        }
    else:
        yield _well(f"the server runs on port {port}" if taken else f"port {port} is free for the server")


def _training_parts(home: Home) -> Iterator[Finding]:  # noqa: ARG001
    missing = [m for m in ("torch", "transformers", "peft") if importlib.util.find_spec(m) is None]
    if missing:
        yield {
            "ok": False,
            "what": f"training needs {', '.join(missing)}",
            "fix": f"Install it with: {installed.add('train')}",
        }
    else:
        yield _well("training is installed")


def _model(home: Home) -> Iterator[Finding]:
    """The model of the settings: whether it is there, can be trained, and works; it is tried unless these very files were tried before."""
    settings = config.load(home.config).model
    why = _problem_with(home, settings.base) or model_proof.problem(home, settings.base, settings)
    yield from _of_model(home, why)


def _model_glance(home: Home) -> Iterator[Finding]:
    """The same without loading it."""
    yield from _of_model(home, _problem_with(home, config.load(home.config).model.base))


def _of_model(home: Home, problem: str) -> Iterator[Finding]:
    base = config.load(home.config).model.base
    with store.connect(home.database) as db:
        live = db.live()
    if live.base and live.base != base:
        yield {
            "ok": False,
            "what": f"version {live.number}, which is live, was trained on {live.base}, but the settings name {base}",
            "fix": f"Set the old model again (`clawback config set model.base {live.base}`), then learn everything again on the new one with "
            f"`clawback move --to {base}`; or start over with `clawback versions reset` (ratings are kept).",
        }
    if problem:
        yield {
            "ok": False,
            "what": problem,
            "fix": "Choose another with `clawback init --model M`; `clawback model list` lists models.",
        }
    elif base == config.EMBEDDED:
        yield _well(f"the model to train is {base}. {config.DEMONSTRATION}")
    else:
        yield _well(f"the model to train is {base}{_kind_of(base)}")


def _kind_of(base: str) -> str:
    """A word of warning where the model is a base model; "" otherwise."""
    try:
        model = model_choice.local_model(base)
    except ClawbackError:
        return ""
    if model is None or model.kind == "instruct":
        return ""
    return ", a base model: it was not made to answer, and ratings hardly help"


def _problem_with(home: Home, base: str) -> str:
    """Why that base cannot be trained, as far as a glance shows; "" where nothing speaks against it."""
    if base == config.EMBEDDED:
        return ""
    folder = Path(base).expanduser()
    try:
        if folder.is_dir():
            check_folder(folder)
            check_trainable(folder)
            return ""
        model = model_choice.local_model(base)
    except NotFound as error:  # what was once converted outlives its file
        return "" if conversion_of(home.models, base) else f"the model {base} cannot be used: {error}"
    except ClawbackError as error:
        return f"the model {base} cannot be used: {error}"
    if model is None and base.startswith((".", "/", "~")):
        return f"the model {base} was not found"
    return f"the model {base} cannot be used: {model.problem}" if model and model.problem else ""


def _published(home: Home) -> Iterator[Finding]:
    from clawback.release import following

    with store.connect(home.database) as db:
        live, standings = db.live(), following.standings(db, config.load(home.config))
    for one in standings:
        ok = one.current(live) or (not one.error and following.under_way(home))
        fix = "" if ok else "Run `clawback versions publish` to try again; it is tried again by itself, too."
        yield {"ok": ok, "what": one.sentence(live), "fix": fix}


def _lock(home: Home) -> Iterator[Finding]:
    with store.connect(home.database) as db:
        run = db.active_run()
    if run is None:
        yield _well("no training run is active")
    elif not run.interrupted:
        yield _well(f"training run {run.id} is active")
    else:
        yield {
            "ok": False,
            "what": f"training run {run.id} was interrupted",
            "fix": "`clawback train` continues it from its checkpoint.",
        }


def _background(home: Home) -> Iterator[Finding]:
    from clawback.feedback.due import FAILED

    with store.connect(home.database) as db:
        failed = db.get(FAILED)
    if failed:
        yield {
            "ok": False,
            "what": f"training in the background failed: {failed['why']}",
            "fix": f"Fix that, or see {home.logs / 'train.log'}; it is tried again after the next rating.",
        }
    else:
        yield _well("no background run has failed")


LOPSIDED = 0.05
"""Share of good (or bad) ratings under which there is next to nothing to learn from."""
ENOUGH = 32
"""Ratings under which their share says little."""


def _ratings(home: Home) -> Iterator[Finding]:
    """Training that stalls, and rewards that are always low: what the ratings themselves show."""
    with store.connect(home.database) as db:
        good, bad = db.count_ratings()
    share = good / (good + bad) if good + bad else 0.5
    if good + bad >= ENOUGH and not LOPSIDED <= share <= 1 - LOPSIDED:
        which = "good" if share > 0.5 else "bad"
        fix = "Rate some answers of the other kind as well (`clawback inbox` lists the most informative): nothing can be learned from equal rewards."
        yield {"ok": False, "what": f"{max(good, bad)} of {good + bad} ratings are {which}", "fix": fix}
    else:
        yield _well(
            f"there are ratings of both kinds ({good} good, {bad} bad)"
            if good and bad
            else "few ratings so far"
        )


def _diverged(home: Home) -> Iterator[Finding]:
    """Whether the last runs ended because the policy drifted away or the reward fell."""
    with store.connect(home.database) as db:
        rejected = [v for v in db.versions(3) if v.status == "rejected"]
    drifted = [v for v in rejected if any("drift" in str(r) for r in (v.report or {}).get("reasons", ()))]
    if len(drifted) >= 2:
        fix = "Learn more carefully: `clawback config set training.preset careful`, or a lower training.overrides.learning_rate."
        yield {
            "ok": False,
            "what": f"versions {', '.join(str(v.number) for v in drifted)} drifted too far from the base",
            "fix": fix,
        }
    else:
        yield _well("the last versions have not drifted too far")


def _taps(home: Home) -> Iterator[Finding]:
    """Ratings whose answer is not here: those that wait, and those that waited in vain."""
    with store.connect(home.database) as db:
        early = db.early()
    lost = [one for one in early if one.lost]
    if lost:
        why = "; ".join(dict.fromkeys(one.lost for one in lost))
        fix = "`clawback turns` lists what you can rate instead; this notice stays for a week."
        yield {"ok": False, "what": f"{len(lost)} of your ratings came to nothing: {why}", "fix": fix}
    else:
        waits = f" ({len(early)} for an answer that is still to come)" if early else ""
        yield _well(f"every rating has its answer{waits}")


def _disk(home: Home) -> Iterator[Finding]:
    free = shutil.disk_usage(home.root).free
    if free < LOW_DISK:
        yield {
            "ok": False,
            "what": f"only {free / 1e9:.1f} GB of disk are free",
            "fix": f"Make room where {tidy(home.root)} is; old versions can go with `clawback versions reset`.",
        }
    else:
        yield _well(f"{free / 1e9:.0f} GB of disk are free")


def _sandbox(home: Home) -> Iterator[Finding]:  # noqa: ARG001
    if "own" not in plugins.built_in(plugins.SANDBOXES):
        return
    for sentence in plugins.load(plugins.SANDBOXES, "own").findings():
        yield _well(sentence)


def _private(home: Home) -> Iterator[Finding]:
    for path in (home.root, home.database):
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            yield {"ok": False, "what": f"others can read {path}", "fix": f"chmod go= {path}"}
            return
    yield _well("only you can read what Clawback stores")
