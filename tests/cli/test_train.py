"""``train gate``: what is said before, during and after a run, and what each exits with."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import cast

import pytest
from filelock import FileLock
from rich.console import Console
from rich.progress import Progress

from clawback import store
from clawback.jobs import control
from clawback.jobs.training_job import RunResult
from clawback.paths import Home
from clawback.terminal.progress_bar import bar_columns, figures, progress_bar
from clawback.training_commands.train import became

Run = Callable[..., tuple[int, str, str]]


def test_an_estimate_comes_first_then_the_outcome_and_the_gates_report(run: Run, rated: Home) -> None:
    code, out, err = run("train", "--seed", "1")
    assert code == 0, err
    assert err.index("Learning with reinforce") < err.index("gate")
    assert "GB" in err or "MB" in err, "what it will take is said before"
    assert out.startswith("Version 1 (reinforce)")
    assert "drift from the base" in out
    with store.connect(rated.database) as db:
        live = db.live().number
        assert db.run(1).seed == 1
    assert ("is live. `clawback versions rollback` goes back." in out) == (live == 1)
    assert ("stays live" in out) == (live == 0)


@pytest.mark.slow
def test_a_run_as_data(run: Run, rated: Home) -> None:
    code, out, err = run("train", "--json", "--preset", "careful")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["version"]["number"] == 1
    assert data["run"]["status"] == "done"
    assert data["version"]["report"]["version"] == 1
    assert isinstance(data["live"], bool)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("train", "--algorithm", "nonsense"), "There is no algorithm `nonsense`. Choose one of: auto"),
        (("prompts", "distill"), "No prompt is live, so there is nothing to distil."),
    ],
)
def test_what_no_run_can_do_is_refused_before_one_is_announced(
    run: Run, rated: Home, command: tuple[str, ...], sentence: str
) -> None:
    code, out, err = run(*command)
    assert (code, out) == (2, "")
    assert sentence in " ".join(err.split())
    assert "Run " not in err
    with store.connect(rated.database) as db:
        assert db.runs() == []


@pytest.mark.parametrize(
    ("settings", "command", "sentence"),
    [
        ({}, ["train", "--ray", "auto"], "not installed"),
        ({"hosted.url": "https://127.0.0.9"}, ["train"], "TINKER_API_KEY is not set"),
    ],
)
def test_what_is_missing_is_said_before_the_model_is_loaded(
    run: Run,
    rated: Home,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    command: list[str],
    sentence: str,
) -> None:
    if "--ray" in command and find_spec("ray"):
        pytest.skip("Ray is installed")
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    for key, value in settings.items():
        assert run("config", "set", key, value)[0] == 0
    code, out, err = run(*command)
    assert (code, out) == (2 if "--ray" not in command else 1, "")
    assert sentence in " ".join(err.split())
    assert "loading" not in err
    with store.connect(rated.database) as db:
        assert db.runs() == []


def test_nothing_to_learn_from_is_said_and_fails(run: Run) -> None:
    code, out, err = run("train")
    assert (code, out) == (1, "")
    assert "rate some answers first" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("option", [("--preset", "bold"), ("--seed", "x"), ("--algorithm", "nonsense")])
def test_what_there_is_not_is_wrong_usage(run: Run, rated: Home, option: tuple[str, str]) -> None:
    code, _, err = run("train", *option)
    assert code == 2
    assert option[1] in err


def test_one_run_at_a_time(run: Run, rated: Home) -> None:
    with FileLock(rated.train_lock):
        code, _, err = run("train")
        assert code == 1
        assert "training already" in err
        assert run("train", "--background")[1].startswith("A run is training already.")


@pytest.mark.slow
def test_a_background_run_learns_as_it_was_asked_to(run: Run, rated: Home) -> None:
    code, out, _ = run("train", "--background", "--seed", "7", "--preset", "careful", "--json")
    assert (code, json.loads(out)) == (0, {"started": True, "run": 1}), "said once the run is there"
    assert run("runs", "show", "1", "--json")[0] == 0
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        _, listed, _ = run("runs", "--json")
        if (found := json.loads(listed)) and found[0]["status"] == "done":
            break
        time.sleep(0.5)
    assert found[0]["seed"] == 7
    assert found[0]["recipe"]["preset"] == "careful"


def test_a_background_run_that_cannot_begin_says_why_at_once(run: Run, rated: Home) -> None:
    rated.config.write_text('[model]\nbase = "/nowhere/model"\n')
    code, out, err = run("train", "--background")
    assert (code, out) == (1, "")
    assert "/nowhere/model" in err
    [one] = json.loads(run("runs", "--json")[1])
    assert one["status"] == "failed"
    assert "/nowhere/model" in one["error"]


def test_a_background_process_that_still_prepares_is_named(
    run: Run, rated: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as slow:
        monkeypatch.setattr("clawback.jobs.start", lambda *_, **__: slow)
        monkeypatch.setattr("clawback.jobs.begun", partial(control.begun, seconds=0))
        code, out, _ = run("train", "--background")
        slow.communicate(b"\n")
    assert code == 0
    assert out.startswith(f"The run of process {slow.pid} is still being prepared.")


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_can_be_gone_on_with(
    run: Run, rated: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(progress: Mapping[str, object]) -> str:
        if progress.get("phase") == "train":
            raise KeyboardInterrupt
        return ""

    with monkeypatch.context() as patched:
        patched.setattr("clawback.terminal.progress_bar.announcement", press)
        code, _, err = run("train")
    assert code == 130
    assert "Run 1 was stopped" in err
    assert "clawback runs resume" in err
    with store.connect(rated.database) as db:
        assert db.run(1).status == "stopped"
    code, out, err = run("runs", "resume", "--json")
    assert code == 0, err
    assert json.loads(out)["run"]["id"] == 1


def test_where_nobody_watches_a_long_phase_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    monkeypatch.setattr("clawback.terminal.progress_bar.LINE_SECONDS", 0.0)
    with progress_bar() as follow:
        follow({"phase": "draw", "step": 0, "steps": 256})
        follow({"phase": "draw", "step": 120, "steps": 256, "seconds_left": 200.0})
        follow({"phase": "alert", "text": "the reward fell"})
        follow({"phase": "gate", "step": 2, "steps": 4})
    assert written.getvalue().splitlines() == [
        "draw …",
        "draw 120 of 256, about 3 min left",
        "the reward fell",
        "gate …",
    ]


def test_on_a_narrow_terminal_no_count_and_no_clock_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    written = Terminal()
    monkeypatch.setattr("sys.stderr", written)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    figures = {"loss": 0.112, "reward": 2.21, "kl": 0.0935}
    with progress_bar() as follow:
        follow({"phase": "prepare"})
        follow(
            {
                "phase": "measure",
                "step": 5,
                "steps": 5,
                "seconds_left": 61.0,
                "read_speed": 556,
                "draw_speed": 9,
            }
        )
        follow({"phase": "draw", "step": 0, "steps": 64})
        follow({"phase": "train", "step": 256, "steps": 256, "seconds_left": 41.0, **figures})
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.getvalue())
    assert "256 of 256 0:00:00" in shown
    last = shown[shown.rindex("prepare") :]
    assert "of 64" not in last, "a phase that is over, and told of its first step alone"
    assert "…" not in shown


def test_speeds_are_plain_numbers() -> None:
    assert figures({"loss": 0.1234, "read_speed": 10512.3, "draw_speed": 58.26}) == (
        "loss 0.123  tokens/s read 10,512  tokens/s drawn 58.3"
    )


def test_on_a_narrow_terminal_the_names_of_phases_stay_whole_beside_their_figures() -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=80, force_terminal=True)
    with Progress(*bar_columns(80), console=console, auto_refresh=False) as bar:
        detail = "about 1 s left  loss 0.112  reward 2.21  tokens/s read 556"
        bar.add_task("measuring the speed", total=5, completed=5, count="5 of 5", detail=detail)
        bar.refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "measuring the speed" in shown
    assert "…" not in shown
    assert "tokens/s" in shown


@pytest.mark.parametrize(
    ("status", "accepted", "sentence"),
    [
        ("live", True, "Version 3 is live. `clawback versions rollback` goes back."),
        ("rejected", False, "Version 3 was rejected; version 1 stays live."),
        (
            "candidate",
            False,
            "Version 3 waits for your word (`clawback inbox --rate` asks which of two answers is better); version 1 stays live.",
        ),
        ("candidate", True, "Version 3 is on trial (`clawback versions trial`); version 1 stays live."),
    ],
)
def test_a_run_ends_with_what_its_version_is_now(status: str, accepted: bool, sentence: str) -> None:
    outcome = SimpleNamespace(
        version=SimpleNamespace(number=3, status=status),
        report=SimpleNamespace(against=1, accepted=accepted),
        live=status == "live",
    )
    assert became(cast(RunResult, outcome)) == sentence
