"""``clawback demo``, as a person types it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawback import paths, store
from clawback.extensions.demo import loop

Run = Callable[..., tuple[int, str, str]]
PEAK = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
"""Runs a command and says how much memory it had, in KiB, apart from all that this process has ever started."""
QUICK = ("--algorithm", "reinforce", "--rounds", "1")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "HELD_OUT", 8)
    monkeypatch.setattr(loop, "RATINGS", 8)
    monkeypatch.setattr(loop.Demo.round, "__defaults__", (8, None, None, None))


@pytest.mark.slow
def test_one_object_of_json_with_what_was_promised(run: Run, small: None, tmp_path: Path) -> None:
    code, out, err = run("demo", *QUICK, "--json", "--home", str(tmp_path / "kept"))
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert {
        "held_out_before",
        "held_out_after",
        "ratings",
        "gate",
        "seconds",
        "kl",
        "algorithm",
        "taste",
    } <= set(data)
    assert data["ratings"] == 8
    assert data["gate"]["version"] == 1
    assert [r["version"] for r in data["rounds"]] == [1]
    with store.connect(tmp_path / "kept" / "clawback.db") as db:
        own = [turn for turn in db.turns(limit=1000) if turn.agent == "demo"]
        assert len(own) == 8 * 4, "the others are what the gate asks about"
    assert not paths.home().database.exists(), "the person's own home is not touched"


@pytest.mark.slow
def test_piped_it_is_plain_text_that_tells_the_story(run: Run, small: None) -> None:
    code, out, err = run("demo", *QUICK)
    assert code == 0, err
    assert "\x1b" not in out + err
    for said in (
        "terse bullets, no apology",
        "One tap in ten is wrong",
        "The gate ",
        "base",
        "round 1",
        "8 ratings",
    ):
        assert said in " ".join(out.split()), "a line may be broken anywhere"
    assert "train …" in err, "progress is shown on a pipe as well"
    assert "rollback" in out or "nothing to roll back" in out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--taste", "salty"), "There are: bullets"),
        (("--model", "smolm2"), "Did you mean smollm2?"),
        (("--interactive",), "a terminal is needed"),
        (("--rounds", "0"), "--rounds"),
    ],
)
def test_wrong_use_is_said_in_a_sentence(run: Run, options: tuple[str, ...], sentence: str) -> None:
    code, _, err = run("demo", *options)
    assert code == 2
    assert sentence in err


def test_a_home_in_use_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[training]\nseed = 5\n")
    code, _, err = run("demo", "--home", str(tmp_path))
    assert code == 2
    assert "not an empty folder" in err
    assert (tmp_path / "config.toml").read_text() == "[training]\nseed = 5\n"


@pytest.mark.slow
def test_a_person_rates_by_key_and_stops_when_they_like(terminal: Callable[..., Any], tmp_path: Path) -> None:
    kept, output = tmp_path / "kept", tmp_path / "out.json"
    person = terminal("demo", "--interactive", *QUICK, "--home", str(kept), "--json", output=output)
    for number, key in enumerate("gb\rgbgbq", 1):
        person.until(f"[{number}/32] ")
        person.until("[q] enough ")
        person.presses(key)
    assert person.ends_with() == 0
    data = json.loads(output.read_text())
    assert data["held_out_before"] is None, "nobody but the person knows what they like"
    assert data["ratings"] == 6
    assert set(data["habits_before"]) == set(data["habits_after"])
    with store.connect(kept / "clawback.db") as db:
        assert [f.value for f in db.feedback()] == [1, -1, 1, -1, 1, -1]


@pytest.mark.slow
def test_stopped_half_way_the_store_is_whole_and_the_run_can_go_on(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "clawback", "demo", *QUICK, "--home", str(kept)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if line.startswith("train"):
                break
        demo.send_signal(signal.SIGINT)
        _, err = demo.communicate(timeout=300)
        assert "Stopped" in err
        assert "Traceback" not in err
    with store.connect(kept / "clawback.db") as db:
        assert db.integrity() == []
        assert len(db.feedback()) == 32
        assert db.live().number == 0
    goes_on = subprocess.run(
        [sys.executable, "-m", "clawback", "train", "--json"],
        env=os.environ | {"CLAWBACK_HOME": str(kept)},
        capture_output=True,
        check=True,
    )
    assert json.loads(goes_on.stdout)["run"]["id"] == 1, "the run that was interrupted is the one that ends"


@pytest.mark.slow
def test_two_rounds_teach_the_taste_within_the_memory_that_was_promised(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "clawback", "demo", "--json", "--home", str(tmp_path / "kept")]
    done = subprocess.run([sys.executable, "-c", PEAK, *command], capture_output=True, text=True, check=True)
    data = json.loads(done.stdout)
    assert data["held_out_after"] >= data["held_out_before"] + 0.3
    assert data["ratings"] == 64
    assert data["held_out_answers"] >= 96
    assert data["rollback"]["same_answers"]
    assert int(done.stderr.split()[-1]) * 1024 <= 2_000_000_000
