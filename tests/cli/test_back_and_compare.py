"""``versions rollback reset compare``: which policies there are, which one answers, and how they differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from clawback import store
from clawback.paths import Home

Run = Callable[..., tuple[int, str, str]]
RATED = 12


def live(home: Home) -> int:
    with store.connect(home.database) as db:
        return db.live().number


def test_the_list_marks_the_live_one(run: Run, trained: Home) -> None:
    # A row that is too long for the terminal goes on in lines that are set in by six.
    rows = [line for line in run("versions")[1].splitlines() if not line.startswith(" " * 6)]
    assert [row.startswith("▶") for row in rows] == [" live " in row for row in rows]
    data = json.loads(run("versions", "--json")[1])
    assert [v["number"] for v in data if v["status"] == "live"] == [1]


def test_what_the_gate_found(run: Run, trained: Home) -> None:
    assert run("versions", "--report", "1")[1].startswith("Accepted")
    assert json.loads(run("versions", "--report", "1", "--json")[1])["version"] == 1
    code, _, err = run("versions", "--report", "0")
    assert code == 2
    assert "has not been judged" in err


def test_back_and_forward_again(run: Run, trained: Home) -> None:
    assert run("rollback")[1] == "Version 0 is live again (it was 1).\n"
    assert live(trained) == 0
    code, _, err = run("rollback")
    assert code == 2
    assert "no older version" in err
    assert json.loads(run("rollback", "1", "--json")[1])["number"] == 1
    assert live(trained) == 1


@pytest.mark.parametrize(
    ("number", "sentence"), [("1", "live already"), ("7", "no version 7"), ("x", "There is no version")]
)
def test_nowhere_to_go(run: Run, trained: Home, number: str, sentence: str) -> None:
    code, _, err = run("rollback", number)
    assert code == 2
    assert sentence in err
    assert live(trained) == 1


def test_going_back_works_when_the_live_version_is_damaged(run: Run, trained: Home) -> None:
    (trained.version(1) / "adapter_model.safetensors").write_bytes(b"broken")
    code, _, err = run("compare", "0", "1")
    assert code == 1
    assert "is not what was trained" in err
    assert run("rollback")[0] == 0
    assert live(trained) == 0


def test_reset_keeps_ratings_unless_told(run: Run, trained: Home) -> None:
    assert json.loads(run("reset", "--yes", "--json")[1]) == {"live": 0, "ratings_kept": True}
    with store.connect(trained.database) as db:
        assert len(db.feedback()) == RATED
    assert not trained.version(1).exists()
    run("reset", "--ratings", "--yes")
    with store.connect(trained.database) as db:
        assert db.feedback() == []
        assert db.count_turns() == RATED, "the turns themselves stay"


def test_a_reset_that_is_not_confirmed_changes_nothing(
    run: Run, trained: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "no").write_text("n\n")
    with (tmp_path / "no").open() as no:
        monkeypatch.setattr("sys.stdin", no)
        assert run("reset")[0] != 0
    assert live(trained) == 1
    assert trained.version(1).exists()


def test_two_versions_side_by_side(run: Run, trained: Home, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("Tell me about the otter.\nWhat is a fig?\n")
    asked = ("--prompts", str(tmp_path / "p.txt"), "--seed", "3")
    code, out, _ = run("compare", "base", "live", *asked, "--json")
    rows = json.loads(out)
    assert code == 0
    assert [row["prompt"] for row in rows] == ["Tell me about the otter.", "What is a fig?"]
    assert all(row["0"] and row["1"] for row in rows)
    assert json.loads(run("compare", "0", "1", *asked, "--json")[1]) == rows, "numbers name the same versions"
    _, shown, _ = run("compare", "base", "1", *asked)
    assert "the base model" in shown
    assert "version 1" in shown


def test_the_newest_prompts_are_compared_without_a_file(run: Run, trained: Home) -> None:
    rows = json.loads(run("compare", "0", "1", "--json")[1])
    with store.connect(trained.database) as db:
        newest = [turn.prompt for turn in db.turns(limit=RATED)]
    assert [row["prompt"] for row in rows] == list(dict.fromkeys(newest))[:5]


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        (("1", "live"), "name two versions"),
        (("0", "9"), "no version 9"),
        (("0", "newest"), "name a number, live, or base"),
    ],
)
def test_what_cannot_be_compared(run: Run, trained: Home, pair: tuple[str, str], sentence: str) -> None:
    code, _, err = run("compare", *pair)
    assert code == 2
    assert sentence in err
