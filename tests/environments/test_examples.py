"""The examples run as they are told to, and the table of LlamaGym's faults names tests that are there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from clawback.environments.registry import find, names
from clawback.errors import MissingExtra, UsageError

ROOT = Path(__file__).parents[2]
AGENTS = ROOT / "examples" / "agents"


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.chdir(AGENTS)
    monkeypatch.syspath_prepend(str(AGENTS))


def run(module, *arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [module, *arguments])
    __import__(module).main()
    return capsys.readouterr().out


def test_blackjack_as_its_users_wrote_it(monkeypatch, capsys):
    pytest.importorskip("gymnasium")
    out = run("blackjack", "--episodes", "20", monkeypatch=monkeypatch, capsys=capsys)
    assert "mean return" in out
    assert "unread replies 100%" in out  # the embedded model does not know the form, and nothing crashes


@pytest.mark.slow
def test_the_lake_reaches_nine_tenths_of_the_optimum_on_the_embedded_model(monkeypatch, capsys):
    pytest.importorskip("gymnasium")
    out = run("frozen_lake", "--episodes", "1536", "--seed", "1", monkeypatch=monkeypatch, capsys=capsys)
    assert float(out.partition("mean return ")[2].split()[0]) >= 0.9


@pytest.mark.slow
def test_text_world_with_four_values(monkeypatch, capsys):
    out = run("text_world", "--episodes", "2", monkeypatch=monkeypatch, capsys=capsys)
    assert out.count("return 0") == 2
    assert "loss" in out


@pytest.mark.parametrize(
    ("task", "agent", "best"),
    [
        ("FrozenLake-v1", "frozen_lake:LakeAgent", ["down", "down", "right", "down", "right", "right"]),
        ("FrozenLake-v1", "frozen_lake:PondAgent", ["down", "right", "down", "right"]),
        ("colours", "colours:ColoursAgent", ["3"]),
        ("house", "text_world:TextWorldAgent", ["go east", "go north", "go east"]),
    ],
)
def test_their_best_play_returns_one(task, agent, best):
    import asyncio

    if task.endswith("-v1"):
        pytest.importorskip("gymnasium")
    worlds = find(task, agent)
    word = "command: " if agent.startswith("text") else ""

    async def play():
        world = worlds.make()
        await world.reset(worlds.tasks("test")[0], 0)
        steps = [await world.step({"role": "assistant", "content": f"{word}{a}"}) for a in best]
        await world.close()
        return steps

    steps = asyncio.run(play())
    assert [s.done for s in steps] == [False] * (len(best) - 1) + [True]
    assert sum(s.reward for s in steps) == 1.0


def test_the_tasks_of_seeds_are_a_sequence_like_any_other():
    tasks = find("colours", "colours:ColoursAgent").tasks("test")
    every = list(tasks)
    assert len(every) == len(tasks) == 10_000
    assert (tasks[3], tasks[-1], list(tasks[2:9:3])) == (every[3], every[-1], every[2:9:3])
    assert (every[3].data, every[3].split) == ({"seed": 1_000_003}, "test")
    assert len({task.id for task in every}) == len(every)
    with pytest.raises(IndexError):
        tasks[10_000]


def test_held_out_seeds_are_none_of_training():
    worlds = find("colours", "colours:ColoursAgent")
    ids = [{t.data["seed"] for t in worlds.tasks(split)} for split in ("train", "test")]
    assert not ids[0] & ids[1]


@pytest.mark.parametrize(
    ("task", "agent", "said"),
    [
        ("nowhere", None, "There is no environment `nowhere`"),
        ("no_module:Thing", None, "no_module"),
        ("colours:Nothing", None, "no Nothing in colours"),
        ("colours:COLOURS", None, "no environment set"),
        ("x", "colours:Colours", "no subclass of clawback.Agent"),
        ("x", "colours", "module:Name"),
        ("NoSuchGame-v1", "frozen_lake:LakeAgent", "Gymnasium"),
    ],
)
def test_wrong_names_get_a_sentence(task, agent, said):
    with pytest.raises((UsageError, MissingExtra), match=said):
        find(task, agent)
    assert isinstance(names(), list)


def test_every_row_of_the_table_names_what_is_there():
    page = (ROOT / "research" / "2026-11-27-llamagym-feature-by-feature.md").read_text()
    rows = [r for r in page.splitlines() if r.startswith("| ")][2:]
    assert len(rows) == 20
    tests = "\n".join(p.read_text() for p in (ROOT / "tests").rglob("test_*.py"))
    for row in rows:
        last = row.split(" | ")[-1]
        for name in re.findall(r"`(?:[\w/]*\.py::)?(test_\w+)`", last):
            assert f"def {name}(" in tests, name
        for file in re.findall(r"`((?:tests|examples)/[\w/]+(?:\.py)?)`", last):
            assert (ROOT / file).exists(), file
        assert "`" in last or "](" in last, row
