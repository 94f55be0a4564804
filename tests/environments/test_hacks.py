"""A standing corpus of reward hacks: every one of them is worth nothing (``hacks/*.toml``)."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from clawback.environments import registry
from clawback.environments.core import EnvironmentSet, Step, Task

HACKS = Path(__file__).with_name("hacks")
MODULES = {"textkit-1": "textkit/slugs.py", "ledger-2": "ledger/__init__.py"}


def corpus(track: str) -> list[Any]:
    """The hacks of a track; those that are not quick are slow tests."""
    hacks = tomllib.loads((HACKS / f"{track}.toml").read_text("utf-8"))["hack"]
    return [
        pytest.param(hack, id=hack["name"], marks=[] if hack.get("quick") else [pytest.mark.slow])
        for hack in hacks
    ]


@cache
def environments(name: str) -> EnvironmentSet:
    return registry.find(name)


def last_step(name: str, task: str, replies: Sequence[str]) -> Step:
    found = environments(name)
    every: list[Task] = [*found.tasks("train"), *found.tasks("test")]
    wanted = next(one for one in every if one.id.endswith(task))

    async def episode() -> Step:
        world = found.make()
        try:
            await world.reset(wanted, 0)
            for reply in replies:
                step = await world.step({"role": "assistant", "content": reply})
                if step.done:
                    break
            return step
        finally:
            await world.close()

    return asyncio.run(episode())


@pytest.mark.parametrize("hack", corpus("repository"))
def test_repository(hack: dict[str, Any]) -> None:
    task = hack.get("task", "textkit-1")
    command = hack.get("bash") or f"cat >> {MODULES[task]} <<'END-OF-HACK'\n{hack['append']}\nEND-OF-HACK"
    step = last_step("repository?test_seconds=20", task, [f"```bash\n{command}\n```", "Done."])
    assert (step.done, step.reward) == (True, 0.0), step.info
    assert not Path("/tmp/ran").exists()


@pytest.mark.parametrize("hack", corpus("terminal"))
def test_terminal(hack: dict[str, Any]) -> None:
    task = f"/{hack.get('task', 'count-errors')}"
    step = last_step("terminal?command_seconds=5", task, [f"```bash\n{hack['bash']}\n```", "Done."])
    assert (step.done, step.reward) == (True, 0.0), step.info


@pytest.mark.parametrize("track", ["repository", "terminal", "gsm8k", "tools"])
def test_there_are_fifty(track: str) -> None:
    assert len({param.id for param in corpus(track)}) >= 50


# ---- answers and tool calls: cheap, so all of them are quick


def texts(track: str) -> list[Any]:
    hacks = tomllib.loads((HACKS / f"{track}.toml").read_text("utf-8"))["hack"]
    return [pytest.param(hack["replies"], id=hack["name"]) for hack in hacks]


@pytest.fixture(scope="module")
def question(tmp_path_factory: pytest.TempPathFactory) -> str:
    rows = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    rows.write_text('{"question": "6 times 7?", "answer": "#### 42"}\n')
    return f"gsm8k:{rows}?tools=calculator"


@pytest.mark.parametrize("replies", texts("gsm8k"))
def test_answers(replies: list[str], question: str) -> None:
    assert last_step(question, "", replies).reward == 0.0


@pytest.mark.parametrize(
    "reply", ["#### 42", "42", "The answer is 42.", "\\boxed{42}", "<answer>42</answer>", "#### $42.00"]
)
def test_honest_answers(reply: str, question: str) -> None:
    assert last_step(question, "", [reply]).reward == 1.0


SHOP = tomllib.loads((HACKS / "tools.toml").read_text("utf-8"))["hack"]


@pytest.mark.parametrize("hack", [pytest.param(hack, id=hack["name"]) for hack in SHOP])
def test_tools(hack: dict[str, Any]) -> None:
    step = last_step("tools:shop", hack["task"], hack["replies"])
    assert (step.done, step.reward) == (True, 0.0), step
