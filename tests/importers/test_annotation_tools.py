"""There and back: what raters said survives the way through Argilla's and Label Studio's files, and what is annotated there comes in."""

from __future__ import annotations

import json
import uuid
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from clawback import feedback, store
from clawback.cli import main
from clawback.errors import UsageError
from clawback.extensions.importers import annotation_tools as tools
from clawback.paths import Home
from clawback.records import Turn

BOTH = pytest.mark.parametrize("tool", ["argilla", "label-studio"])


def fill(home: Home) -> None:
    with store.connect(home.database) as db:
        db.invite("anna", "rater")
        talk = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Why?"})  # fmt: skip
        one = db.add_turn(Turn("s", talk, "So.", version=3, model="the-model"))
        two = db.add_turn(Turn("s", ({"role": "user", "content": "What?"},), "That."))
        db.add_turn(Turn("s", ({"role": "user", "content": "Who?"},), "Nobody."))
        feedback.score(db, one.id, 3, source="rater:anna")
        feedback.score(db, one.id, 8, source="rater:anna")
        feedback.rate(db, one.id, -1, source="cli")
        feedback.critique(db, one.id, "Too short.", source="rater:anna")
        feedback.edit(db, two.id, "This.", source="cli")


def standing(home: Home) -> set[tuple[int, str, str, float, str]]:
    with store.connect(home.database) as db:
        newest = {(f.turn_id, f.author, f.kind): f for f in db.feedback()}
    return {(f.turn_id, f.author, f.kind, round(f.value, 6), f.text) for f in newest.values()}


@BOTH
def test_there_and_back_changes_nothing(home: Home, tmp_path: Path, tool: tools.Tool) -> None:
    fill(home)
    before, path = standing(home), tmp_path / "x.json"
    with store.connect(home.database) as db:
        assert tools.export(db, path, tool) == 2
        report = tools.import_file(db, path, tool)
    assert (report.turns, report.feedback, report.problems) == (0, 0, [])
    assert standing(home) == before
    assert "the-model" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


@BOTH
def test_into_another_home_comes_what_stands_alone(home: Home, tmp_path: Path, tool: tools.Tool) -> None:
    fill(home)
    path, other = tmp_path / "x.json", Home(tmp_path / "other")
    with store.connect(home.database) as db:
        tools.export(db, path, tool)
    with store.connect(other.database) as db:
        report = tools.import_file(db, path, tool)
        assert (report.turns, report.feedback) == (1, 1)
        assert "conversation that this home does not have" in report.problems[0]
        [edit] = db.feedback()
    assert (edit.kind, edit.text) == ("edit", "This.")
    assert edit.author.startswith(f"{tool}:")


@BOTH
def test_blind_and_everything(home: Home, tmp_path: Path, tool: tools.Tool) -> None:
    fill(home)
    path = tmp_path / "x.json"
    with store.connect(home.database) as db:
        assert tools.export(db, path, tool, everything=True, blind=True) == 3
    assert not any(one.get("responses") or one.get("annotations") for one in json.loads(path.read_text()))
    assert "anna" not in path.read_text()


def test_what_is_annotated_in_label_studio_comes_in(home: Home, tmp_path: Path) -> None:
    """An export of a project: regions as its editor writes them, people by e-mail or number."""
    fill(home)
    path = tmp_path / "x.json"
    with store.connect(home.database) as db:
        tools.export(db, path, "label-studio", everything=True, blind=True)
    tasks: list[dict[str, Any]] = json.loads(path.read_text())
    score = {"id": "a1", "from_name": "score", "to_name": "response", "type": "rating", "origin": "manual", "value": {"rating": 2}}  # fmt: skip
    remark = {"id": "a2", "from_name": "remark", "to_name": "response", "type": "textarea", "value": {"text": ["No."]}}  # fmt: skip
    tasks[0]["annotations"] = [
        {"id": 7, "completed_by": {"id": 1, "email": "ben@example.org"}, "result": [score, remark], "was_cancelled": False},
        {"id": 8, "completed_by": 4, "result": [score | {"value": {"rating": 9}}]},
        {"id": 9, "completed_by": 5, "result": [score], "was_cancelled": True},
    ]  # fmt: skip
    tasks[1]["annotations"] = [{"result": [score | {"value": {"rating": 12}}]}]
    path.write_text(json.dumps(tasks))
    with store.connect(home.database) as db:
        report = tools.import_file(db, path, "label-studio")
        said = {(f.author, f.kind, round(f.value, 2)) for f in db.feedback(turn_id=1) if f.author.startswith("label")}  # fmt: skip
    assert report.feedback == 3
    assert report.problems == ["task 2: the score 12 is not from 1 to 10"]
    assert said == {("label-studio:ben@example.org", "rating", -0.78), ("label-studio:ben@example.org", "critique", 0.0), ("label-studio:4", "rating", 0.78)}  # fmt: skip


def test_argillas_people_are_uuids(home: Home, tmp_path: Path) -> None:
    fill(home)
    path, stranger = tmp_path / "x.json", str(uuid.uuid4())
    with store.connect(home.database) as db:
        tools.export(db, path, "argilla")
    records: list[dict[str, Any]] = json.loads(path.read_text())
    assert {r["user_id"] for r in records[0]["responses"]["score"]} == {tools.user_id("rater:anna"), tools.user_id("owner")}  # fmt: skip
    records[0]["responses"]["score"] = [{"value": 5, "user_id": stranger}, {"value": 1, "user_id": tools.user_id("rater:anna")}]  # fmt: skip
    path.write_text(json.dumps(records))
    with store.connect(home.database) as db:
        assert tools.import_file(db, path, "argilla").feedback == 2
        newest = {f.author: f.value for f in db.feedback(turn_id=1) if f.kind == "rating"}
    assert newest["rater:anna"] == -1.0
    assert newest[f"argilla:{stranger}"] == pytest.approx(-1 / 9)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "{", "[" * 100_000])
def test_what_is_no_export_is_said_so(home: Home, tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with store.connect(home.database) as db, pytest.raises(UsageError):
        tools.import_file(db, path, "argilla")


def test_as_it_is_typed(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(home)
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    path = tmp_path / "tasks.json"
    assert main(["export", str(path), "--format", "label-studio", "--all", "--blind"]) == 0
    config = ET.parse(tmp_path / "tasks.xml")
    names = {e.get("name") for e in config.iter() if e.get("name")}
    assert names == {"before", "prompt", "response", "score", "edit", "remark"}
    assert {e.get("value", "")[1:] for e in config.iter("Text")} <= set(
        json.loads(path.read_text())[0]["data"]
    )
    assert main(["import", str(path), "--format", "label-studio"]) == 0
    assert main(["export", str(path), "--format", "argilla", "--person", "cli"]) == 2
    assert main(["export", str(path), "--blind"]) == 2


def test_argillas_own_reader_takes_the_records(home: Home, tmp_path: Path) -> None:
    argilla = pytest.importorskip("argilla", reason="argilla is not installed")
    fill(home)
    path = tmp_path / "x.json"
    with store.connect(home.database) as db:
        tools.export(db, path, "argilla")
    for one in json.loads(path.read_text()):
        read = argilla.Record.from_dict(one).to_dict()
        assert read["fields"] == one["fields"]
        assert read["responses"] == one["responses"]
