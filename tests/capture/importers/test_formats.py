"""Every format: what it is shows by its shape, and the values of its answers and opinions are right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawback import store
from clawback.cli import main
from clawback.store import Store

from .layouts import HISTORIES, SETS, Case


def text_of(case: Case) -> str:
    return case.data if isinstance(case.data, str) else json.dumps(case.data)


def bring(path: Path, *more: str) -> int:
    return main(["import", str(path), "--yes", *more])


def opened(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    monkeypatch.setenv("CLAWBACK_HOME", str(folder / "home"))
    return folder / "home" / "clawback.db"


def answers(db: Store) -> dict[str, str]:
    return {t.response: t.prompt for t in db.turns(limit=99)}


def opinions(db: Store) -> list[tuple[str, str, object]]:
    text = {t.id: t.response for t in db.turns(limit=99)}
    found = []
    for f in db.feedback():
        value: object = text[f.other_turn_id] if f.other_turn_id else f.text if f.kind in ("edit", "critique") else round(f.value, 6)  # fmt: skip
        found.append((f.kind, text[f.turn_id], value))
    return sorted(found, key=repr)


@pytest.mark.parametrize("case", [*HISTORIES, *SETS], ids=lambda case: case.name)
def test_a_file_is_read_by_its_shape(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = opened(monkeypatch, tmp_path)
    path = tmp_path / f"a.{case.name.rpartition('.')[2]}"  # its name says nothing
    path.write_text(text_of(case), "utf-8")
    assert bring(path) == 0
    expected = [(kind, answer, round(value, 6) if isinstance(value, float) else value) for kind, answer, value in case.opinions]  # fmt: skip
    with store.connect(database) as db:
        assert answers(db) == case.answers
        assert opinions(db) == sorted(expected, key=repr)
        people = {f.author for f in db.feedback() if f.kind != "implicit"}
        assert people == ({case.person} if people else set())
        counts = db.count_turns(), db.count_all_feedback()
    assert bring(path) == 0
    with store.connect(database) as db:
        assert (db.count_turns(), db.count_all_feedback()) == counts, "the same file twice adds nothing"
