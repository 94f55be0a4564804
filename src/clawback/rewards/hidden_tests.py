"""Python tests without what they expect: each assertion reports a value, and the values are compared elsewhere.

A process that runs an answer's code controls the interpreter in which an assertion is made: it may read the test,
swallow its failure, or print what a passing test prints. So the process is given ``observed(0, lambda: double(2))`` in
place of ``assert double(2) == 4``. For an assertion without a plain value, it is not told whether true or false is right.
"""

from __future__ import annotations

import ast
import json
import random
from dataclasses import dataclass, field
from typing import Any

MARK = "\x1e"
"""Begins a line that reports something."""
OBSERVE = """
def observed(site, expression, write=__import__("os").write, dumps=__import__("json").dumps, numbers=__import__("numbers")):
    value = expression()
    if hasattr(value, "item") and hasattr(value, "dtype"):
        value = value.item()
    elif isinstance(value, numbers.Number) and not isinstance(value, (int, float, complex)):
        value = int(value) if value == int(value) else float(value)
    write(1, ("\\n\\x1e" + dumps([site, repr(value)[:100000]]) + "\\n").encode("utf-8", "replace"))
"""


@dataclass(frozen=True)
class HiddenTests:
    """The text that is run, what is right at each site, and the sites that are passed once each, in order."""

    text: str
    expected: dict[int, Any] = field(default_factory=dict)
    required: tuple[int, ...] = ()

    def passed(self, output: str) -> bool:
        """Whether a process that wrote this came to the end and gave the right value at each site."""
        seen: list[int] = []
        ended = False
        for line in output.split("\n"):
            if not line.startswith(MARK):
                continue
            try:
                site, written = json.loads(line[len(MARK) :])
                ended = ended or site == "end"
                if site == "end":
                    continue
                if not bool(ast.literal_eval(written) == self.expected[site]):
                    return False
                seen.append(site)
            except (ValueError, TypeError, KeyError, SyntaxError, MemoryError, RecursionError):
                return False
        once = set(self.required)
        return ended and [site for site in seen if site in once] == list(self.required)


def hide(tests: str, chance: random.Random) -> HiddenTests:
    """Tests without their expected values. Raises ``SyntaxError`` for a text that is no Python."""
    tree = ast.parse(tests)
    hiding = _Hiding(chance)
    required: list[int] = []
    body: list[ast.stmt] = []
    for statement in tree.body:
        first = len(hiding.expected)
        body.append(hiding.visit(statement))
        if isinstance(statement, ast.Assert) and len(hiding.expected) > first:
            required.append(first)
    tree.body = body
    return HiddenTests(ast.unparse(ast.fix_missing_locations(tree)), hiding.expected, tuple(required))


class _Hiding(ast.NodeTransformer):
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.expected: dict[int, Any] = {}

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        if any(
            isinstance(part, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr) for part in ast.walk(node)
        ):
            return node
        match node.test:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                for value, wanted in ((left, right), (right, left)):
                    try:
                        return self._observed(value, ast.literal_eval(wanted))
                    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                        continue
        negated = self.chance.random() < 0.5
        test = ast.UnaryOp(ast.Not(), node.test)
        return self._observed(test if negated else ast.UnaryOp(ast.Not(), test), not negated)

    def _observed(self, value: ast.expr, expected: Any) -> ast.stmt:
        site = len(self.expected)
        self.expected[site] = expected
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        arguments: list[ast.expr] = [ast.Constant(site), ast.Lambda(nothing, value)]
        return ast.Expr(ast.Call(ast.Name("observed", ast.Load()), arguments, []))
