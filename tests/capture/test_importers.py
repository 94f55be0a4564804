"""Files in and out: nothing twice, nothing half, and what goes out comes back the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawback import feedback, store
from clawback.capture import importers
from clawback.errors import NotFound
from clawback.paths import Home


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines), "utf-8")
    return path


def test_every_form_of_feedback_in_a_line_is_stored(home: Home, tmp_path: Path) -> None:
    file = write(
        tmp_path / "in.jsonl",
        [
            {"prompt": "a", "response": "A", "rating": -1, "note": "too long"},
            {
                "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "b"}],
                "response": "B",
                "score": 10,
            },
            {"prompt": "c", "response": "C", "score": 0.75},
            {"prompt": "d", "response": "D", "edit": "D!", "critique": "say it louder"},
            {"prompt": "e", "response": "E"},
        ],
    )
    with store.connect(home.database) as db:
        report = importers.import_file(db, file)
        assert (report.turns, report.feedback, report.problems) == (5, 5, [])
        by_prompt = {
            t.prompt: [(f.kind, f.value, f.text) for f in db.feedback(turn_id=t.id)]
            for t in db.turns(limit=9)
        }
    assert by_prompt == {
        "a": [("rating", -1.0, "too long")],
        "b": [("rating", 1.0, "")],
        "c": [("rating", 0.5, "")],
        "d": [("edit", 0.0, "D!"), ("critique", 0.0, "say it louder")],
        "e": [],
    }


def test_the_same_file_twice_brings_nothing_twice(home: Home, tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", [{"prompt": "a", "response": "A", "rating": 1}])
    with store.connect(home.database) as db:
        importers.import_file(db, file)
        again = importers.import_file(db, file)
        assert (again.turns, again.feedback, again.known) == (0, 0, 1)
        assert len(db.feedback()) == 1


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ({"response": "x"}, "`prompt` or `messages`"),
        ({"prompt": "x"}, "`response`"),
        ({"prompt": "x", "response": "y", "rating": 7}, "between -1 and 1"),
        ({"prompt": "x", "response": "y", "score": 11}, "between 1 and 10"),
        ({"prompt": "x", "response": "y", "rating": "good"}, "not a number"),
        ({"prompt": "x", "response": "y", "note": 3, "rating": 1}, "not text"),
        ({"messages": [{"content": "x"}], "response": "y"}, "no `role`"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_line_is_named_and_the_good_ones_are_kept(
    home: Home, tmp_path: Path, line: Any, why: str
) -> None:
    file = write(
        tmp_path / "in.jsonl", [{"prompt": "a", "response": "A"}, line, {"prompt": "b", "response": "B"}]
    )
    with store.connect(home.database) as db:
        report = importers.import_file(db, file)
        assert report.turns == db.count_turns() == 2
    [problem] = report.problems
    assert problem.startswith("line 2: ")
    assert why in problem


def test_a_score_reads_on_the_scale_that_was_named(home: Home, tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", [{"prompt": "a", "response": "A", "score": 1.0}])
    with store.connect(home.database) as db:
        importers.import_file(db, file, scale="0-1")
        assert [f.value for f in db.feedback()] == [1.0]
    other = Home(tmp_path / "other")
    other.create()
    with store.connect(other.database) as db:
        importers.import_file(db, file, scale="1-10")
        assert [f.value for f in db.feedback()] == [-1.0]


def test_what_goes_out_comes_back_the_same(home: Home, tmp_path: Path) -> None:
    with store.connect(home.database) as db:
        importers.import_file(
            db,
            write(
                tmp_path / "in.jsonl",
                [
                    {"prompt": f"p{i}", "response": f"r{i} 🦦\n", "rating": (-1) ** i, "note": "ñ"}
                    for i in range(30)
                ],
            ),
        )
        feedback.edit(db, 3, "better")
        count = importers.export_file(db, tmp_path / "out.jsonl")
        first = [(s.messages, s.response, s.reward) for s in feedback.samples(db)]
    other = Home(tmp_path / "other")
    other.create()
    with store.connect(other.database) as db:
        report = importers.import_file(db, tmp_path / "out.jsonl")
        second = [(s.messages, s.response, s.reward) for s in feedback.samples(db)]
        importers.export_file(db, tmp_path / "again.jsonl")
    assert count == report.turns == 30
    assert first == second
    assert (tmp_path / "out.jsonl").read_text("utf-8") == (tmp_path / "again.jsonl").read_text("utf-8")
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o077 == 0


def test_a_missing_file_is_named(home: Home) -> None:
    with store.connect(home.database) as db, pytest.raises(NotFound, match=r"no file .*nowhere"):
        importers.import_file(db, Path("/nowhere"))


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(
            ["prompt", "messages", "response", "rating", "score", "note", "edit", "session", "event_id"]
        ),
        json_values,
    )
)
def test_any_json_object_is_stored_whole_or_named(tmp_path: Path, line: dict[str, Any]) -> None:
    file = write(tmp_path / "in.jsonl", [line])
    with store.connect(tmp_path / "fuzz.db") as db:
        report = importers.import_file(db, file)
    assert report.turns + report.known + len(report.problems) == 1


HUMAN = {"origin": {"kind": "human"}, "sessionId": "s"}


def user(text: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}, **HUMAN, **more}


def assistant(uuid: str, *content: Any, **more: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": c} if isinstance(c, str) else c for c in content]
    message = {"role": "assistant", "model": "m", "content": blocks}
    return {"type": "assistant", "uuid": uuid, "sessionId": "s", "message": message, **more}


def test_a_transcript_gives_what_a_person_asked_and_was_told(home: Home, tmp_path: Path) -> None:
    tool = {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}
    result = user([{"type": "tool_result", "tool_use_id": "t", "content": "ran"}])
    file = write(
        tmp_path / "s.jsonl",
        [
            {"type": "queue-operation", "x": 1},
            user("hello"),
            assistant("a1", "Let me look.", tool),
            result,
            assistant("a2", "Done."),
            assistant("side", "not this", isSidechain=True),
            user("<task-notification>x</task-notification>", origin={"kind": "task"}),
            user([{"type": "text", "text": "again"}]),
            assistant("a3", "Done again."),
            user("never answered"),
            '{"type":"assistant","message":{"role":"assi',
        ],
    )
    with store.connect(home.database) as db:
        report = importers.import_transcripts(db, tmp_path)
        again = importers.import_transcripts(db, file)
        found = [(t.prompt, t.response, t.agent, len(t.messages)) for t in reversed(db.turns(limit=9))]
    assert found == [("hello", "Done.", "claude-code", 1), ("again", "Done again.", "claude-code", 3)]
    assert (report.turns, again.turns, again.known) == (2, 0, 2)
