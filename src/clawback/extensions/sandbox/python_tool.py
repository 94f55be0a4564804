"""A Python tool that runs in the sandbox: each call is a program of its own, in a folder that lasts for the episode.

As in a notebook, a last line that is an expression is printed. By default the machine's strongest isolation
is used, never a weaker one (``clawback.extensions.sandbox``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from clawback.environments.core import EnvironmentFailure, Tool
from clawback.environments.tools.toolbox import ToolError, cut
from clawback.errors import SandboxError
from clawback.extensions.sandbox import Limits, Sandbox, open_sandbox

NAME = "python"
MIB = 1 << 20
LIMITS = Limits(
    seconds=20, cpu_seconds=10, memory=512 * MIB, processes=16, disk=32 * MIB, files=1000, output=64 << 10
)
LONGEST = 100_000
"""Characters of a program."""
_RUNNER = """
import ast, sys
source = sys.stdin.read()
try:
    tree = ast.parse(source, "<call>")
except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
    sys.exit(f"{type(error).__name__}: {error}")
if tree.body and isinstance(tree.body[-1], ast.Expr):
    shown = ast.Expr(ast.Call(ast.Name("__show__", ast.Load()), [tree.body[-1].value], []))
    tree.body[-1] = ast.copy_location(shown, tree.body[-1])
    ast.fix_missing_locations(tree)
world = {"__name__": "__main__", "__show__": lambda value: None if value is None else print(repr(value))}
try:
    exec(compile(tree, "<call>", "exec"), world)
except SystemExit:
    raise
except BaseException as error:
    import traceback
    trace = error.__traceback__.tb_next
    sys.stdout.flush()
    traceback.print_exception(type(error), error, trace)
    sys.exit(1)
"""


class PythonTool:
    """One box an episode; files that a call writes are there for the next."""

    def __init__(self, limits: Limits = LIMITS, rung: str | None = None) -> None:
        self.limits, self.rung = limits, rung
        self.box: Sandbox | None = None

    async def open(self, seed: int) -> Sequence[Tool]:  # noqa: ARG002
        await self.close()
        self.box = await asyncio.to_thread(open_sandbox, self.limits, self.rung)
        said = "Run a Python program and see what it prints; a last line that is an expression is printed, too. Each call starts anew."
        code = {"type": "string", "description": "the program"}
        parameters = {
            "type": "object",
            "properties": {"code": code},
            "required": ["code"],
            "additionalProperties": False,
        }
        return [
            {"type": "function", "function": {"name": NAME, "description": said, "parameters": parameters}}
        ]

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:  # noqa: ARG002
        code = str(arguments["code"])
        if self.box is None:
            raise EnvironmentFailure("The box of this episode is closed.")
        if len(code) > LONGEST:
            raise ToolError(f"a program may have {LONGEST} characters")
        try:
            result = await asyncio.to_thread(
                self.box.exec, ["python3", "-I", "-c", _RUNNER], input=code.encode("utf-8", "replace")
            )
        except SandboxError as error:
            raise EnvironmentFailure(str(error)) from error
        if result.ended:
            raise ToolError(
                f"the program was ended: it used too much {result.ended}. {cut(result.stdout, 500)}".strip()
            )
        said = "\n".join(part.rstrip() for part in (result.stdout, result.stderr) if part.strip())
        if result.exit_code:
            raise ToolError(said or f"the program ended with {result.exit_code}")
        return said or "(nothing was printed)"

    async def state(self) -> Any:
        return None

    async def close(self) -> None:
        box, self.box = self.box, None
        if box is not None:
            await asyncio.to_thread(box.close)
