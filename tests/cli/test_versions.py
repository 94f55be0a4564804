"""The commands around versions, as a person types them, on the embedded model: train, judge, go back, talk, generate."""

from __future__ import annotations

import json
import os
import pty
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawback import feedback, paths, store
from clawback.cli import main
from clawback.extensions.demo import corpus
from clawback.records import Turn
from clawback.store import Store

SETTINGS = """
[training]
algorithm = "reinforce"
background = false
[training.overrides]
steps = 2
rank = 4
[gate]
confidence = 0.0
[generation]
max_tokens = 12
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture
def rated() -> None:
    """A home with a dozen rated turns, and a gate that lets everything through that is not broken."""
    home, rng = paths.home(), random.Random(0)
    home.create()
    home.config.write_text(SETTINGS)
    with store.connect(home.database) as db:
        for prompt in corpus.prompts("rated", 12, 0):
            text = corpus.answer(corpus.BY_NAME[prompt.topic], corpus.random_style(rng), rng)
            turn = db.add_turn(Turn(session="s", messages=tuple(prompt.messages), response=text))
            feedback.rate(db, turn.id, 1 if "- " in text else -1)


def live() -> int:
    with store.connect(paths.home().database) as db:
        return db.live().number


@pytest.mark.slow
def test_train_judge_go_back_and_start_over(capsys: pytest.CaptureFixture[str], rated: None) -> None:
    made = data(capsys, "train", "--seed", "3")
    assert made["live"] is True
    assert (made["version"]["number"], made["run"]["seed"], live()) == (1, 3, 1)
    code, out, err = run(capsys, "train")
    assert code == 0
    assert "Version 2 is live. `clawback versions rollback` goes back." in out
    assert "answers that end" in out
    assert "prepare …" in err, "plain lines where nobody watches a bar"

    assert [v["number"] for v in data(capsys, "versions")] == [0, 1, 2]
    assert "Accepted" in run(capsys, "versions", "--report", "2")[1]
    assert [r["status"] for r in data(capsys, "runs")] == ["done", "done"]
    assert "12+0" not in run(capsys, "runs")[1], "some feedback is kept for the gate"

    assert run(capsys, "rollback")[1] == "Version 1 is live again (it was 2).\n"
    assert "Version 0 is live again (it was 1)" in run(capsys, "rollback", "0")[1]
    code, _, err = run(capsys, "versions", "rollback")
    assert (code, err.count("\n")) == (2, 1)
    report = data(capsys, "gate", "2")
    assert (report["version"], report["against"], live()) == (2, 0, 0)
    assert data(capsys, "rollback", "2")["before"] == 0

    compared = data(capsys, "compare", "0", "2")
    assert {"prompt", "0", "2"} == set(compared[0])
    assert "the base model" in run(capsys, "compare", "0", "2")[1]

    assert data(capsys, "reset", "--yes")["ratings_kept"] is True
    assert (live(), data(capsys, "status")["good"] + data(capsys, "status")["bad"]) == (0, 12)


@pytest.mark.slow
def test_the_gates_verdict_is_the_exit_code(capsys: pytest.CaptureFixture[str], rated: None) -> None:
    paths.home().config.write_text(SETTINGS.replace("confidence = 0.0", "confidence = 1.0\nmore_ratings = 0"))
    assert data(capsys, "train")["live"] is False
    code, out, _ = run(capsys, "gate", "1")
    assert code == 1
    assert out.startswith("Rejected: not shown to be better")
    code, _, err = run(capsys, "rollback", "1")
    assert code == 2
    assert "was rejected" in err


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("gate 0", "nothing to compare"),
        ("gate 7", "no version 7"),
        ("rollback 7", "no version 7"),
        ("versions --report 0", "has not been judged"),
        ("compare 0 1", "no version 1"),
        ("compare 0 0", "no captured prompts"),
        ("train --preset bold", "bold"),
        ("train", "nothing to learn from yet"),
        ("generate --prompts nowhere.txt --output out.jsonl", "nowhere.txt"),
        ("generate --prompts nowhere.txt --output out.jsonl --samples 0", "samples"),
        ("demo --taste nonsense", "no taste"),
    ],
)
def test_wrong_use_is_said_in_a_sentence(capsys: pytest.CaptureFixture[str], command: str, word: str) -> None:
    code, _, err = run(capsys, *command.split())
    assert code in (1, 2)
    assert word in err
    assert "Traceback" not in err


def test_reset_asks_first(
    capsys: pytest.CaptureFixture[str], rated: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda text: asked.append(text) or "n")
    assert run(capsys, "reset", "--ratings")[0] == 130
    assert "AND ALL RATINGS" in asked[0]
    assert data(capsys, "status")["good"] > 0


def test_an_answer_is_captured_and_can_be_rated(capsys: pytest.CaptureFixture[str]) -> None:
    first = data(capsys, "ask", "Tell me about the otter.", "--seed", "5")
    assert first["version"] == 0
    assert data(capsys, "ask", "Tell me about the otter.", "--seed", "5")["response"] == first["response"]
    assert data(capsys, "good", "--turn", str(first["turn"]))["value"] == 1
    with store.connect(paths.home().database) as db:
        turn = db.turn(first["turn"])
    assert (turn.agent, turn.response) == ("clawback", first["response"])
    assert turn.response_ids
    assert len(turn.response_ids) == len(turn.response_logprobs or ())


def test_prompts_in_answers_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = tmp_path / "prompts.jsonl"
    asked.write_text(
        'Tell me about the otter.\n\n{"prompt": "Describe Lisbon for me.", "id": 3}\n{not json\n'
    )
    common = ("generate", "--prompts", str(asked), "--samples", "2", "--max-tokens", "12")
    assert data(capsys, *common, "--output", str(tmp_path / "a"), "--version", "base")["answers"] == 6
    data(capsys, *common, "--output", str(tmp_path / "b"), "--version", "0")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes(), "the same seed, the same answers"
    data(capsys, *common, "--output", str(tmp_path / "c"), "--seed", "1")
    assert (tmp_path / "c").read_bytes() != (tmp_path / "a").read_bytes()
    lines = [json.loads(line) for line in (tmp_path / "a").read_text().splitlines()]
    assert [line["prompt"] for line in lines] == [
        *["Tell me about the otter."] * 2,
        *["Describe Lisbon for me."] * 2,
        *["{not json"] * 2,
    ]
    assert all(set(line) == {"prompt", "response", "version"} and line["version"] == 0 for line in lines)
    assert sorted(p.name for p in tmp_path.glob("*")) == ["a", "b", "c", "prompts.jsonl"]
    (tmp_path / "bad.jsonl").write_text('{"text": "x"}\n')
    code, _, err = run(
        capsys, "generate", "--prompts", str(tmp_path / "bad.jsonl"), "--output", str(tmp_path / "d")
    )
    assert code == 2
    assert "Line 1" in err
    assert not (tmp_path / "d").exists()


def typed(command: list[str], answers: list[tuple[str, str]]) -> str:
    """Run a command in a terminal of its own: each time a text appears, type the keys that go with it."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "clawback", *command],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        close_fds=True,
        start_new_session=True,
        env=os.environ | {"TERM": "dumb", "COLUMNS": "100"},
    )
    os.close(slave)
    seen, at = "", 0
    try:
        while True:
            try:
                seen += os.read(master, 65536).decode("utf-8", "replace")
            except OSError:  # the other end is closed
                break
            while answers and answers[0][0] in seen[at:]:
                text, keys = answers.pop(0)
                at = seen.index(text, at) + len(text)
                os.write(master, keys.encode())
    finally:
        os.close(master)
        process.wait(60)
    assert process.returncode == 0, seen
    assert not answers, seen
    return seen


def ratings(db: Store) -> list[float]:
    return [f.value for f in db.feedback()]


@pytest.mark.slow
def test_the_demo_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, "demo", "--rounds", "1", "--taste", "bullets")
    assert {"held_out_before", "held_out_after", "ratings", "gate", "seconds"} <= set(found)
    assert found["ratings"] == 32
    assert found["gate"]["accepted"] is found["rounds"][0]["live"]
    assert not paths.home().database.exists(), "the person's own home is not touched"
