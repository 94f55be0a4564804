"""What a run learns from, as a column; databases from before it are migrated by what was read until then."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import get_args

import pytest

from clawback import store
from clawback.paths import Home
from clawback.records import Run, RunKind
from clawback.store import connection


@pytest.mark.parametrize("kind", get_args(RunKind))
def test_every_kind_is_kept(tmp_path: Path, kind: RunKind) -> None:
    home = Home(tmp_path)
    with store.connect(home.database) as db:
        entered = db.add_ended_run(Run("m", "", "reinforce", {}, 0, 0, kind=kind))
        assert (entered.kind, db.runs()[0].kind) == (kind, kind)


def test_runs_of_older_databases_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = tmp_path / "migrations"
    older.mkdir()
    for file in connection.MIGRATIONS.glob("*.sql"):
        if int(file.name[:4]) < 22:
            (older / file.name).write_text(file.read_text())
    home = Home(tmp_path / "home")
    home.create()
    runs = [
        ("reinforce", {}, "ratings"), ("grpo", {"extra": {"gym": {"task": "x"}}}, "episodes"),
        ("mis-po", {"extra": {"gym": None}}, "ratings"), ("prompt", {"calls": 3}, "prompt"),
        ("federated", {"extra": {"rank": 4}}, "federated"), ("adopted", {}, "adopted"),
    ]  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr(connection, "MIGRATIONS", older)
        store.connect(home.database).close()
    with sqlite3.connect(home.database) as raw:
        for algorithm, recipe, _ in runs:
            raw.execute(
                "INSERT INTO runs (status, base, base_revision, algorithm, recipe, seed, parent, created_at)"
                " VALUES ('done', 'm', '', ?, ?, 0, 0, 1.0)",
                (algorithm, json.dumps(recipe)),
            )
    with store.connect(home.database) as db:
        assert [run.kind for run in reversed(db.runs())] == [kind for _, _, kind in runs]
