"""The commands of every day, as a person types them: what they print, what they exit with, and what is stored."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clawback import paths, store
from clawback.cli import COMMANDS, SUMMARIES, main
from clawback.records import Feedback, Rule, Turn, Version
from clawback.training_commands import versions

from .conftest import Terminal


@pytest.fixture
def turns() -> None:
    """Three captured turns; the second one from this folder."""
    with store.connect(paths.home().database) as db:
        for number, cwd in enumerate(("/elsewhere", str(Path.cwd()), "/elsewhere"), 1):
            messages = ({"role": "user", "content": f"question {number}"},)
            db.add_turn(Turn(session="s", messages=messages, response=f"answer {number}", cwd=cwd))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_help_lists_every_command_and_imports_none(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(name in out for name in COMMANDS)
    assert set(COMMANDS) == set(SUMMARIES)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_commands_help_shows_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert f"clawback {command}" in out


def test_a_tap_rates_the_newest_turn_of_this_folder(capsys: pytest.CaptureFixture[str], turns: None) -> None:
    assert data(capsys, "good")["turn_id"] == 2
    assert data(capsys, "bad", "--turn", "3", "--remark", "long")["text"] == "long"
    assert data(capsys, "rate", "10", "--turn", "1")["value"] == 1
    assert data(capsys, "prefer", "1", "3")["other_turn_id"] == 3
    assert data(capsys, "edit", "3", "--text", "better")["kind"] == "edit"
    assert data(capsys, "critique", "3", "why so long")["kind"] == "critique"
    assert data(capsys, "undo")["kind"] == "critique"
    assert [t["id"] for t in data(capsys, "turns", "--rated")] == [3, 2, 1]
    shown = data(capsys, "show", "3")
    assert shown["reward"] == pytest.approx(
        (-1 * 1 - 0.5 * 0.5 - 0.5 * 0.5) / 2
    )  # rating, preference, edit by weight
    assert len(shown["parts"]) == 3


def test_in_a_folder_without_turns_none_of_another_is_rated_unasked(
    capsys: pytest.CaptureFixture[str], turns: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "good")
    assert (code, out) == (2, "")
    assert "There is no turn of this folder. The newest is turn 3" in err
    assert "--any" in err
    assert data(capsys, "bad", "--any")["turn_id"] == 3


def test_ratings_that_came_to_nothing_are_told_of(capsys: pytest.CaptureFixture[str], turns: None) -> None:
    with store.connect(paths.home().database) as db:
        db.put_early("codex:prompt:s:1", Feedback(0, "rating", -1.0, event_id="1"))
        db.put_early("codex:prompt:s:2", Feedback(0, "rating", 1.0, event_id="2"))
        db.lose_early("codex:prompt:s:1", "its answer never came")
    status = data(capsys, "status")
    assert (status["waiting"], [one["lost"] for one in status["lost"]]) == (1, ["its answer never came"])
    assert "Lost      bad, " in run(capsys, "status")[1]
    code, out, _ = run(capsys, "doctor")
    assert code == 1
    assert "BAD  1 of your ratings came to nothing: its answer never came" in out


def test_status_shows_a_rule_that_waits_for_a_yes(capsys: pytest.CaptureFixture[str], turns: None) -> None:
    with store.connect(paths.home().database) as db:
        rule = db.add_rule(Rule("Speak of fire.", 'says "fire" = yes', "agent:some", status="believed"))
        db.add_rule(Rule("Use no list.", "list = no", status="believed"))
    assert data(capsys, "status")["rules"] == [{"id": rule.id, "text": "Speak of fire."}]
    assert f"clawback rules keep {rule.id}" in run(capsys, "status")[1]
    assert run(capsys, "rules", "keep", str(rule.id))[0] == 0
    assert data(capsys, "status")["rules"] == []


def test_a_rating_that_was_replaced_is_not_counted(capsys: pytest.CaptureFixture[str], turns: None) -> None:
    run(capsys, "bad", "--turn", "1")
    run(capsys, "rate", "8", "--turn", "1")
    status = data(capsys, "status")
    assert (status["good"], status["bad"]) == (1, 0)


def test_what_is_shown_to_a_person(capsys: pytest.CaptureFixture[str], turns: None) -> None:
    assert run(capsys, "good")[1] == 'Noted: good. (turn 2: "answer 2")\n'
    assert "> question 2\n\nanswer 2" in run(capsys, "show", "2")[1]
    assert "1 good, 0 bad" in run(capsys, "status")[1]
    listed = run(capsys, "turns")[1].splitlines()
    assert len(listed) == 3
    assert "good" in listed[1]


def test_what_was_said_is_shown_in_words(capsys: pytest.CaptureFixture[str], turns: None) -> None:
    run(capsys, "bad", "--turn", "2", "--note", "too long")
    run(capsys, "edit", "2", "--text", "Shorter.")
    run(capsys, "prefer", "1", "2")
    run(capsys, "critique", "2", "Bullets, please.")
    shown = run(capsys, "show", "2")[1]
    for line in ("rating -1 too long (", "edit: Shorter. (", "preference: 1 is better than 2 (", "remark: Bullets, please. ("):  # fmt: skip
        assert f"  {line}" in shown


def test_an_empty_list_says_why(capsys: pytest.CaptureFixture[str], turns: None) -> None:
    assert run(capsys, "turns", "--search", "whale")[1] == "No turn is like that.\n"


def test_status_as_data(capsys: pytest.CaptureFixture[str], turns: None) -> None:
    run(capsys, "good")
    status = data(capsys, "status")
    assert (status["live"], status["turns"], status["good"], status["fresh"], status["run"]) == (
        0,
        3,
        1,
        1,
        None,
    )


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("good", "--turn", "99"), 2, "There is no turn 99"),
        (("rate", "11"), 2, "A score is from 1 to 10, not 11"),
        (("show", "99"), 2, "There is no turn 99"),
        (("undo",), 2, "no feedback to take back"),
        (("prefer", "1", "1"), 2, "cannot be better than itself"),
        (("edit", "1", "--text", " "), 2, "empty"),
        (("import", "/nowhere.jsonl"), 2, "no file or folder /nowhere.jsonl"),
        (("nonsense",), 2, "There is no command `nonsense`"),
        (("good", "--nonsense"), 2, "There is no option `--nonsense`"),
        (("backup", "/no/such/folder/x.db"), 1, "could not be written"),
    ],
)
def test_wrong_use_is_said_in_a_sentence(
    capsys: pytest.CaptureFixture[str], turns: None, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    found, out, err = run(capsys, *arguments)
    assert found == code
    assert sentence in err
    assert "Traceback" not in err
    assert out == ""


def test_settings_that_cannot_be_used_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    home = paths.home()
    home.create()
    home.config.write_text('[training]\nthreshold = "many"\n')
    code, _, err = run(capsys, "status")
    assert code == 2
    assert "Expected `int`, got `str` - at `$.training.threshold`" in err


def test_a_file_goes_in_and_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = [{"prompt": "a", "response": "A", "rating": 1}, {"prompt": "b"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, out, _ = run(capsys, "import", str(tmp_path / "in.jsonl"))
    assert code == 1, "one line could not be read"
    assert "line 2: `response` is missing" in out
    assert data(capsys, "export", str(tmp_path / "out.jsonl"))["turns"] == 1
    assert json.loads((tmp_path / "out.jsonl").read_text())["rating"] == 1
    assert run(capsys, "backup", str(tmp_path / "copy.db"))[0] == 0
    with store.connect(tmp_path / "copy.db") as copy:
        assert copy.count_turns() == 1


def test_init_and_remove_leave_the_agents_settings_as_they_were(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    settings = tmp_path / "settings.json"
    settings.write_bytes(b'{"model":  "opus"}')
    arguments = (
        "init",
        "--yes",
        "--agent",
        "claude-code",
        "--settings",
        str(settings),
        "--model",
        "embedded",
        "--preset",
        "careful",
    )
    assert str(settings) in data(capsys, *arguments)["changed"]
    assert "clawback" in settings.read_text()
    assert 'preset = "careful"' in paths.home().config.read_text()
    assert str(settings) not in data(capsys, *arguments)["changed"]
    data(capsys, "init", "--remove", "--yes")
    assert settings.read_bytes() == b'{"model":  "opus"}'


def test_removing_says_which_files_were_removed_and_which_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    settings = tmp_path / "settings.json"
    settings.write_bytes(b"{}")
    data(
        capsys, "init", "--yes", "--agent", "claude-code", "--settings", str(settings), "--model", "embedded"
    )
    out = run(capsys, "init", "--remove", "--yes")[1]
    assert "Your ratings and versions stay in " in out
    assert f"wrote {settings}\n" in out
    assert f"removed {tmp_path / 'commands' / 'rl.md'}\n" in out


def test_the_wizard_shows_what_it_will_change_and_takes_no_for_an_answer(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    parent, child = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "clawback",
        "init",
        "--agent",
        "claude-code",
        "--no-service",
        "--settings",
        str(settings),
    ]
    process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child)
    os.close(child)
    os.write(parent, b"embedded\nbalanced\nn\n")
    shown = b""
    try:
        while chunk := os.read(parent, 4096):
            shown += chunk
    except OSError:  # the other end has closed
        pass
    assert process.wait(timeout=30) == 130
    assert str(settings).encode() in shown.replace(b"\r\n", b"")
    assert not settings.exists()


def test_doctor_finds_trouble_and_says_the_fix(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "doctor")[0] == 0
    paths.home().database.chmod(0o644)
    paths.home().config.write_text('[model]\nbase = "/nowhere/model"\n')
    code, out, _ = run(capsys, "doctor")
    assert code == 1
    assert "the model /nowhere/model was not found" in out
    assert "others can read" in out
    assert "chmod go=" in out


def test_a_newer_database_is_refused_in_one_sentence(capsys: pytest.CaptureFixture[str], turns: None) -> None:
    with store.connect(paths.home().database) as db:
        db._db.execute("PRAGMA user_version = 999")
    code, _, err = run(capsys, "good")
    assert code == 1
    assert err.count("\n") == 1
    assert "newer Clawback" in err


def test_undo_says_what_was_taken_back_and_no_value_where_there_is_none(
    capsys: pytest.CaptureFixture[str], turns: None
) -> None:
    run(capsys, "good", "--turn", "1")
    run(capsys, "critique", "1", "why so long")
    assert run(capsys, "undo")[1].startswith("Taken back: remark on turn 1.")
    assert run(capsys, "undo")[1].startswith("Taken back: rating +1 on turn 1.")


def test_an_editor_that_fails_changes_nothing_and_is_named(
    capsys: pytest.CaptureFixture[str],
    turns: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDITOR", "false")
    code, _, err = run(capsys, "edit", "1")
    assert code == 1
    assert "The editor failed (false" in err
    assert "clawback edit 1 --text" in err
    with store.connect(paths.home().database) as db:
        assert db.feedback(turn_id=1) == []


def test_leaving_a_question_begins_a_new_line(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    """What is said then is folded for a whole line."""
    process = terminal("init", "--remove", HOME=str(tmp_path), CLAWBACK_HOME=str(tmp_path / "home"))
    process.until("[Y/n]:")
    process.types("\x04")
    assert process.ends_with() == 130
    assert "\nStopped. Nothing that was acknowledged is lost." in process.shown.replace("\r", "")


def test_a_version_that_a_newer_run_replaced_does_not_say_that_it_waits() -> None:
    asks = "undecided: say which of two answers is better, 4 to 16 times"
    report = {"reasons": [asks], "again_at": 4}
    waiting = Version(number=1, base="embedded", status="candidate", report=report)
    assert versions.line(waiting).endswith(asks)
    assert versions.line(replace(waiting, status="rejected")).endswith("given up before it was decided")
