"""Variants of a test file: some of its tests are made to fail, and expected values are taken out.

A process that runs the policy's code controls the interpreter in which a test's assertion is made, so its word is
worth nothing by itself. Two things are kept from it:

- **the expected values and errors.** ``assert slug(x) == "a-b"`` becomes ``observed(0, lambda: slug(x))``, and so does
  ``with pytest.raises(ValueError): slug(x)``: what comes of it leaves the process and is compared outside. Whoever does
  not know what is right cannot report it.
- **which tests are right.** Assertions that need more than a plain value (truth, membership, objects) stay; each
  variant has a random part of these tests *twisted* (another exception, another value, the opposite), so that they
  must fail. They look like the others, and only the process outside knows which they are.
"""

from __future__ import annotations

import ast
import copy
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clawback.extensions.repository_tasks.observed import Raised

OBSERVE = "observed"
"""The name under which the runner offers the function that reports a value."""
Test = ast.FunctionDef | ast.AsyncFunctionDef
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn, ast.Lt: ast.GtE, ast.Gt: ast.LtE,
}  # fmt: skip
_OPPOSITES |= {value: key for key, value in _OPPOSITES.items()}
_OPPOSITE_CALLS = {
    "assertTrue": "assertFalse", "assertIn": "assertNotIn", "assertIsNone": "assertIsNotNone", "assertIs": "assertIsNot",
    "assertEqual": "assertNotEqual", "assertGreater": "assertLessEqual", "assertLess": "assertGreaterEqual",
}  # fmt: skip
_OPPOSITE_CALLS |= {value: key for key, value in _OPPOSITE_CALLS.items()}
_EXCEPTIONS = (
    "ValueError", "TypeError", "KeyError", "IndexError", "AttributeError", "ZeroDivisionError", "NotImplementedError",
)  # fmt: skip


@dataclass(frozen=True)
class Site:
    """Where a value is observed. ``values``: what is right, one for each case of a parametrized test, else one.

    ``errors``: the names of the errors of which one is right, in place of any value.
    """

    values: tuple[Any, ...] = ()
    by_case: bool = False
    errors: frozenset[str] = frozenset()

    def right(self, case: int, value: object) -> bool:
        if self.errors or isinstance(value, Raised):
            return isinstance(value, Raised) and bool(self.errors & value.names)
        expected = (
            self.values[case if self.by_case else 0] if case < len(self.values) or not self.by_case else ...
        )
        try:
            return bool(value == expected)
        except Exception:  # what was reported is anybody's
            return False


@dataclass(frozen=True)
class Variant:
    """One text of a test file; ``twisted``: the tests in it that must fail (``Class::test`` or ``test``)."""

    text: str
    twisted: frozenset[str] = frozenset()
    sites: Mapping[int, Site] = field(default_factory=dict)


def tests_of(tree: ast.Module) -> dict[str, Test]:
    """The test functions of a file, by their names below the file. A name that is defined twice is the last one's."""
    tests: dict[str, Test] = {}

    def collect(body: Sequence[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                collect(node.body, f"{prefix}{node.name}::")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
                tests[f"{prefix}{node.name}"] = node

    collect(tree.body, "")
    return tests


# ---- expected values taken out


def unchanged(source: str) -> Variant:
    """The file as it is, in the layout that all variants have. Raises ``SyntaxError``."""
    return Variant(ast.unparse(ast.parse(source)))


def hide(source: str, leave: frozenset[int] = frozenset()) -> Variant:
    """The file without the values that it expects. ``leave``: sites that stay as they are. Raises ``SyntaxError``."""
    tree = ast.parse(source)
    hiding = _Hiding(leave)
    for test in tests_of(tree).values():
        hiding.hide(test)
    return Variant(ast.unparse(ast.fix_missing_locations(tree)), frozenset(), hiding.sites)


class _Hiding(ast.NodeTransformer):
    """Replaces comparisons with plain values by reports of the value."""

    def __init__(self, leave: frozenset[int]) -> None:
        self.leave, self.sites = leave, dict[int, Site]()
        self._count = 0
        self._columns: dict[str, tuple[Any, ...]] = {}
        self._locals: dict[str, Any] = {}

    def hide(self, test: Test) -> None:
        uses = Counter(
            node.id
            for node in ast.walk(test)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        )
        self._columns = {name: values for name, values in _columns(test).items() if uses[name] == 1}
        self._locals = {name: value for name, value in _plain_locals(test).items() if uses[name] == 1}
        hidden: set[str] = set()
        self._hidden = hidden
        test.body = [self.visit(statement) for statement in test.body]
        test.body = [s for s in test.body if _assigned(s) not in hidden] or [ast.Pass()]
        _blank_columns(test, hidden)
        if len(test.body) > 1 and ast.get_docstring(test) is not None:
            del test.body[0]  # it may say what is expected

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        match node.test:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                return self._observed(left, right) or node
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        match node.value:
            case ast.Call(func=ast.Attribute(attr="assertEqual"), args=[left, right], keywords=[]):
                return self._observed(left, right) or node
        return node

    def visit_With(self, node: ast.With) -> ast.stmt:
        match node:
            case ast.With(
                items=[ast.withitem(context_expr=raises, optional_vars=None)], body=[ast.Expr(value=value)]
            ):
                if (errors := _errors(raises)) and _movable(value):
                    return self._report(value, Site(errors=errors)) or node
        self.generic_visit(node)
        return node

    def _report(self, value: ast.expr, site: Site) -> ast.stmt | None:
        number, self._count = self._count, self._count + 1
        if number in self.leave:
            return None
        self.sites[number] = site
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        arguments: list[ast.expr] = [ast.Constant(number), ast.Lambda(nothing, value)]
        return ast.Expr(ast.Call(ast.Name(OBSERVE, ast.Load()), arguments, []))

    def _observed(self, left: ast.expr, right: ast.expr) -> ast.stmt | None:
        for value, expected in ((left, right), (right, left)):
            site = self._site(expected)
            if site is None or self._site(value) is not None or not _movable(value):
                continue
            report = self._report(value, site)
            if report is not None and isinstance(expected, ast.Name):
                self._hidden.add(expected.id)
            return report
        return None

    def _site(self, node: ast.expr) -> Site | None:
        if isinstance(node, ast.Name):
            if node.id in self._columns:
                return Site(self._columns[node.id], by_case=True)
            return Site((self._locals[node.id],)) if node.id in self._locals else None
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return None
        return Site((value,)) if _tells(value) else None


def _movable(node: ast.expr) -> bool:
    """Whether an expression means the same within a lambda."""
    kinds = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
    calls = (part.func for part in ast.walk(node) if isinstance(part, ast.Call))
    frames = any(isinstance(call, ast.Name) and call.id in ("super", "locals") for call in calls)
    return not frames and not any(isinstance(part, kinds) for part in ast.walk(node))


def _errors(node: ast.expr) -> frozenset[str]:
    """The errors that ``pytest.raises(X)`` waits for; none for any other context, or one that looks at the message."""
    match node:
        case ast.Call(
            func=ast.Attribute(attr="raises" | "assertRaises") | ast.Name(id="raises"),
            args=[kinds],
            keywords=[],
        ):
            parts = kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]
            names = [
                part.id
                if isinstance(part, ast.Name)
                else part.attr
                if isinstance(part, ast.Attribute)
                else ""
                for part in parts
            ]
            return frozenset(names) if all(names) else frozenset()
    return frozenset()


def _tells(value: object) -> bool:
    """Whether a value is one that cannot simply be guessed: neither None nor a truth value."""
    return not (value is None or isinstance(value, bool))


def _assigned(node: ast.stmt) -> str:
    """The one name that a plain assignment sets ("" for anything else)."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return ""


def _plain_locals(test: Test) -> dict[str, Any]:
    """Names that a test sets once, to a plain value."""
    stored = Counter(
        node.id for node in ast.walk(test) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    values: dict[str, Any] = {}
    for statement in test.body:
        name = _assigned(statement)
        if name and stored[name] == 1 and isinstance(statement, ast.Assign):
            try:
                value = ast.literal_eval(statement.value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            if _tells(value):
                values[name] = value
    return values


def _cases(test: Test) -> tuple[list[str], list[ast.expr]] | None:
    """The names and the rows of a test with one ``parametrize``; None for any other."""
    calls = [
        node for node in test.decorator_list
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parametrize"
    ]  # fmt: skip
    if len(calls) != 1 or len(calls[0].args) != 2 or not isinstance(calls[0].args[1], ast.List | ast.Tuple):
        return None
    try:
        names = ast.literal_eval(calls[0].args[0])
    except (ValueError, TypeError):
        return None
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    return names, calls[0].args[1].elts


def _columns(test: Test) -> dict[str, tuple[Any, ...]]:
    """The values of each parameter of a parametrized test, case by case, where all of them are plain."""
    if (cases := _cases(test)) is None or len(cases[0]) < 2:
        return {}
    names, rows = cases
    if not all(isinstance(row, ast.Tuple | ast.List) and len(row.elts) == len(names) for row in rows):
        return {}
    columns: dict[str, tuple[Any, ...]] = {}
    for index, name in enumerate(names):
        try:
            values = tuple(ast.literal_eval(row.elts[index]) for row in rows)  # type: ignore[attr-defined]
        except (ValueError, TypeError, SyntaxError):
            continue
        if values and all(map(_tells, values)):
            columns[name] = values
    return columns


def _blank_columns(test: Test, hidden: set[str]) -> None:
    cases = _cases(test)
    for name in hidden if cases else ():
        if cases and name in cases[0]:
            for row in cases[1]:
                row.elts[cases[0].index(name)] = ast.Constant(None)  # type: ignore[attr-defined]


# ---- tests that must fail


@dataclass
class _Twist:
    """One change that makes a test fail: the node and what is done to it."""

    node: ast.AST
    kind: str


def twist(variant: Variant, names: Sequence[str], chance: random.Random, certain: bool = False) -> Variant:
    """The file with these tests twisted. ``certain``: only where the change must make the test fail, for none is tried out."""
    tree = ast.parse(variant.text)
    tests, twisted = tests_of(tree), set[str]()
    for name in names:
        if name in tests and _twist(tests[name], chance, certain):
            twisted.add(name)
    return Variant(ast.unparse(ast.fix_missing_locations(tree)), frozenset(twisted), variant.sites)


def names_of(source: str) -> list[str]:
    """The tests of a file."""
    return list(tests_of(ast.parse(source)))


def twistable(source: str, certain: bool = False) -> set[str]:
    """The tests of a file that can be twisted."""
    tests = tests_of(ast.parse(source))
    return {name for name, test in tests.items() if next(_twists(test, certain), None) is not None}


def refute(variant: Variant, names: Sequence[str], chance: random.Random) -> Variant:
    """The file with a false statement at the end of these tests: for those that no twist makes fail."""
    tree = ast.parse(variant.text)
    tests = tests_of(tree)
    for name in names:
        first = chance.randrange(1, 9)
        wrong = ast.parse(f"assert {first} == {first + chance.randrange(1, 9)}").body[0]
        tests[name].body.append(copy.deepcopy(wrong))
    return Variant(
        ast.unparse(ast.fix_missing_locations(tree)), variant.twisted | frozenset(names), variant.sites
    )


def _twists(test: Test, certain: bool) -> Iterator[_Twist]:
    statements = test.body if certain else list(ast.walk(test))
    for node in statements:
        match node:
            case ast.Assert():
                yield from _of_expression(node.test, node)
            case ast.With(items=items) | ast.AsyncWith(items=items):
                for item in items:
                    if _raises(item.context_expr):
                        yield _Twist(item.context_expr, "exception")
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name)) as call) if name in _OPPOSITE_CALLS:
                constants = _constants(call.args[-1]) if call.args and name == "assertEqual" else []
                yield from (_Twist(constant, "constant") for constant in constants)
                if not constants:
                    yield _Twist(call.func, "call")
    if not certain and (cases := _cases(test)) is not None:
        for row in cases[1]:
            last = row.elts[-1] if isinstance(row, ast.Tuple | ast.List) and row.elts else None
            constants = _constants(last) if last is not None else []
            yield from (_Twist(constant, "constant") for constant in constants if constant.value is not None)


def _of_expression(expression: ast.expr, holder: ast.Assert) -> Iterator[_Twist]:
    match expression:
        case ast.Compare(ops=[op], comparators=[right]) if type(op) in _OPPOSITES:
            constants = _constants(right) if isinstance(op, ast.Eq | ast.Is) else []
            yield from (_Twist(constant, "constant") for constant in constants)
            if not constants:
                yield _Twist(expression, "comparison")
        case _:
            yield _Twist(holder, "truth")


def _constants(node: ast.AST) -> list[ast.Constant]:
    """Values within an expression; not the keys and the parts of strings."""
    skipped = {
        id(part) for part in ast.walk(node) if isinstance(part, ast.JoinedStr) for part in ast.walk(part)
    }
    return [
        part for part in ast.walk(node)
        if isinstance(part, ast.Constant) and id(part) not in skipped and part.value is not Ellipsis
    ]  # fmt: skip


def _raises(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="raises" | "assertRaises"), args=[ast.Name(), *_]):
            return True
        case ast.Call(func=ast.Name(id="raises"), args=[ast.Name(), *_]):
            return True
    return False


def _twist(test: Test, chance: random.Random, certain: bool) -> bool:
    twists = list(_twists(test, certain))
    if not twists:
        return False
    chosen = chance.choice(twists)
    match chosen.kind, chosen.node:
        case "constant", ast.Constant() as constant:
            constant.value = another(constant.value, chance)
        case "comparison", ast.Compare() as compare:
            compare.ops = [_OPPOSITES[type(compare.ops[0])]()]
        case "call", ast.Attribute() as called:
            called.attr = _OPPOSITE_CALLS[called.attr]
        case "exception", ast.Call(args=[ast.Name() as name, *_]):
            name.id = chance.choice([other for other in _EXCEPTIONS if not _related(other, name.id)])
        case "truth", ast.Assert(test=ast.UnaryOp(op=ast.Not(), operand=operand)) as stated:
            stated.test = operand
        case _, ast.Assert() as stated:
            stated.test = ast.UnaryOp(ast.Not(), stated.test)
    return True


def _related(subject: str, other: str) -> bool:
    import builtins

    first, second = (getattr(builtins, name, None) for name in (subject, other))
    if not (isinstance(first, type) and isinstance(second, type)):
        return False
    return issubclass(first, second) or issubclass(second, first)


def another(value: Any, chance: random.Random) -> Any:
    """A value like this one that is not equal to it: of the same letters or the same size where that can be."""
    if value is None or isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + chance.choice([-1, 1, 2]) if value else chance.choice([1, 2])
    if isinstance(value, float | complex):
        return value + chance.choice([-1.0, 1.0, 2.0])
    if not value:
        return b"a" if isinstance(value, bytes) else chance.choice("aeo")
    index = chance.randrange(len(value))
    part = value[index : index + 1]
    variants = [value[:index] + value[index + 1 :], value[:index] + part + value[index:], value[::-1]]
    swapped = value[:index] + value[index + 1 : index + 2] + part + value[index + 2 :]
    return chance.choice([one for one in (*variants, swapped) if one != value])
