"""Decides whether a repository, as the policy left it, passes the fix's tests.

The tests of a file run in a fresh box, in several variants (``variants.py``), each in a process and a box of its own.
What the process reports is compared here, outside, with the values that the tests expect and with the tests that
must fail. Nothing in the box says which these are.

Where the row has its fix, each variant runs on the fixed code first: only what behaves there as it should is used.
"""

from __future__ import annotations

import atexit
import compileall
import json
import py_compile
import random
import secrets
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from clawback import installed
from clawback.environments.core import EnvironmentFailure
from clawback.errors import MissingExtra
from clawback.extensions.repository_tasks import observed, variants
from clawback.extensions.repository_tasks.variants import Variant
from clawback.extensions.sandbox import Extra, Limits, open_sandbox, scratch
from clawback.extensions.sandbox.rungs import RungName

TREE, JUDGE = "/repo", "/judge"
ROUNDS = 2
"""Pairs of variants of a file in which the fix's own tests have assertions that stay in the box."""
_NEEDED = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")
Key = tuple[str, int]
"""A test below its file, and the number of its case."""


@dataclass(frozen=True, slots=True)
class TestBox:
    """Where tests run: the box's rung and limits, and the packages beside pytest."""

    limits: Limits
    rung: RungName
    seconds: float
    packages: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class TestVerdict:
    """Tests that passed, of those that were asked about. ``void``: why none of it counts, "" if it does; ``complete``: every test was run."""

    passed: frozenset[str]
    void: str = ""
    complete: bool = True


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What a process says of one case of a test: its full name, its outcome, the values that were observed."""

    id: str
    outcome: str
    seen: tuple[tuple[int, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """What a process says of a file. ``ended``: why it was stopped; ``complete``: it came to its end."""

    results: Mapping[Key, CaseResult] = field(default_factory=dict)
    ended: str = ""
    complete: bool = False


@dataclass(frozen=True, slots=True)
class VariantCheck:
    """A variant of a file, and what the fixed code does with it (None where no fix is known)."""

    variant: Variant
    fixed: ProcessReport | None = None


@dataclass(frozen=True, slots=True)
class FilePlan:
    """How one test file is judged. ``tests``: the wanted ones, by their names below the file; ``ids``: as they were asked for."""

    path: str
    tests: tuple[str, ...]
    ids: tuple[str, ...]
    checks: tuple[VariantCheck, ...]


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How a row is judged. ``deciding``: tests that the fix makes pass; ``passing``: tests that the row names as such, and that pass without it."""

    files: tuple[FilePlan, ...]
    deciding: tuple[str, ...]
    passing: tuple[str, ...] = ()


def packages() -> list[Path]:
    """pytest and what it needs, as folders and files to be copied into the judging box."""
    found = []
    for name in (*_NEEDED, *(("exceptiongroup",) if sys.version_info < (3, 11) else ())):
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise MissingExtra(
                f"Repository tasks need pytest. Install it with: {installed.add('repository')}"
            )
        path = Path(spec.origin)
        found.append(path.parent if path.name == "__init__.py" else path)
    return found


# ---- the plan of a row


def plan(
    reference: Path, fixed: Path | None, ids: Sequence[str], deciding: Sequence[str], box_settings: TestBox
) -> RowPlan:
    """How the tests ``ids`` are judged. ``deciding``: those that the fix makes pass, as the row has it.

    Raises ``EnvironmentFailure`` where they do not pass here on the fixed code, cannot be guarded, or all pass without the fix.
    """
    chance = random.Random(secrets.randbits(128))
    by_file: dict[str, list[str]] = {}
    for id in dict.fromkeys(ids):
        by_file.setdefault(id.partition("::")[0], []).append(id)
    plans = []
    for path, wanted in by_file.items():
        source = reference / path
        text = source.read_text(encoding="utf-8", errors="replace") if source.is_file() else ""
        file = FilePlan(path, tuple(dict.fromkeys(map(_below, wanted))), tuple(wanted), ())
        rounds = ROUNDS if set(wanted) & set(deciding) else 1
        try:
            if fixed is None:
                build = _unproven(file, text, chance, rounds)
            else:
                build = _proven(file, text, fixed, box_settings, chance, rounds)
        except SyntaxError as error:
            raise EnvironmentFailure(f"The test file {path} cannot be read: {error}.") from error
        plans.append(replace(file, checks=tuple(build)))
    if not any(_guarded(id, file) for file in plans for id in file.ids if id in deciding):
        raise EnvironmentFailure(
            f"None of the tests that the fix makes pass can be guarded ({', '.join(list(deciding)[:3])})."
        )
    verdict = judge(reference, plans, box_settings)
    passing = tuple(id for id in deciding if verdict and id in verdict.passed)
    if len(passing) == len(deciding):
        raise EnvironmentFailure(
            f"All tests that the fix should make pass do so without it ({', '.join(passing[:3])}): nothing decides."
        )
    return RowPlan(tuple(plans), tuple(id for id in deciding if id not in passing), passing)


def _guarded(id: str, file: FilePlan) -> bool:
    """Whether a test cannot be forged: it is twisted in a variant, or values are observed in it."""
    for check in file.checks:
        report = check.fixed or ProcessReport()
        if _below(id) in check.variant.twisted or (not _below(id) and check.variant.twisted):
            return True
        if any(report.results[key].seen for key in _keys(id, report)):
            return True
    return False


def _below(id: str) -> str:
    return id.partition("[")[0].partition("::")[2]


def _unproven(file: FilePlan, text: str, chance: random.Random, rounds: int) -> list[VariantCheck]:
    """Without a known fix: twists that must make a test fail, whatever the code does."""
    plain = variants.unchanged(text)
    able = variants.twistable(plain.text, certain=True)
    names = [name for name in variants.names_of(plain.text) if name in file.tests or file.tests == ("",)]
    checks = []
    for _ in range(rounds):
        for chosen in _halves(names, chance):
            variant = variants.twist(plain, [name for name in chosen if name in able], chance, certain=True)
            checks.append(
                VariantCheck(variants.refute(variant, [n for n in chosen if n not in able], chance))
            )
    return checks


def _proven(
    file: FilePlan, text: str, fixed: Path, box_settings: TestBox, chance: random.Random, rounds: int
) -> list[VariantCheck]:
    """With the fix: expected values are hidden where they are plain, and each twist is seen to fail on the fixed code."""
    base = _hidden(file, text, fixed, box_settings)
    assert base.fixed is not None
    able = variants.twistable(base.variant.text)
    unseen = {name for (name, _), result in base.fixed.results.items() if not result.seen}
    ran = {name for name, _ in base.fixed.results}
    exposed = [n for n in variants.names_of(base.variant.text) if n in ran and (n in able or n in unseen)]
    if not exposed:
        return [base]
    halves = [half for _ in range(rounds) for half in _halves(exposed, chance)]
    return [_twisted(file, base, half, fixed, box_settings, chance) if half else base for half in halves]


def _halves(names: Sequence[str], chance: random.Random) -> list[list[str]]:
    """A random part of the names, and the rest."""
    order = list(names)
    chance.shuffle(order)
    count = chance.randint(len(order) // 2, -(-len(order) // 2))
    halves = [order[:count], order[count:]]
    chance.shuffle(halves)
    return halves


def _hidden(file: FilePlan, text: str, fixed: Path, box_settings: TestBox) -> VariantCheck:
    """The file without its expected values, where the fixed code gives exactly these."""
    leave: frozenset[int] = frozenset()
    for _ in range(2):
        variant = variants.hide(text, leave)
        report = run(fixed, file, variant, box_settings)
        wrong = {
            site for (_, case), result in report.results.items() for site, value in result.seen
            if site not in variant.sites or not variant.sites[site].right(case, value)
        }  # fmt: skip
        if not wrong and not _failing(file, report):
            return VariantCheck(variant, report)
        leave |= wrong
    variant = variants.unchanged(text)
    report = run(fixed, file, variant, box_settings)
    if failing := _failing(file, report):
        why = f" (the tests were ended: {report.ended})" if report.ended else ""
        raise EnvironmentFailure(
            f"The tests cannot be run here: {failing[0]} does not pass on the fixed code either{why}."
        )
    return VariantCheck(variant, report)


def _failing(file: FilePlan, report: ProcessReport) -> list[str]:
    """The wanted tests that do not pass."""
    keys = {id: _keys(id, report) for id in file.ids}
    return [
        id for id in file.ids if not keys[id] or any(report.results[k].outcome != "passed" for k in keys[id])
    ]


def _keys(id: str, report: ProcessReport) -> list[Key]:
    """The cases that a name stands for: one, all of a test, or all of a file."""
    return [
        key for key, result in report.results.items()
        if result.id == id or result.id.startswith((f"{id}[", f"{id}::"))
    ]  # fmt: skip


def _twisted(
    file: FilePlan,
    base: VariantCheck,
    names: Sequence[str],
    fixed: Path,
    box_settings: TestBox,
    chance: random.Random,
) -> VariantCheck:
    """A variant in which these tests are seen to fail on the fixed code, and the other wanted ones to pass."""
    able = variants.twistable(base.variant.text)
    variant = variants.twist(base.variant, [name for name in names if name in able], chance)
    report = run(fixed, file, variant, box_settings)
    if passing := [name for name in names if name not in _failed(report)]:
        variant = variants.refute(variant, passing, chance)
        report = run(fixed, file, variant, box_settings)
    others = [id for id in _failing(file, report) if _below(id) not in names]
    if others or not set(names) <= _failed(report):
        raise EnvironmentFailure(
            f"The tests of {file.path} cannot be guarded: their results on the fixed code change from run to run."
        )
    return VariantCheck(variant, report)


def _failed(report: ProcessReport) -> set[str]:
    return {name for (name, _), result in report.results.items() if result.outcome == "failed"}


# ---- the verdict


def judge(
    tree: Path, plans: Sequence[FilePlan], box_settings: TestBox, deciding: Collection[str] = ()
) -> TestVerdict | None:
    """Run the tests on a tree. None where nothing was reported at all, and no fix shows that it could have been. ``deciding``: as soon as one of these fails no
    more is run."""
    passed: set[str] = set()
    for file in plans:
        good: dict[str, bool] = {}
        for check in file.checks:
            report = run(tree, file, check.variant, box_settings)
            if report.ended:
                return TestVerdict(frozenset(), f"the tests were ended: {report.ended}")
            if not report.results and check.fixed is None:
                return None
            if not report.complete:
                return TestVerdict(frozenset(), "the tests could not be run on it to their end")
            if _passes_what_must_fail(check, report):
                return TestVerdict(frozenset(), "tests that must fail did not")
            for id in file.ids:
                if (right := _right(id, check, report)) is not None:
                    good[id] = good.get(id, True) and right
            if not all(good.get(id, True) for id in deciding):
                return TestVerdict(frozenset(passed), complete=False)
        passed |= {id for id, right in good.items() if right}
    return TestVerdict(frozenset(passed))


def _passes_what_must_fail(check: VariantCheck, report: ProcessReport) -> bool:
    expected = check.fixed or report
    return any(
        key[0] in check.variant.twisted and result.outcome == "passed"
        and (check.fixed is None or (key in expected.results and expected.results[key].outcome == "failed"))
        for key, result in report.results.items()
    )  # fmt: skip


def _right(id: str, check: VariantCheck, report: ProcessReport) -> bool | None:
    """Whether a test passed in this variant; None where it was made to fail, so that this says nothing."""
    if _below(id) in check.variant.twisted:
        return None
    keys = [key for key in _keys(id, check.fixed or report) if key[0] not in check.variant.twisted]
    return bool(keys) and all(_as_expected(key, check, report) for key in keys)


def _as_expected(key: Key, check: VariantCheck, report: ProcessReport) -> bool:
    """The case passed, and each value that it was seen to give is the right one, in the order of the fixed code."""
    result = report.results.get(key)
    if result is None or result.outcome != "passed":
        return False
    if check.fixed is None:
        return True
    expected = check.fixed.results[key].seen
    return [site for site, _ in result.seen] == [site for site, _ in expected] and all(
        check.variant.sites[site].right(key[1], value) for site, value in result.seen
    )


# ---- one process in one box


def run(tree: Path, file: FilePlan, variant: Variant, box_settings: TestBox) -> ProcessReport:
    """Run one variant of a file on a tree, in a fresh box."""
    limits = replace(
        box_settings.limits,
        seconds=box_settings.seconds,
        cpu_seconds=box_settings.seconds,
        output=max(box_settings.limits.output, 4 << 20),
    )
    extras = [Extra(JUDGE, _judge_folder(), copy=False)]
    with open_sandbox(limits, box_settings.rung, work=TREE, extra=extras, read=box_settings.packages) as box:
        box.put(tree)
        box.write(f"{TREE}/{file.path}", variant.text.encode("utf-8", "surrogateescape"))
        orders = {
            "tests": [f"{file.path}::{test}" if test else file.path for test in file.tests],
            "tree": box.path(TREE), "source": [".", "src", "lib"],
            "packages": [box.path(f"{JUDGE}/packages"), *map(str, box_settings.packages)],
        }  # fmt: skip
        env = {"HOME": box.path("/tmp"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONHASHSEED": "0"}  # noqa: S108
        argv = ["python3", "-I", "-S", f"{box.path(JUDGE)}/runner.py"]
        result = box.exec(argv, input=json.dumps(orders).encode(), env=env)
    return _report(result.stdout, result.ended)


def _report(output: str, ended: str) -> ProcessReport:
    """The lines that a process wrote. Any of them may be forged: they are read, and believed by nobody."""
    results: dict[Key, CaseResult] = {}
    complete = False
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        try:
            entry = json.loads(line)
            if "end" in entry:
                complete = True
                continue
            seen = tuple((int(site), observed.value(json.loads(text))) for site, text in entry["seen"])
            key = str(entry["test"]), int(entry["case"])
            results[key] = CaseResult(str(entry["id"]), str(entry["outcome"]), seen)
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            continue
    return ProcessReport(results, ended, complete)


@cache
def _judge_folder() -> Path:
    """The runner with pytest beside it, for boxes to read. Compiled once: half of a judgement's time would go into that.

    The compiled files are valid whatever their times, which a copy changes.
    """
    into = scratch.make("judge")
    atexit.register(scratch.let_go, into)
    (into / "runner.py").write_bytes(Path(__file__).with_name("runner.py").read_bytes())
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
