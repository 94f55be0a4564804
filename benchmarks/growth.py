"""What is asked for often must not cost more with every turn: capture, rating, status, inbox, a run's selection and the page, with 10,000 to 10 million turns.

A home is filled by SQL (``_grown_home.py``): conversations of five turns, one turn in fifty rated, one in twenty judged, up to 200 versions with
their runs. Each figure is the median of several calls in this process, connection and the wait for the disk included, the system's page cache warm;
the routes are called as the server calls them, their JSON made. Starting a process comes on top for hooks and commands (see cold_start).
``tests/store/test_growth.py`` holds the same calls to a constant number of SQLite's steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks._grown_home import grow
from clawback import config, feedback, store
from clawback.jobs import inputs
from clawback.paths import Home
from clawback.records import Turn
from clawback.serve import api

LEARNS_FROM = config.TrainingSection().newest
CALLS = 7
SIZES = (10_000, 1_000_000)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks growth", description=__doc__)
    parser.add_argument("--turns", type=int, nargs="+", default=list(SIZES), help="sizes of the homes")
    parser.add_argument(
        "--folder", type=Path, help="where the homes are made (10 million turns take some 20 GB)"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    found = {}
    for turns in options.turns:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            found[turns] = measure(Home(Path(folder)), turns)
    print(json.dumps(found, indent=2) if options.json else table(found))
    return 0


def measure(home: Home, turns: int) -> dict[str, float]:
    began = time.perf_counter()
    grow(home, turns)
    figures = {"bytes a turn": home.database.stat().st_size / turns}
    print(f"{turns} turns made in {time.perf_counter() - began:.0f} s", file=sys.stderr)
    for name, action in EVERYDAY.items():
        action(home)
        used, waited = [], []
        for _ in range(CALLS):
            began, burnt = time.perf_counter(), time.process_time()
            json.dumps(action(home), default=str)
            used.append(time.process_time() - burnt)
            waited.append(time.perf_counter() - began)
        figures[name] = 1000 * statistics.median(used)
        figures[f"{name}, wall"] = 1000 * statistics.median(waited)
        print(
            f"  {name}: {figures[name]:.1f} ms, {figures[f'{name}, wall']:.1f} by the wall clock",
            file=sys.stderr,
        )
    return figures


def table(found: dict[int, dict[str, float]]) -> str:
    lines = [
        f"Milliseconds a call, median of {CALLS}.",
        "",
        "| turns | " + " | ".join(f"{n:,}" for n in found) + " |",
        "| --- |" + " ---: |" * len(found),
    ]
    for name in next(iter(found.values())):
        lines.append(
            f"| {name} | " + " | ".join(f"{figures[name]:,.1f}" for figures in found.values()) + " |"
        )
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------- what is measured


def _asked(**query: str) -> Any:
    params = {name: int(value) if name == "id" else value for name, value in query.items()}
    return SimpleNamespace(query_params=query, path_params=params)


def _serving(home: Home) -> Any:
    recorder = SimpleNamespace(recorded=0, failed=0)
    return SimpleNamespace(
        home=home,
        settings=config.load(home.config),
        serve=config.ServeSection(),
        forward=None,
        recorder=recorder,
    )


def route(handler: Callable[[Any, Any], Any], **query: str) -> Callable[[Home], Any]:
    return lambda home: handler(_serving(home), _asked(**query))


def in_store(use: Callable[[store.Store], Any]) -> Callable[[Home], Any]:
    def run(home: Home) -> Any:
        with store.connect(home.database) as db:
            return use(db)

    return run


def capture(home: Home) -> None:
    with store.connect(home.database) as db, db.together():
        messages = ({"role": "user", "content": "And now?"},)
        place = db.count_turns().to_bytes(32)
        assert db.at_place([b"nowhere", place]) is None
        db.insert_turn(Turn("new", messages, "This.", event_id=f"new-{db.count_turns()}"), places=[place])


def select(home: Home) -> None:
    """What a run begins with."""
    chosen = config.Config(training=config.TrainingSection(newest=LEARNS_FROM))
    with store.connect(home.database) as db:
        said = inputs.settled(db, chosen)
        samples = feedback.samples(db, [f.id for f in said])
        train, held = feedback.split(samples, 0.125, splits=db.splits(s.turn_id for s in samples))
        assert train
        assert held
        inputs.prompts(db, {s.turn_id for s in held}, 2e9, 0.125)


EVERYDAY: dict[str, Callable[[Home], Any]] = {
    "capture": capture,
    "rating": in_store(lambda db: feedback.rate(db, 1, 1.0)),
    "is a run due": in_store(lambda db: db.count_fresh(32)),
    "undo": in_store(lambda db: db.last_feedback()),
    "the last turn": in_store(lambda db: db.last_turn(cwd="/home/me/work")),
    "turns for a judge": in_store(lambda db: db.followed_turns("judge:new", 10)),
    "selection": select,
    "status": route(api.status),
    "inbox": route(api.inbox),
    "pairs": route(api.inbox_pairs),
    "turns": route(api.turns),
    "rated turns": route(api.turns, rated="yes", kind="main"),
    "unrated turns": route(api.turns, rated="no", kind="side"),
    "turns before": route(api.turns, before="300"),
    "search": route(api.search, text="in no turn"),
    "one turn": route(api.turn, id="301"),
    "turns of a session": route(api.turns, session="grown-0000000000000010"),
    "sessions": route(api.sessions),
    "one session": route(api.session, name="grown-0000000000000010"),
    "versions": route(api.versions),
    "runs": route(api.runs),
    "learning": route(api.learning),
    "health": route(api.health),
}
