"""Wrong input: each is answered by one sentence on stderr that says what to do, with the right exit code; with ``--json`` as well."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from clawback import feedback, installed, paths, store
from clawback.cli import AREAS, COMMANDS, DAILY, NOT_ON_WINDOWS
from clawback.records import Run as TrainingRun
from clawback.records import Turn
from clawback.terminal import fold

from .conftest import Run

WRONG = [
    ("statuz", 2, "did you mean `clawback status`?"),
    ("help statuz", 2, "did you mean `clawback status`?"),
    ("data forget 3", 2, "`3` is one word too many. `clawback data forget --help` shows how it is called."),
    ("undo that now", 2, "`that now` are words too many."),
    ("good 12", 2, "To name a turn: `clawback good --turn 12`."),
    ("runs sohw 4", 2, "did you mean `clawback runs show`?"),
    ("good --tunr 3", 2, "did you mean `clawback good --turn`?"),
    ("good --turn 99", 2, "There is no turn 99"),
    ("rate 11", 2, "A score is from 1 to 10, not 11."),
    ("rate abc", 2, "SCORE is a number from 1 to 10, not `abc`."),
    ("turns show x", 2, "TURN is a whole number, not `x`."),
    ("ask", 2, "TEXT is missing. `clawback ask --help` shows"),
    ("versions generate --output x", 2, "--prompts is missing."),
    (
        "versions generate --prompts nofile --output x",
        2,
        "cannot be read from nofile: No such file or directory.",
    ),
    ("versions generate --prompts nofile --output x --version newest", 2, "name a number, live, or base"),
    ("train --preset blanced", 2, "did you mean `balanced`?"),
    ("train --background", 1, "There is nothing to learn from yet"),
    ("init --yes --agent help", 2, "There is no agent 'help'; there are: claude-code"),
    ("init --yes --model ./nope", 2, "There is no folder and no GGUF file ./nope"),
    ("versions rollback 99", 2, "There is no version 99"),
    ("versions rollback last", 2, "There is no version `last`: name a number, live, or base."),
    ("versions check 9", 2, "There is no version 9"),
    ("versions --report 99", 2, "There is no version 99"),
    ("versions compare base 99", 2, "There is no version 99"),
    ("versions survey 9", 2, "SCORE is a whole number from 1 to 5, not `9`."),
    ("versions publish nowhere", 2, "There is no publisher 'nowhere'; there are: merged"),
    ("serve --port 99999", 2, "--port is a whole number from 0 to 65535, not `99999`."),
    ("serve --upstream foo", 2, "begins with http:// or https://"),
    ("connect completion nosh", 2, "SHELL is one of bash, zsh, fish, not `nosh`."),
    ("lab reward score nofile", 2, "There is no file nofile"),
    ("data backup /no/such/x.db", 1, "could not be written: the folder /no/such is not there."),
    ("export .", 2, ". is a folder: name a file."),
    ("export . --format argilla", 2, ". is a folder: name a file."),
    ("runs report --output .", 2, ". is a folder: name a file."),
    ("data backup .", 2, ". is a folder: name a file."),
    ("export /no/such/x.jsonl", 1, "The folder /no/such is not there."),
    ("import /no/such/x.jsonl", 2, "There is no file or folder /no/such/x.jsonl"),
    ("runs report --output /no/such/x.html", 1, "The folder /no/such is not there."),
    ("config import nope.yaml", 2, "There is no file nope.yaml."),
    ("train --config nope.yaml", 2, "There is no file nope.yaml."),
    ("config list gat", 2, "There is no section `gat` of the settings; did you mean `gate`?"),
    ("turns --limit 0", 2, "--limit is a whole number from 1 to 10000, not `0`."),
]
HOMES = {
    "/etc/hostname": "The home /etc/hostname is a file, not a folder. Name another with CLAWBACK_HOME.",
    "/proc/nope": "The home /proc/nope cannot be made: No such file or directory. Name another with CLAWBACK_HOME.",
}
TAKES_NO_JSON = ("serve", "connect completion", "statuz", "help")


@pytest.mark.parametrize(("typed", "code", "sentence"), WRONG, ids=[typed for typed, *_ in WRONG])
def test_wrong_input_is_answered_in_a_sentence(run: Run, typed: str, code: int, sentence: str) -> None:
    found, out, err = run(*typed.split())
    assert (found, out) == (code, "")
    assert sentence in err
    assert err.startswith("clawback: ")
    assert err.endswith(".\n") or err.endswith("?\n")
    assert err.count("\n") == 1
    assert "Errno" not in err


@pytest.mark.parametrize(
    ("typed", "code", "sentence"),
    [one for one in WRONG if not one[0].startswith(TAKES_NO_JSON)],
    ids=[typed for typed, *_ in WRONG if not typed.startswith(TAKES_NO_JSON)],
)
def test_with_json_the_error_is_json_as_well(run: Run, typed: str, code: int, sentence: str) -> None:
    found, out, err = run(*typed.split(), "--json")
    assert (found, out) == (code, "")
    assert sentence in json.loads(err)["error"]


def test_an_unexpected_error_is_a_sentence_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("seven")

    monkeypatch.setattr("clawback.store.connect", broken)
    assert run("turns") == (
        1,
        "",
        "clawback: unexpected ValueError: seven. Run it with --debug to see where.\n",
    )
    assert json.loads(run("turns", "--json")[2])["error"].startswith("unexpected ValueError")


HIDDEN = """
import contextlib, io, json, sys
hidden = {hidden!r}
sys.modules.update(dict.fromkeys(hidden))
from clawback.cli import main
said = {{}}
for typed in {commands!r}:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(typed.split())
    said[typed] = [code, out.getvalue(), err.getvalue()]
print(json.dumps(said))
"""
NEEDS = {
    "train": "train", "train --background": "train", "demo": "train", "ask hello": "train", "lab reward train": "train", "lab reward eval": "train",
    "lab reward score prompts.txt": "train", "versions generate --prompts prompts.txt --output out.jsonl": "train", "model make": "train", "serve --port 0": "serve", "connect mcp": "mcp", "inbox": "", "status": "", "doctor": "", "versions": "",
    "lab judge --dry-run": "", "config list": "", "raters": "",
}  # fmt: skip
"""Command → the extra that it needs, "" for none."""


def test_windows_is_named_before_anything_is_written(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("clawback.cli.sys.platform", "win32")
    assert run("init", "--yes") == (1, "", f"clawback: {NOT_ON_WINDOWS}\n")
    assert not (tmp_path / "home").exists()


def test_a_part_that_is_not_installed_is_named_with_its_extra(tmp_path: Path) -> None:
    """A base install: every module of every extra hidden."""
    (tmp_path / "prompts.txt").write_text('{"prompt": "a", "response": "b"}\n')
    with store.connect(paths.home().database) as db:
        for number in range(4):
            turn = db.add_turn(
                Turn(
                    session="s", messages=({"role": "user", "content": f"q{number}"},), response=f"a{number}"
                )
            )
            feedback.rate(db, turn.id, 1 if number % 2 else -1)
    modules = [module for of_one in installed.EXTRAS.values() for module in of_one]
    program = HIDDEN.format(hidden=modules, commands=list(NEEDS))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    for typed, (code, out, err) in json.loads(done.stdout.splitlines()[-1]).items():
        if extra := NEEDS[typed]:
            assert code == 1, (typed, out, err)
            assert f"[{extra}]'" in err, (typed, err)
            assert out == "", typed
            assert err.count("\n") == 1, typed
        else:
            assert "unexpected" not in err, (typed, err)
            assert code in (0, 1), (typed, err)


def test_help_has_every_command_in_its_group_and_fits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = run("--help")[1]
    assert max(map(len, out.splitlines())) <= 80
    for title, group in (("Commands", DAILY), ("More, by what it is about (`clawback help turns`)", AREAS)):
        part = out.split(f"\n{title}:\n")[1].split("\n\n")[0]
        assert [line.split()[0] for line in part.splitlines()] == list(group)
    assert len(DAILY) + len(AREAS) == len(COMMANDS)
    assert len(DAILY) == 20


def test_a_sentence_is_broken_between_words_on_a_terminal_and_no_command_in_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    sentence = "This needs a part that is not installed (torch), Run: pip install 'clawback[train]' and then `clawback train --seed 3`."
    lines = fold(f"clawback: {sentence}", "  ", err=True).splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 60
    assert " ".join(line.strip() for line in lines) == f"clawback: {sentence}"
    for command in ("pip install 'clawback[train]'", "`clawback train --seed 3`"):
        assert any(command in line for line in lines)


def test_help_imports_no_command() -> None:
    program = (
        "import sys; from clawback.cli import main; main(['--help']);"
        "print([m for m in sys.modules if m.startswith('clawback.cli.') or m in ('msgspec', 'torch', 'difflib')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_output_fits_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = "an answer that goes on for longer than any terminal is wide " * 4
    with store.connect(paths.home().database) as db:
        for number in range(3):
            messages = ({"role": "user", "content": f"{number} {long}"},)
            turn = db.add_turn(
                Turn(
                    session=f"session-{number}",
                    messages=messages,
                    response=long,
                    kind="side" if number else "main",
                )
            )
            feedback.rate(db, turn.id, 1 if number else -1, note=long)
        begun = db.start_run(
            TrainingRun(
                base="embedded",
                base_revision="",
                algorithm="reinforce",
                recipe={},
                seed=0,
                parent=0,
                train_ids=(),
                held_out_ids=(),
                pid=1,
            )
        )
        db.update_run(begun.id, status="failed", error=long)
    for command in (
        "status",
        "turns",
        "sessions",
        "runs",
        "runs show 1",
        "versions",
        "doctor",
        "model list",
        "inbox",
        "raters",
        "config list",
        "good --turn 1",
        "bad --turn 1 --note x",
        "rate 8 --turn 1",
        "undo",
        "prefer 1 2",
        "critique 2 x",
        "edit 2 --text x",
    ):
        _, out, _ = run(*command.split())
        assert max(map(len, out.splitlines())) <= 80, (command, out)


@pytest.mark.parametrize("home", HOMES)
def test_a_home_that_can_be_none_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", home)
    code, out, err = run("status")
    assert (code, out, err) == (2, "", f"clawback: {HOMES[home]}\n")
