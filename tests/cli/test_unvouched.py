"""What a plain API client recorded is not "the last answer"; the refusal names the turn and the command, and the command works."""

from __future__ import annotations

import re
import shlex

import pytest

from clawback import feedback, store
from clawback.cli import main
from clawback.paths import Home
from clawback.records import Turn


def add(home: Home, response: str, *, vouched: bool, cwd: str = "") -> int:
    asked = ({"role": "user", "content": "Tell me about otters."},)
    with store.connect(home.database) as db:
        return db.add_turn(Turn("s", asked, response, vouched=vouched, cwd=cwd)).id


@pytest.mark.parametrize(
    "words", [["good"], ["bad"], ["rate", "8"], ["good", "--any"], ["bad", "--note", "dull"]]
)
def test_the_refusal_names_a_command_that_rates_the_turn(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    number = add(home, "Otters eat fish.", vouched=False)
    assert main(words) == 2
    refusal = " ".join(capsys.readouterr().err.split())
    assert f"Turn {number}" in refusal
    assert "token" in refusal
    assert "no captured turn" not in refusal
    [command] = re.findall(r"`clawback ([^`]*)`", refusal)
    assert main(shlex.split(command)) == 0
    with store.connect(home.database) as db:
        [rating] = db.feedback(turn_id=number)
        assert (rating.value > 0) == (words[0] != "bad")
        assert [sample.turn_id for sample in feedback.samples(db)] == [number], "it is learned from"


def test_a_newer_turn_that_is_passed_by_is_named_beside_another_folders(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    vouched = add(home, "Of a folder.", vouched=True, cwd="/elsewhere")
    number = add(home, "Of a client.", vouched=False)
    assert main(["good"]) == 2
    refusal = " ".join(capsys.readouterr().err.split())
    assert f"turn {vouched}" in refusal
    assert f"`clawback good --turn {number}`" in refusal


def test_an_older_turn_without_the_token_is_not_spoken_of(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    add(home, "Of a client.", vouched=False)
    add(home, "Of a folder.", vouched=True, cwd="/elsewhere")
    assert main(["good"]) == 2
    assert "token" not in capsys.readouterr().err
