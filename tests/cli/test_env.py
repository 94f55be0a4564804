"""``clawback env``, as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawback.paths import Home
from tests.cli.conftest import Run

SHOP = "tools:shop?kinds=price&held_out=3"


def test_list_shows_kinds_and_what_is_in_one(run: Run) -> None:
    code, out, _ = run("env", "list")
    assert code == 0
    assert "tools:shop" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    code, out, _ = run("env", "list", "--json")
    assert {"gymnasium", "openenv", "miniwob"} <= {kind["name"] for kind in json.loads(out)["kinds"]}
    code, out, _ = run("env", "list", "tools")
    assert out.split() == ["tools:FILE.toml", "tools:shop"]
    code, _, err = run("env", "list", "tool")
    assert code == 2
    assert "Did you mean `tools`" in err


def test_validate_says_what_is_sound_and_fails_where_it_is_not(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("env", "validate", SHOP, "--tasks", "3")
    assert code == 0
    assert "3 of 3 tasks are sound" in out
    (tmp_path / "q.jsonl").write_text(
        '{"prompt": "1?", "answer": "1", "split": "test"}\n{"prompt": "2?", "answer": "", "split": "test"}\n'
    )
    (tmp_path / "q.toml").write_text('reward = "answer"\nrows = "q.jsonl"\n')
    code, out, err = run("env", "validate", f"tools:{tmp_path / 'q.toml'}", "--json")
    assert code == 1
    told = json.loads(out)
    assert not told["sound"]
    assert "saying nothing scores 1" in told["checks"][1]["problem"]
    assert "1 of 2 tasks" in json.loads(err)["error"]


def test_run_shows_one_episode(run: Run) -> None:
    code, out, _ = run("env", "run", SHOP, "--policy", "reference")
    assert code == 0
    assert "[user] I am" in out
    assert "<tool_call>" in out
    assert "Reward 1 · 2 turns · done" in out
    code, out, _ = run("env", "run", SHOP, "--policy", "reference", "--task", "test/price/2", "--json")
    told = json.loads(out)
    assert (told["task"], told["reward"]) == ("tools:shop/test/price/2", 1.0)
    code, _, err = run("env", "run", SHOP, "--policy", "reference", "--task", "nope")
    assert code == 2
    assert "has no task `nope`" in err


def test_eval_gives_figures_and_writes_what_was_played(run: Run, tmp_path: Path) -> None:
    bot = tmp_path / "bot.py"
    bot.write_text("def say(messages, tools):\n    return 'I do not know.'\n")
    out_file = tmp_path / "played.jsonl"
    code, out, _ = run(
        "env", "eval", SHOP, "--policy", f"{bot}:say", "--each", "2", "--output", str(out_file), "--json"
    )
    assert code == 0
    figures = json.loads(out)
    assert (figures["episodes"], figures["solved"], figures["failed"]) == (6, 0.0, 0)
    assert len(out_file.read_text().splitlines()) == 6
    assert out_file.stat().st_mode & 0o077 == 0
    code, out, _ = run("env", "eval", SHOP, "--policy", "reference")
    assert "solved      100.0%" in out
    code, _, err = run("env", "eval", SHOP, "--policy", "nobody")
    assert code == 2
    assert "There is no policy `nobody`" in err
    code, _, err = run("env", "eval", SHOP, "--split", "sideways")
    assert code == 2


def test_the_live_version_plays(run: Run, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    code, out, err = run("env", "eval", SHOP, "--max-tokens", "8", "--turns", "1", "--json")
    assert (code, err) == (0, "")
    figures = json.loads(out)
    assert (figures["policy"], figures["episodes"], figures["turns"]) == ("live", 3, 1.0)


def test_worlds_that_all_break_are_a_failure(run: Run) -> None:
    pytest.importorskip("aiohttp")
    code, _, err = run("env", "eval", "openenv:ws://127.0.0.1:9", "--policy", "reference")
    assert code == 2  # it knows no solutions
    code, _, err = run("env", "eval", "openenv:ws://127.0.0.1:9", "--policy", "json:dumps", "--episodes", "2")
    assert code == 1
    assert "The environment failed in every episode" in err
