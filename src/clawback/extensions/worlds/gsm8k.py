"""GSM8K's questions from a file of yours, answered with a calculator, with Python in the sandbox, or without tools.

The file is read in place: JSON or JSON lines with ``question`` and ``answer`` (the original, whose last line is
``#### 42``) or ``ground_truth_answer``.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import plugins
from clawback.environments import world_helpers
from clawback.environments.core import Task
from clawback.environments.tools.environment import EpisodeRules, ToolSet
from clawback.environments.tools.task_rewards import AnswerReward
from clawback.environments.tools.toolbox import DefinedTools, Functions, Toolbox, ToolError
from clawback.errors import UsageError

if TYPE_CHECKING:
    from clawback.records import JsonObject

SYSTEM = "Solve the problem step by step. End with the answer, a number, on a line of its own: #### NUMBER"
BOXES: dict[str, Callable[[Task], Toolbox]] = {
    "none": lambda _: DefinedTools(()),
    "calculator": lambda _: Functions(calculate),
    "python": lambda _: plugins.load(plugins.SANDBOXES, "own").PythonTool(),
}
_OPERATIONS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def names() -> list[str]:
    return ["FILE"]


def make(rest: str, settings: Mapping[str, Any]) -> ToolSet:
    world_helpers.unknown_settings("gsm8k", settings, ("tools", "held_out", "turns"))
    tools = str(settings.get("tools", "calculator"))
    if tools not in BOXES:
        raise UsageError(f"gsm8k has no tools `{tools}`. It has: {', '.join(BOXES)}.")
    if not rest:
        raise UsageError("gsm8k needs the file with the questions: gsm8k:path/to/gsm8k-test.json")
    rows = [_row(row, rest) for row in world_helpers.rows(Path(rest))]
    tasks = world_helpers.split_rows("gsm8k", rows, float(settings.get("held_out", 0.2)))
    rules = EpisodeRules(turns=int(settings.get("turns", 8)), system=SYSTEM)
    return ToolSet(f"gsm8k?tools={tools}", tasks, BOXES[tools], AnswerReward(), rules)


def _row(row: Mapping[str, object], file: str) -> JsonObject:
    answer = str(row.get("ground_truth_answer", row.get("answer", ""))).rpartition("####")[2].strip()
    if "question" not in row or not answer:
        raise UsageError(f"{file}: a row has no `question` or no `answer`.")
    split = {"split": row["split"]} if "split" in row else {}
    return {"prompt": str(row["question"]), "answer": answer, **split}


def calculate(expression: str) -> str:
    """Work out an arithmetic expression.

    Args:
        expression: numbers, + - * / // % and brackets, such as (3 + 4) * 12.5
    """
    if len(expression) > 500:
        raise ToolError("the expression is too long")
    try:
        value = _value(ast.parse(expression.replace(",", "").replace("$", "").strip(), mode="eval").body)
        if not isfinite(value):
            raise ValueError("the result is no finite number")
        return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:.10g}"
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError, ZeroDivisionError) as error:
        raise ToolError(f"that cannot be worked out: {error}") from error


def _value(node: ast.AST) -> Any:
    """Numbers and the four operations; anything else is refused. No powers: they would take for ever."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.operand))
    raise ValueError("only numbers, + - * / // % and brackets")
