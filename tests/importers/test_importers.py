"""Files in and out: nothing twice, nothing half, and what goes out comes back the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawback import feedback, store
from clawback.capture import hook
from clawback.errors import NotFound
from clawback.extensions import importers
from clawback.paths import Home
from clawback.records import Turn


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
            {"prompt": "c", "response": "C", "score": 3},
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
        "c": [("rating", -5 / 9, "")],
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
        ({"prompt": "x", "response": "y", "rating": "11/10"}, "from 1 to 10"),
        ({"prompt": "x", "response": "y", "score": 4}, "`--scale 1-5` or `--scale 1-10`"),
        ({"prompt": "x", "response": "y", "rating": "so so"}, "not a number"),
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
    assert found == [("hello", "Done.", "claude-code", 3), ("again", "Done again.", "claude-code", 3)]
    assert (report.turns, again.turns, again.known) == (2, 0, 2)


RECORDED = Path(__file__).parents[1] / "capture" / "recorded"


def _record(folder: Path, name: str, steps: list[dict[str, Any]]) -> Path:
    lines = [json.dumps(step["record"]) for step in steps if "record" in step]
    file = folder / f"{name}.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return file


def _steps(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "name", ["steered", "queued", "two-blocks", "in-the-background", "interrupted-with-one-queued"]
)
@pytest.mark.parametrize("seen", [True, False])
def test_what_hooks_captured_of_a_transcript_is_known(
    home: Home, tmp_path: Path, name: str, seen: bool
) -> None:
    """With the agent's record at hand, or as it was captured without."""
    steps = _steps(f"claude-code-{name}")
    file = _record(tmp_path, name, steps)
    for step in steps:
        if "event" in step:
            event = step["event"] | ({"transcript_path": str(file)} if seen else {})
            hook.handle(home, "claude-code", json.dumps(event).encode())
    with store.connect(home.database) as db:
        mine = [turn.response for turn in db.turns() if turn.kind == "main"]
        importers.import_transcripts(db, file)
        # Hooks are told nothing of an answer that was interrupted.
        whole = [turn.response for turn in db.turns() if turn.kind == "main" and not turn.cut]
        assert whole == mine


def test_an_imported_turn_keeps_its_time_and_is_never_the_last_answer(home: Home, tmp_path: Path) -> None:
    with store.connect(home.database) as db:
        now = db.add_turn(Turn("now", ({"role": "user", "content": "one"},), "first", cwd="/project")).id
        importers.import_transcripts(db, _record(tmp_path, "steered", _steps("claude-code-steered")))
        newest = db.turns()[0]
        assert (newest.prompt, newest.cwd) == ("SLOWTOOL first ask\n\nsteering remark second ask", "/project")
        assert newest.created_at == pytest.approx(1795351142.484)
        last = db.last_turn(cwd="/project")
        assert last is not None
        assert last.id == now


def test_a_failed_answer_is_no_turn_and_an_interrupted_one_is_cut(home: Home, tmp_path: Path) -> None:
    with store.connect(home.database) as db:
        importers.import_transcripts(db, _record(tmp_path, "failed", _steps("claude-code-failed")))
        assert db.turns() == []
        importers.import_transcripts(db, _record(tmp_path, "interrupted", _steps("claude-code-interrupted")))
        assert [(turn.kind, turn.ending) for turn in db.turns()] == [
            ("main", "interrupted"),
            ("main", "done"),
        ]
