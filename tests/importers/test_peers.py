"""What comes along from ReinforceClaw and OpenClaw-RL. The database is made with the schema of ReinforceClaw 0.1.0; the record file's lines are as its server writes them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clawback import store
from clawback.cli import main
from clawback.errors import NotFound, UsageError
from clawback.extensions.importers import peers
from clawback.paths import Home

COLUMNS = "id INTEGER PRIMARY KEY, model TEXT, prompt TEXT, response TEXT, context TEXT, rollout_context TEXT, event_id TEXT, rating INTEGER, source TEXT, trained INTEGER, adapter_version INTEGER, created_at TEXT"


def database(path: Path, *rows: dict[str, Any]) -> Path:
    with sqlite3.connect(path) as db:
        db.execute(f"CREATE TABLE feedback ({COLUMNS})")
        for row in rows:
            whole = {"model": "qwen", "source": "claude_code", "created_at": "2026-04-01 10:00:00"} | row
            db.execute(
                f"INSERT INTO feedback ({', '.join(whole)}) VALUES ({', '.join('?' * len(whole))})",
                tuple(whole.values()),
            )
    db.close()
    return path


def test_reinforceclaws_ratings_come_with_their_conversations(home: Home, tmp_path: Path) -> None:
    before = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
              {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Why?"}]  # fmt: skip
    path = database(
        tmp_path / "r.db",
        {"prompt": "Why?", "response": "So.", "rating": 1, "event_id": "e1",
         "rollout_context": json.dumps({"messages": before, "session_id": "s1", "cwd": "/x"})},
        {"prompt": "What?", "response": "This: sk-ant-api03-" + "a" * 80, "rating": -1, "source": "telegram"},
        {"prompt": "Nothing", "response": "", "rating": 1},
        {"prompt": "Odd", "response": "x", "rating": 7},
        {"prompt": "Broken", "response": "y", "rating": -1, "rollout_context": "{"},
        {"prompt": "Passed over", "response": "z", "rating": 0},
    )  # fmt: skip
    with store.connect(home.database) as db:
        report = peers.import_reinforceclaw(db, path, licence="mine")
        assert (report.turns, report.feedback, len(report.problems)) == (4, 3, 2)
        first, second = db.turn(1), db.turn(2)
        assert [m["role"] for m in first.messages] == ["system", "user", "assistant", "user"]
        assert (first.session, first.cwd, first.agent, first.licence) == ("s1", "/x", "claude-code", "mine")
        assert "sk-ant" not in second.response
        assert [(f.turn_id, f.value, f.source) for f in db.feedback()] == [(1, 1.0, "claude_code"), (2, -1.0, "telegram"), (3, -1.0, "claude_code")]  # fmt: skip
        assert first.created_at == 1775037600.0
        again = peers.import_reinforceclaw(db, path)
        assert (again.turns, again.feedback, again.known) == (0, 0, 4)


ENDLESS = {
    "a view over an endless query": (
        "CREATE VIEW feedback AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) "
        "SELECT id, 'p' prompt, 'r' response, 1 rating FROM n"
    ),
    "a view without a first row": (
        "CREATE VIEW feedback AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) "
        "SELECT id, 'p' prompt, 'r' response, 1 rating FROM n WHERE id < 0"
    ),
    "a virtual table": "CREATE VIRTUAL TABLE feedback USING fts5(id, prompt, response, rating)",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_database_that_is_a_program_is_refused(name: str, home: Home, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "r.db")) as db:
        db.execute(ENDLESS[name])
        db.commit()
    with store.connect(home.database) as db, pytest.raises(UsageError, match="is a program"):
        peers.import_reinforceclaw(db, tmp_path / "r.db")


def test_a_column_that_is_computed_without_end_is_stopped(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "MOST_BYTES", 1 << 20)
    with closing(sqlite3.connect(tmp_path / "r.db")) as db:
        db.execute(
            "CREATE TABLE feedback (id INTEGER PRIMARY KEY, prompt TEXT, rating INTEGER, "
            "response TEXT AS (hex(zeroblob(100000000))) VIRTUAL)"
        )
        db.execute("INSERT INTO feedback (prompt, rating) VALUES ('p', 1)")
        db.commit()
    with store.connect(home.database) as db, pytest.raises(UsageError, match="too big"):
        peers.import_reinforceclaw(db, tmp_path / "r.db")


def test_a_row_has_a_time(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "ROW_SECONDS", 0.0)
    path = database(
        tmp_path / "r.db", *({"prompt": f"p{n}", "response": "r", "rating": 1} for n in range(5000))
    )
    with store.connect(home.database) as db, pytest.raises(UsageError, match="interrupted"):
        peers.import_reinforceclaw(db, path)


def test_what_is_no_such_database_is_said_so(home: Home, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as raw:
        raw.execute("CREATE TABLE feedback (id INTEGER PRIMARY KEY, x TEXT)")
        raw.execute("INSERT INTO feedback VALUES (1, 'x')")
    raw.close()
    text = tmp_path / "text.db"
    text.write_text("no database at all")
    with store.connect(home.database) as db:
        for path in (other, text):
            with pytest.raises(UsageError, match="no database of ReinforceClaw's"):
                peers.import_reinforceclaw(db, path)
        with pytest.raises(NotFound):
            peers.import_reinforceclaw(db, tmp_path / "none.db")


def line(turn: int, said: str, **more: Any) -> dict[str, Any]:
    return {"session_id": "s", "turn": turn, "timestamp": "2026-04-01 10:00:00", "prompt_text": "…", "response_text": said,
            "messages": [{"role": "user", "content": f"Question {turn}"}], "tool_calls": None, "next_state": None} | more  # fmt: skip


def test_openclaw_rls_records_come_with_their_judges_votes(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    call = {"id": "c", "type": "function", "function": {"name": "Read", "arguments": "{}"}}
    lines = [
        line(
            1, "<think>Easy.</think>\n\nFour.<|im_end|>\n", next_state={"role": "user", "content": "Right."}
        ),
        line(2, '<tool_call>{"name": "Read"}</tool_call><|im_end|>', tool_calls=[call]),
        line(1, "Five.<|im_end|>\n"),  # the session was over, and its turns are counted anew
        {"session_id": "s", "turn": 3},
    ]
    votes = [{"session_id": "s", "turn": 1, "score": 1.0, "votes": [1, 1, 1], "representative_eval": "They agree."},
             {"session_id": "s", "turn": 2, "score": 0.0, "votes": [0, 1, -1]},
             {"session_id": "s", "turn": 1, "score": -1.0, "votes": [-1, -1, 1], "representative_eval": "Wrong."}]  # fmt: skip
    path = tmp_path / "rec.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines) + "half a li")
    (tmp_path / "rec_prm.jsonl").write_text("".join(json.dumps(one) + "\n" for one in votes))
    assert main(["import", str(path), "--format", "openclaw-rl", "--consent", "yes"]) == 1
    assert "3 turns and 2 pieces of feedback" in capsys.readouterr().out
    with store.connect(home.database) as db:
        first, second, third = db.turn(1), db.turn(2), db.turn(3)
        assert (first.response, first.thinking, first.consent) == ("Four.", "Easy.", "yes")
        assert first.next_state[0]["content"] == "Right."
        assert (second.response, second.calls[0]["name"]) == ("", "Read")
        assert third.response == "Five."
        said = [(f.turn_id, f.kind, f.value, f.source) for f in db.feedback()]
    assert said == [(1, "judge", 1.0, "judge:openclaw-rl"), (3, "judge", -1.0, "judge:openclaw-rl")]
    main(["import", str(path), "--format", "openclaw-rl"])
    assert "0 turns and 0 pieces of feedback" in capsys.readouterr().out
