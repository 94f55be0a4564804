"""Runs tests in a box and reports what they did. Run as ``python -I -S runner.py``; its instructions come on stdin.

The tests run in this process together with what the policy wrote, which may change anything here. So nothing here
is worth hiding: neither a secret, nor the values that are expected, nor which of the tests must fail. What is
reported is judged outside (``judging.py``).
"""

from __future__ import annotations

import builtins
import json
import os
import sys
from collections.abc import Callable
from typing import Any

MOST = 200_000
"""Characters of one observed value."""


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON with its kind; ``["?"]`` for one that is no plain data."""
    if value is None or value is True or value is False:
        return ["c", value]
    deeper = depth + 1
    if depth > 20:
        return ["?"]
    if isinstance(value, str):
        return ["s", str.__str__(value)]
    if isinstance(value, bytes | bytearray):
        return ["y", bytes(value).hex()]
    if isinstance(value, int):
        return ["i", hex(int(value))]
    if isinstance(value, float):
        return ["f", float.hex(float(value))]
    if isinstance(value, complex):
        return ["z", [float.hex(value.real), float.hex(value.imag)]]
    for kind, letter in ((list, "l"), (tuple, "t"), (set, "e"), (frozenset, "e")):
        if isinstance(value, kind):
            return [letter, [plain(part, deeper) for part in value]]
    if isinstance(value, dict):
        return ["d", [[plain(key, deeper), plain(part, deeper)] for key, part in value.items()]]
    if (type(value).__module__, type(value).__name__) in (("decimal", "Decimal"), ("fractions", "Fraction")):
        return ["n", str(value)]
    if hasattr(type(value), "__index__"):
        return ["i", hex(value.__index__())]
    return ["?"]


class TestRecorder:
    """Writes a line for each test, and the values that were observed in it."""

    def __init__(self, out: int) -> None:
        self.out = out
        self.cases: dict[str, int] = {}
        self.current: dict[str, Any] = {}

    def observed(self, site: int, expression: Callable[[], Any]) -> None:
        """What comes of an expression, be it a value or an error: which of them is right is not known here."""
        try:
            came = plain(expression())
        except Exception as error:
            came = ["x", [kind.__name__ for kind in type(error).__mro__]]
        line = json.dumps(came)
        self.current.setdefault("seen", []).append([site, line if len(line) <= MOST else '["?"]'])

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:  # noqa: ARG002
        test = nodeid.partition("[")[0].partition("::")[2]
        case = self.cases.get(test, 0)
        self.cases[test] = case + 1
        self.current = {"id": nodeid, "test": test, "case": case, "outcome": "", "seen": []}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.outcome != "passed":
            self.current["outcome"] = report.outcome
        elif report.when == "call" and not self.current["outcome"]:
            self.current["outcome"] = "passed"

    def pytest_runtest_logfinish(self, nodeid: str, location: object) -> None:  # noqa: ARG002
        os.write(self.out, f"\n{json.dumps(self.current)}\n".encode())


def main() -> int:
    orders = json.loads(sys.stdin.buffer.read())
    recorder = TestRecorder(os.dup(1))
    os.chdir(orders["tree"])
    sys.path[:0] = orders["packages"]
    import pytest

    sys.path[:0] = [os.path.join(orders["tree"], part) for part in orders["source"]]  # noqa: PTH118
    builtins.observed = recorder.observed  # type: ignore[attr-defined]
    words = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "--rootdir", orders["tree"]]
    code = int(pytest.main([*words, *orders["tests"]], plugins=[recorder]))
    os.write(recorder.out, f"\n{json.dumps({'end': code})}\n".encode())
    return code


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)
