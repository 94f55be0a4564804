"""Decides whether a repository, as the policy left it, passes the fix's tests: by exit code, report and JUnit, in a fresh box."""

from __future__ import annotations

import atexit
import compileall
import json
import py_compile
import re
import secrets
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from clawback.errors import MissingExtra, NotFound, SandboxError, UsageError
from clawback.sandbox import Extra, Limits, Result, Sandbox, open_sandbox, scratch
from clawback.sandbox.rungs import RungName

TREE, RESULTS, JUDGE = "/repo", "/results", "/judge"
_CANARIES = ("assert 1 == 2", "raise RuntimeError('so it should')", "assert not [1]")
_NEEDED = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Tests that passed, of those that were asked about. ``void``: why none of it counts, "" if it does."""

    passed: frozenset[str]
    void: str = ""


def packages() -> list[Path]:
    """pytest and what it needs, as folders and files to be copied into the judging box."""
    found = []
    for name in (*_NEEDED, *(("exceptiongroup",) if sys.version_info < (3, 11) else ())):
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise MissingExtra(
                'Repository tasks need pytest. Install it with: pip install "clawback[repository]"'
            )
        path = Path(spec.origin)
        found.append(path.parent if path.name == "__init__.py" else path)
    return found


def judge(
    tree: Path,
    tests: Sequence[str],
    limits: Limits,
    rung: RungName,
    seconds: float,
    extra: Sequence[Path] = (),
) -> Verdict | None:
    """Run the tests on a tree. None where nothing was reported at all."""
    word = secrets.token_hex(16)
    limits = replace(limits, seconds=seconds, cpu_seconds=seconds, output=max(limits.output, 4 << 20))
    extras = [Extra(RESULTS, write=True), Extra(JUDGE, _judge_folder(), copy=False)]
    with open_sandbox(limits, rung, work=TREE, extra=extras, read=tuple(extra)) as box:
        box.put(tree)
        canaries = _canaries(box)
        orders = {
            "word": word, "tests": list(tests), "canaries": canaries, "tree": box.path(TREE), "source": [".", "src", "lib"],
            "junit": box.path(f"{RESULTS}/junit.xml"), "packages": [box.path(f"{JUDGE}/packages"), *map(str, extra)],
        }  # fmt: skip
        env = {"HOME": box.path("/tmp"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONHASHSEED": "0"}  # noqa: S108
        argv = ["python3", "-I", "-S", f"{box.path(JUDGE)}/judge.py"]
        result = box.exec(argv, input=json.dumps(orders).encode(), env=env)
        return _verdict(box, result, word, list(tests), canaries)


@cache
def _judge_folder() -> Path:
    """The judge with pytest beside it, for boxes to read. Compiled once: half of a judgement's time would go into that.

    The compiled files are valid whatever their times, which a copy changes.
    """
    into = scratch.make("judge")
    atexit.register(scratch.let_go, into)
    (into / "judge.py").write_bytes(Path(__file__).with_name("judge.py").read_bytes())
    for path in packages():
        target = into / "packages" / path.name
        if path.is_dir():
            shutil.copytree(path, target, ignore=_unneeded)
        else:
            target.parent.mkdir(exist_ok=True)
            shutil.copy(path, target)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(into / "packages", quiet=2, invalidation_mode=mode)
    for one in (into, *into.rglob("*")):
        one.chmod(0o755 if one.is_dir() else 0o644)
    return into


def _unneeded(folder: str, names: list[str]) -> set[str]:
    """Pygments has a file for each of some hundred languages; pytest wants two of them."""
    left = {name for name in names if name == "__pycache__"}
    if folder.endswith("pygments/lexers"):
        left |= {name for name in names if name not in ("__init__.py", "_mapping.py", "diff.py", "python.py")}
    return left


def _canaries(box: Sandbox) -> list[str]:
    """Tests that must fail, under names that nobody can tell from others."""
    name = f"test_{secrets.token_hex(4)}"
    names = [f"test_{secrets.token_hex(3)}" for _ in _CANARIES]
    text = "".join(f"def {one}():\n    {body}\n\n\n" for one, body in zip(names, _CANARIES, strict=True))
    box.write(f"{TREE}/{name}.py", text.encode())
    return [f"{name}.py::{one}" for one in names]


def _verdict(
    box: Sandbox, result: Result, word: str, tests: list[str], canaries: list[str]
) -> Verdict | None:
    report = next(
        (
            told
            for line in reversed(result.stdout.splitlines())
            if (told := _told(line)) and told.get("word") == word
        ),
        None,
    )
    if result.ended:
        return Verdict(frozenset(), f"the tests were ended: {result.ended}")
    if report is None:
        return None
    junit = _junit(box)
    if junit is None:
        return Verdict(frozenset(), "there is no JUnit report")
    if not all(junit.get(_key(one)) == "failed" and one in report["caught"] for one in canaries):
        return Verdict(frozenset(), "tests that must fail did not")
    passed = frozenset(one for one in tests if one in report["passed"] and junit.get(_key(one)) == "passed")
    if len(passed) == len(set(tests)) and result.exit_code != 0:
        return Verdict(frozenset(), "the exit code does not agree with the report")
    return Verdict(passed)


def _told(line: str) -> dict[str, Any] | None:
    if not line.startswith('{"word"'):
        return None
    try:
        told = json.loads(line)
    except ValueError:
        return None
    whole = (
        isinstance(told, dict)
        and isinstance(told.get("passed"), list)
        and isinstance(told.get("caught"), list)
    )
    return told if whole else None


def _key(test: str) -> tuple[str, str]:
    """A test's name as JUnit has it: ``a/test_b.py::C::d[x::y]`` is d[x::y] of a.test_b.C."""
    head, bracket, parameters = test.partition("[")
    path, *parts = head.split("::")
    module = path.removesuffix(".py").replace("/", ".")
    return ".".join([module, *parts[:-1]]), (parts[-1] if parts else "") + bracket + parameters


def _junit(box: Sandbox) -> dict[tuple[str, str], str] | None:
    """Each test's outcome. The file may be anybody's: no document types, no entities, a limit on its size."""
    try:
        data = box.read(f"{RESULTS}/junit.xml", limit=32 << 20)
    except (NotFound, SandboxError, UsageError):
        return None
    if re.search(rb"<!(DOCTYPE|ENTITY)", data, re.I):
        return None
    try:
        root = ElementTree.fromstring(data)  # noqa: S314 - no document type, so no entities
    except ElementTree.ParseError:
        return None
    outcomes: dict[tuple[str, str], str] = {}
    for case in root.iter("testcase"):
        key = case.get("classname", ""), case.get("name", "")
        bad = any(case.find(kind) is not None for kind in ("failure", "error", "skipped"))
        worse = outcomes.get(key) == "failed"
        outcomes[key] = "failed" if bad or worse else "passed"
    return outcomes
