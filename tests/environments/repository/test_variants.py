"""What leaves a test file before the policy's code can read it, and which tests are made to fail."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest

from clawback.environments.core import EnvironmentFailure
from clawback.extensions.repository_tasks import checkout, observed, runner, swe_rows, variants
from clawback.extensions.repository_tasks.repository_environment import RepositoryTasks
from tests.environments.repository.test_repository import bash, play

TESTS = '''
import unittest
import pytest
from calc import Money, add, is_even, parse


def test_plain():
    """It gives 4."""
    assert add(2, 2) == 4
    wanted = [1, 2]
    assert sorted([2, 1]) == wanted


@pytest.mark.parametrize("text, value", [("1", 1), ("2,5", 2.5), ("-3", -3)])
def test_cases(text, value):
    assert parse(text) == value


@pytest.mark.parametrize("number", [2, 4, 6])
def test_even(number):
    assert is_even(number)


def test_odd():
    assert not is_even(3)


def test_error():
    with pytest.raises(ValueError):
        parse("x")


def test_message():
    with pytest.raises(ValueError, match="no number"):
        parse("x")


def test_object():
    assert Money(3) == Money(3)
    assert Money(3) != Money(4)


class TestMany:
    def test_member(self):
        assert 3 in [add(1, 2)]


class TestOld(unittest.TestCase):
    def test_equal(self):
        self.assertEqual(add(1, 1), 2)
        self.assertTrue(is_even(2))

    def test_raises(self):
        with self.assertRaises(ValueError):
            parse("")
'''
WRONG = """
class Money:
    def __init__(self, n): self.n = n


def add(a, b): return a + b + 1
def is_even(n): return True
def parse(text): return text
"""
RIGHT = """
class Money:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return self.n == other.n


def add(a, b): return a + b
def is_even(n): return n % 2 == 0
def parse(text):
    text = text.replace(",", ".")
    try: return float(text) if "." in text else int(text)
    except ValueError: raise ValueError("no number: " + text)
"""
OTHERWISE = """
class Broken(ValueError): pass


class Money(tuple):
    def __new__(cls, n): return tuple.__new__(cls, (n,))


def add(a, b): return sum([a, b])
def is_even(n): return [True, False][n & 1]
def parse(text):
    try: return float(text.replace(",", "."))
    except Exception: raise Broken("no number")
"""
SWALLOW = """
import _pytest.python
_run = _pytest.python.Function.runtest
def runtest(self):
    try: _run(self)
    except BaseException: pass
_pytest.python.Function.runtest = runtest
import _pytest.unittest
_pytest.unittest.TestCaseFunction.runtest = lambda self: None
"""


def test_plain_values_and_errors_leave_the_file() -> None:
    variant = variants.hide(TESTS)
    for secret in ("4.0", "== 4", "2.5", "[1, 2]", "It gives", "with pytest.raises(ValueError):\n", "wanted"):
        assert secret not in variant.text
    assert [site.values for site in variant.sites.values() if site.by_case] == [(1, 2.5, -3)]
    assert sum(bool(site.errors) for site in variant.sites.values()) == 2
    ast.parse(variant.text)


def test_what_cannot_leave_can_be_twisted() -> None:
    variant = variants.hide(TESTS)
    able = variants.twistable(variant.text)
    assert {
        "test_even",
        "test_odd",
        "test_object",
        "test_message",
        "TestMany::test_member",
        "TestOld::test_equal",
    } <= able
    for seed in range(20):
        twisted = variants.twist(variant, sorted(able), random.Random(seed))
        assert twisted.twisted == able
        assert twisted.text != variant.text
        ast.parse(twisted.text)


@pytest.mark.parametrize(
    "value", [True, None, 0, 7, -1, 0.5, 2j, "", "a", "ab", "aaa", "hello", b"", b"x", b"xyz"]
)
def test_another_value_is_another(value: object) -> None:
    for seed in range(30):
        other = variants.another(value, random.Random(seed))
        assert other != value
        assert isinstance(other, type(value)) or value is None


class Text(str):
    """A text that claims to equal everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __str__(self) -> str:
        return "right"

    __hash__ = str.__hash__


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -5,
        10**40,
        1.5,
        float("inf"),
        "é\n",
        b"\0",
        [1, [2]],
        (1, "a"),
        {"a": [1]},
        {1, 2},
        1j,
        {(1, 2): None},
    ],
)
def test_plain_data_is_read_back(value: object) -> None:
    assert observed.value(runner.plain(value)) == value
    assert type(observed.value(runner.plain(value))) is type(value)


def test_an_object_equals_nothing_outside() -> None:
    assert observed.value(runner.plain(Text("wrong"))) == "wrong"
    assert observed.value(runner.plain(Text("wrong"))) != "right"
    other = observed.value(runner.plain(object()))
    assert other != 1
    assert not variants.Site((4,)).right(0, other)
    assert not variants.Site(errors=frozenset({"ValueError"})).right(0, 4)
    assert not variants.Site((4,)).right(0, observed.Raised(frozenset({"ValueError"})))
    assert not variants.Site((1, 2), by_case=True).right(2, 2)


def tasks_of(root: Path, patch: bool = True) -> RepositoryTasks:
    """One instance whose fix makes every kind of test pass."""
    source = root / "own__calc"
    (source / "tests").mkdir(parents=True)
    (source / "calc.py").write_text(WRONG)
    (source / "tests" / "test_old.py").write_text(
        "from calc import add\n\n\ndef test_kind():\n    assert add\n"
    )
    checkout.git(source, "init", "--quiet")
    who = {f"GIT_{role}_{key}": "x@y" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    checkout.git(source, "add", "--all")
    checkout.git(source, "commit", "--quiet", "-m", "Begin", env=who)
    base = checkout.git(source, "rev-parse", "HEAD").strip()
    (source / "calc.py").write_text(RIGHT)
    (source / "tests" / "test_calc.py").write_text(TESTS)
    checkout.git(source, "add", "--all")
    fix = checkout.git(source, "diff", "--cached", "--", "calc.py")
    tests = checkout.git(source, "diff", "--cached", "--", "tests")
    fails = ["test_plain", "test_cases[1-1]", "test_cases[2,5-2.5]", "test_cases[-3--3]", "test_odd", "test_error", "test_message",
             "test_object", "TestMany::test_member", "TestOld::test_equal", "TestOld::test_raises"]  # fmt: skip
    row = swe_rows.InstanceRow(
        "calc-1", "own/calc", base, "Mend it.", fix if patch else "", tests,
        tuple(f"tests/test_calc.py::{name}" for name in fails),
        ("tests/test_calc.py::test_even[2]", "tests/test_calc.py::test_even", "tests/test_old.py::test_kind"),
    )  # fmt: skip
    return RepositoryTasks([row], root)


def reward(tasks: RepositoryTasks, code: str) -> float | None:
    (task,) = tasks.tasks("test")
    write = bash(f"cat > calc.py <<'END'\n{code}\nEND")
    return play(tasks, task, [write, "Done."])[-1].reward


@pytest.mark.slow
def test_every_kind_of_test_is_guarded(tmp_path: Path) -> None:
    """The fix and another honest way score 1; the bug, and the bug with swallowed failures, 0."""
    tasks = tasks_of(tmp_path)
    assert reward(tasks, OTHERWISE) == 1.0
    assert reward(tasks, WRONG) == 0.0
    assert reward(tasks, WRONG + SWALLOW) == 0.0


@pytest.mark.slow
def test_a_row_without_its_fix_is_guarded_by_twists(tmp_path: Path) -> None:
    tasks = tasks_of(tmp_path, patch=False)
    assert reward(tasks, RIGHT) == 1.0
    assert reward(tasks, WRONG) == 0.0
    assert reward(tasks, WRONG + SWALLOW) == 0.0


@pytest.mark.slow
def test_tests_that_fail_on_the_fix_are_no_reward(tmp_path: Path) -> None:
    tasks = tasks_of(tmp_path)
    (row,) = tasks._rows.values()
    tasks._rows = {
        row.id: swe_rows.InstanceRow(
            **{
                **{f: getattr(row, f) for f in row.__slots__},
                "fail_to_pass": (*row.fail_to_pass, "tests/test_calc.py::test_none"),
            }
        )
    }
    with pytest.raises(EnvironmentFailure, match="cannot be run here"):
        reward(tasks, RIGHT)
