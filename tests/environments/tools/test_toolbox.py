"""Boxes of tools: functions, objects, several as one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from clawback.environments.core import EnvironmentFailure
from clawback.environments.tools.calls import Call
from clawback.environments.tools.toolbox import (
    MOST_CHARACTERS,
    DefinedTools,
    Functions,
    JointToolbox,
    Toolbox,
    ToolError,
    called,
)
from clawback.errors import UsageError


def double(x: int) -> int:
    """Twice as much."""
    return 2 * x


async def later(word: str = "soon") -> dict[str, str]:
    await asyncio.sleep(0)
    return {"said": word}


def fail(how: str) -> str:
    if how == "tool":
        raise ToolError("not today")
    if how == "value":
        raise ValueError("no such value")
    if how == "key":
        raise KeyError
    if how == "disk":
        raise OSError("disk full")
    return "x" * 10_000


class Counter:
    def __init__(self) -> None:
        self.count = 0
        self.closed = 0

    def add(self, n: int) -> str:
        """Count up."""
        self.count += n
        return "ok"

    def state(self) -> dict[str, int]:
        return {"count": self.count}

    def close(self) -> None:
        self.closed += 1


def use(box: Toolbox, *made: Call) -> list[tuple[str, bool]]:
    async def whole() -> list[tuple[str, bool]]:
        tools: Sequence[Any] = await box.open(0)
        try:
            return [await called(box, tools, call) for call in made]
        finally:
            await box.close()

    return asyncio.run(whole())


def test_functions_are_called_with_what_fits_them() -> None:
    assert use(
        Functions(double, later),
        Call("double", {"x": 4}),
        Call("later"),
        Call("double", {"x": "4"}),
        Call("double", {}),
        Call("double", {"x": 1, "y": 2}),
        Call("halve", {"x": 4}),
    ) == [
        ("8", True),
        ('{"said": "soon"}', True),
        ("Error: x: '4' is not of type 'integer'", False),
        ("Error: 'x' is a required property", False),
        ("Error: Additional properties are not allowed ('y' was unexpected)", False),
        ("Error: there is no tool 'halve'. There are: double, later.", False),
    ]


def test_what_a_tool_raises_is_told_but_a_broken_machine_is_not() -> None:
    box = Functions(fail)
    assert use(box, *(Call("fail", {"how": how}) for how in ("tool", "value", "key"))) == [
        ("Error: not today", False),
        ("Error: ValueError: no such value", False),
        ("Error: KeyError", False),
    ]
    [(said, right)] = use(box, Call("fail", {"how": "much"}))
    assert right
    assert len(said) < MOST_CHARACTERS + 40
    assert "6000 more characters" in said
    with pytest.raises(EnvironmentFailure, match="disk full"):
        use(box, Call("fail", {"how": "disk"}))


def test_an_object_has_tools_a_state_and_an_end() -> None:
    counter = Counter()
    box = Functions(owner=counter)
    assert [t["function"]["name"] for t in box.tools] == ["add"]
    assert use(box, Call("add", {"n": 2}), Call("add", {"n": 3})) == [("ok", True)] * 2
    assert asyncio.run(box.state()) == {"count": 5}
    assert counter.closed == 1


def test_a_slow_function_holds_nobody_up() -> None:
    gate = threading.Event()

    def wait() -> str:
        assert gate.wait(10)
        return "done"

    async def whole() -> list[str]:
        box = Functions(wait)
        slow = asyncio.create_task(box.call("wait", {}))
        await asyncio.sleep(0)
        gate.set()  # reached although the function is under way
        return [await slow]

    assert asyncio.run(whole()) == ["done"]


def test_boxes_join_and_names_must_differ() -> None:
    foreign = {"type": "function", "function": {"name": "foreign", "parameters": {"type": "object"}}}
    counter = Counter()
    box = JointToolbox(Functions(double), Functions(owner=counter), DefinedTools([foreign]))
    assert use(box, Call("foreign", {"z": 1}), Call("add", {"n": 7}), Call("double", {"x": 1})) == [
        ("ok", True),
        ("ok", True),
        ("2", True),
    ]
    assert asyncio.run(box.state()) == [None, {"count": 7}, None]
    with pytest.raises(UsageError, match="Two tools are called 'double'"):
        use(JointToolbox(Functions(double), Functions(double)))
