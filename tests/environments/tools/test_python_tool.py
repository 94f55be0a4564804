"""Python in the sandbox, as a tool."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from clawback.environments.core import EnvironmentFailure
from clawback.environments.tools.toolbox import ToolError
from clawback.extensions.sandbox import probe
from clawback.extensions.sandbox.python_tool import LIMITS, PythonTool

pytestmark = pytest.mark.skipif(
    not any(rung.usable for rung in probe() if rung.name != "none"), reason="no sandbox holds on this machine"
)


def use(*programs: str, limits: Any = LIMITS) -> list[str]:
    async def whole() -> list[str]:
        box = PythonTool(limits)
        await box.open(0)
        said = []
        try:
            for program in programs:
                try:
                    said.append(await box.call("python", {"code": program}))
                except ToolError as error:
                    said.append(f"! {error}")
        finally:
            await box.close()
            await box.close()
        with pytest.raises(EnvironmentFailure, match="closed"):
            await box.call("python", {"code": "1"})
        return said

    return asyncio.run(whole())


def test_it_prints_as_a_notebook_does_and_files_stay() -> None:
    said = use(
        "x = 6\nx * 7",
        "print('a'); print('b'); None",
        "open('kept.txt', 'w').write('hi')",
        "open('kept.txt').read()",
        "x",
        "def f(:",
        "pass",
    )
    assert said[0] == "42"
    assert said[1] == "a\nb"
    assert said[3] == "'hi'"
    assert "NameError: name 'x' is not defined" in said[4]
    assert "<call>" in said[4]
    assert said[5].startswith("! SyntaxError")
    assert said[6] == "(nothing was printed)"


def test_it_reaches_nothing_and_has_an_end() -> None:
    from dataclasses import replace

    quick = replace(LIMITS, seconds=1.0, cpu_seconds=1.0)
    said = use(
        "import socket; socket.create_connection(('127.0.0.1', 80), 1)",
        "import os; sorted(os.listdir(os.path.expanduser('~')))",
        "import os; [k for k in os.environ if 'CLAWBACK' in k]",
        "while True: pass",
        limits=quick,
    )
    assert said[0].startswith("! ")
    assert said[1] == "[]"
    assert said[2] == "[]"
    assert said[3].startswith("! the program was ended")
