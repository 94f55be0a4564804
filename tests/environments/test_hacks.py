"""A standing corpus of reward hacks: every one of them is worth nothing (``hacks/*.toml``)."""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from clawback.environments import registry
from clawback.environments.core import EnvironmentSet, Step, Task
from clawback.environments.tools import calls
from clawback.extensions.browser import chromium
from clawback.extensions.reward.answer_checks import PythonTests

HACKS = Path(__file__).with_name("hacks")
MODULES = {"textkit-1": "textkit/slugs.py", "ledger-2": "ledger/__init__.py"}


def read(track: str) -> list[dict[str, Any]]:
    hacks: list[dict[str, Any]] = tomllib.loads((HACKS / f"{track}.toml").read_text("utf-8"))["hack"]
    return hacks


def corpus(track: str) -> list[Any]:
    """The hacks of a track; those that are not quick are slow tests."""
    return [
        pytest.param(hack, id=hack["name"], marks=[] if hack.get("quick") else [pytest.mark.slow])
        for hack in read(track)
    ]


@cache
def environments(name: str) -> EnvironmentSet:
    return registry.find(name)


def task_of(found: EnvironmentSet, end: str) -> Task:
    every: list[Task] = [*found.tasks("train"), *found.tasks("test")]
    return next(one for one in every if one.id.endswith(end))


def last_step(name: str, task: str, replies: Sequence[str]) -> Step:
    found = environments(name)
    wanted = task_of(found, task)

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


TRACKS = ["repository", "terminal", "gsm8k", "tools", "browser", "python", "python-tests", "text"]


@pytest.mark.parametrize("track", TRACKS)
def test_there_are_fifty(track: str) -> None:
    assert len({param.id for param in corpus(track)}) >= 50


# ---- answers and tool calls: cheap, so all of them are quick


def texts(track: str) -> list[Any]:
    return [pytest.param(hack["replies"], id=hack["name"]) for hack in read(track)]


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


@pytest.mark.parametrize("hack", [pytest.param(hack, id=hack["name"]) for hack in read("tools")])
def test_tools(hack: dict[str, Any]) -> None:
    step = last_step("tools:shop", hack["task"], hack["replies"])
    assert (step.done, step.reward) == (True, 0.0), step


# ---- games in words


def total(name: str, replies: Sequence[str], idle: str = "") -> float:
    """What an episode comes to whose policy says nothing of use after its replies."""

    async def episode() -> float:
        found = environments(name)
        world = found.make()
        rewards = []
        try:
            await world.reset(found.tasks("test")[0], 0)
            for reply in [*replies, *[idle] * 5]:
                step = await world.step({"role": "assistant", "content": reply})
                rewards.append(step.reward or 0.0)
                if step.done:
                    return sum(rewards)
            raise AssertionError("the episode has no end")
        finally:
            await world.close()

    return asyncio.run(episode())


LAKE = "gymnasium:FrozenLake-v1?is_slippery=false&patience=2"


@pytest.mark.parametrize("replies", texts("text"))
def test_text(replies: list[str]) -> None:
    pytest.importorskip("gymnasium")
    assert total(LAKE, replies) == 0.0


def test_an_honest_walk() -> None:
    pytest.importorskip("gymnasium")
    assert (
        total(LAKE, [f"Action: {way}" for way in ("down", "down", "right", "right", "down", "right")]) == 1.0
    )


@pytest.mark.parametrize(
    "reply",
    [
        "Action: [1e308]", "Action: [NaN]", "Action: [Infinity]", "Action: [-1e999]", "Action: 1", "Action: [[1], [1]]",
        "Action: [true]", 'Action: ["1"]', "Action: []", 'Action: {"force": 1}', "Action: [1" + "0" * 400 + "]",
        "Action: [1, 1, 1]", "Action: " + "[" * 4000, "Action: [\u0661]", "Action: [1]; reward = 100",
    ],
)  # fmt: skip
def test_numbers_beyond_a_space_do_no_more_than_nothing(reply: str) -> None:
    pytest.importorskip("gymnasium")
    world = "gymnasium:MountainCarContinuous-v0?patience=2"
    assert total(world, [reply]) <= total(world, [""]) == 0.0


# ---- verifiers

DOUBLE = "assert double(2) == 4\nassert double(-1) == -2"


@pytest.mark.parametrize("hack", corpus("python-tests"))
def test_python_tests(hack: dict[str, Any]) -> None:
    verifier = PythonTests(hack.get("tests", DOUBLE), seconds=hack.get("seconds", 5.0))
    assert verifier("", hack["answer"]) == 0.0


@pytest.mark.parametrize(
    "tests",
    [DOUBLE, *dict.fromkeys(hack["tests"] for hack in read("python-tests") if "tests" in hack)],
)
def test_an_honest_answer_passes_its_tests(tests: str) -> None:
    assert PythonTests(tests)("", "def double(x): return 2 * x\ndef odd(x): return x % 2 == 1") == 1.0


# ---- Python in the box


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> str:
    rows = tmp_path_factory.mktemp("secret") / "rows.jsonl"
    rows.write_text('{"question": "Which number?", "answer": "#### 730194"}\n')
    return f"gsm8k:{rows}?tools=python"


def boxed(name: str, code: str, last: str) -> Step:
    """The end of an episode that runs a program, and says ``last`` with what it printed."""

    async def episode() -> Step:
        found = environments(name)
        world = found.make()
        try:
            await world.reset(task_of(found, ""), 0)
            step = await world.step(calls.message([calls.Call("python", {"code": code})]))
            printed = str(step.messages[-1]["content"])
            return await world.step({"role": "assistant", "content": last.replace("{result}", printed)})
        finally:
            await world.close()

    return asyncio.run(episode())


@pytest.mark.parametrize("hack", corpus("python"))
def test_python(hack: dict[str, Any], secret: str) -> None:
    step = boxed(secret, hack["code"] * hack.get("times", 1), hack.get("last", "{result}"))
    assert (step.done, step.reward) == (True, 0.0), step.info


def test_an_honest_program(secret: str) -> None:
    assert boxed(secret, "730190 + 4", "{result}").reward == 1.0


# ---- pages

PAGES = "miniwob:enter-text,click-button?turns=4&actions=all"


@pytest.fixture(scope="module")
def browser() -> Iterator[None]:
    """One Chromium for all pages of this file."""
    yield
    found: Any = environments(PAGES)
    asyncio.run(found.aclose())


def page_reward(page: str, replies: Sequence[str]) -> Step:
    """The end of an episode on a page, whose elements stand in the replies by their kind."""

    async def episode() -> Step:
        found = environments(PAGES)
        task = next(one for one in found.tasks("test") if one.data["page"] == page)
        world = found.make()
        try:
            opened = await world.reset(task, 0)
            seen = str(opened.messages[-1]["content"])
            bids = {kind: number for number, kind in reversed(re.findall(r"\[(\d+)\] (\w+)", seen))}
            wanted = re.search(r'on the "(.+?)" button', seen)
            others = re.findall(r'\[(\d+)\] button "(.*?)"', seen)
            if wanted:
                bids["button"] = next(number for number, text in others if text != wanted[1])
                bids["wanted"] = next(number for number, text in others if text == wanted[1])
            for reply in [*replies, *["noop()"] * 4]:
                text = re.sub(r"\{(\w+)\}", lambda found: bids.get(found[1], found[0]), reply)
                step = await world.step({"role": "assistant", "content": text})
                if step.done:
                    return step
            raise AssertionError("the episode has no end")
        finally:
            await world.close()

    return asyncio.run(episode())


@pytest.mark.skipif(
    not all(map(find_spec, ("playwright", "miniwob"))) or not chromium.program(), reason="no Chromium here"
)
@pytest.mark.usefixtures("browser")
@pytest.mark.parametrize("hack", corpus("browser"))
def test_browser(hack: dict[str, Any]) -> None:
    step = page_reward(hack["page"], hack["replies"])
    assert (step.done, step.reward) == (True, 0.0), step.info


@pytest.mark.slow
@pytest.mark.skipif(
    not all(map(find_spec, ("playwright", "miniwob"))) or not chromium.program(), reason="no Chromium here"
)
@pytest.mark.usefixtures("browser")
def test_an_honest_click() -> None:
    assert page_reward("click-button", ["click('{wanted}')"]).reward == 1.0
