"""Python tests without what they expect: each assertion reports a value, and the values are compared elsewhere.

A process that runs an answer's code controls the interpreter in which an assertion is made: it may read the test,
swallow its failure, or print what a passing test prints. So the process is given ``observed(0, lambda: double(2))`` in
place of ``assert double(2) == 4``, of ``assert double(2) > 3`` and of ``assert abs(double(2) - 4) < 0.1``: a value that
compares as anything one likes is worth nothing. Other assertions say what they want (``assert isinstance(double(2), int)``);
whether true or false is right there is not told.
"""

from __future__ import annotations

import ast
import json
import math
import operator
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Check = Callable[[Any], bool]
"""Whether a value that was observed is right. May raise ``TypeError`` for one of another kind."""

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
    """The text that is run, the check of each site's value, and the sites that are passed once each, in order."""

    text: str
    checks: dict[int, Check] = field(default_factory=dict)
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
                if not self.checks[site](_value(written)):
                    return False
                seen.append(site)
            except (ValueError, TypeError, KeyError, SyntaxError, OverflowError, MemoryError, RecursionError):
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
        first = len(hiding.checks)
        body.append(hiding.visit(statement))
        if isinstance(statement, ast.Assert) and len(hiding.checks) > first:
            required.append(first)
    tree.body = body
    return HiddenTests(ast.unparse(ast.fix_missing_locations(tree)), hiding.checks, tuple(required))


class _Hiding(ast.NodeTransformer):
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.checks: dict[int, Check] = {}

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        if any(
            isinstance(part, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr) for part in ast.walk(node)
        ):
            return node
        if found := _comparison(node.test):
            return self._observed(*found)
        negated = self.chance.random() < 0.5
        test = ast.UnaryOp(ast.Not(), node.test)
        return self._observed(
            test if negated else ast.UnaryOp(ast.Not(), test), lambda value: value is not negated
        )

    def _observed(self, value: ast.expr, check: Check) -> ast.stmt:
        site = len(self.checks)
        self.checks[site] = check
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        arguments: list[ast.expr] = [ast.Constant(site), ast.Lambda(nothing, value)]
        return ast.Expr(ast.Call(ast.Name("observed", ast.Load()), arguments, []))


class Opaque:
    """A value that is no literal. It is none of those that a test can name."""


def _value(written: str) -> object:
    try:
        return ast.literal_eval(written)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return Opaque()


_OPERATORS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda value, among: value in among, ast.NotIn: lambda value, among: value not in among,
}  # fmt: skip


def _comparison(test: ast.expr) -> tuple[ast.expr, Check] | None:
    """The part of an assertion whose value is compared with a literal, and the comparison; None for other assertions."""
    match test:
        case ast.Compare(ast.Call(ast.Name("abs"), [ast.BinOp(left, ast.Sub(), right)], []), [op], [limit]):
            for value, near in ((left, right), (right, left)):
                if (found := _literals(near, limit)) and isinstance(op, ast.Lt | ast.LtE):
                    return value, _near(found[0], found[1], _OPERATORS[type(op)])
        case ast.Compare(value, [ast.Eq()], [ast.Call(func, [near], keywords)]) if _named(
            func, "approx", "pytest"
        ):
            found = _literals(near, *[word.value for word in keywords])
            names = [word.arg for word in keywords]
            if found and set(names) <= {"rel", "abs"}:
                least = {"rel": 1e-6, "abs": 1e-12} | dict(zip(names, found[1:], strict=True))
                most = max(least["rel"] * abs(found[0]), least["abs"]) if _number(found[0]) else None
                return None if most is None else (value, _near(found[0], most, operator.le))
            return None
        case ast.Call(func, [left, right], keywords) if _named(func, "isclose", "math"):
            for value, near in ((left, right), (right, left)):
                found = _literals(near, *[word.value for word in keywords])
                if found and {word.arg for word in keywords} <= {"rel_tol", "abs_tol"}:
                    words = {str(word.arg): given for word, given in zip(keywords, found[1:], strict=True)}
                    return value, _close(found[0], words)
    match test:
        case ast.Compare(left, [op], [right]):
            if (found := _literals(right)) and _plain(op, found[0]):
                return left, _held(_OPERATORS[type(op)], found[0], flipped=False)
            if (found := _literals(left)) and not isinstance(op, ast.In | ast.NotIn) and _plain(op, found[0]):
                return right, _held(_OPERATORS[type(op)], found[0], flipped=True)
    return None


def _literals(*parts: ast.expr) -> list[Any] | None:
    try:
        return [ast.literal_eval(part) for part in parts]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _named(function: ast.expr, name: str, module: str) -> bool:
    match function:
        case ast.Name(found):
            return found == name
        case ast.Attribute(ast.Name(home), found):
            return (home, found) == (module, name)
    return False


def _plain(op: ast.cmpop, literal: object) -> bool:
    """``is`` can be told of a value's text only where there is one such object."""
    return not isinstance(op, ast.Is | ast.IsNot) or literal is None or isinstance(literal, bool)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _near(near: object, limit: object, within: Callable[[Any, Any], Any]) -> Check:
    return lambda value: bool(within(abs(value - near), limit))


def _close(near: Any, words: dict[str, Any]) -> Check:
    return lambda value: math.isclose(value, near, **words)


def _held(compare: Callable[[Any, Any], Any], literal: object, *, flipped: bool) -> Check:
    return lambda value: bool(compare(literal, value) if flipped else compare(value, literal))
