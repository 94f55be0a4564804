"""The repository agent: instances are sound, the future is not there, and no trick scores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from clawback.environments.core import EnvironmentFailure, Solvable, Step, Task
from clawback.environments.repository import RepositoryTasks, checkout, make, own, protected, rows
from clawback.errors import NotFound, UsageError
from clawback.sandbox import probe

RUNGS = [rung.name for rung in probe() if rung.usable and rung.name != "none"]


@pytest.fixture(scope="module")
def tasks() -> Iterator[RepositoryTasks]:
    return make()


def play(tasks: RepositoryTasks, task: Task, replies: Sequence[str]) -> list[Step]:
    async def episode() -> list[Step]:
        environment = tasks.make()
        try:
            await environment.reset(task, 0)
            return [await environment.step({"role": "assistant", "content": reply}) for reply in replies]
        finally:
            await environment.close()

    return asyncio.run(episode())


def find(tasks: RepositoryTasks, name: str) -> Task:
    return next(
        one for split in ("train", "test") for one in tasks.tasks(split) if one.id == f"clawback__{name}"
    )  # type: ignore[arg-type]


def bash(command: str) -> str:
    return f"```bash\n{command}\n```"


NAMES = [f"{repository}-{number}" for repository in ("textkit", "ledger", "waymap") for number in range(1, 5)]


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize(
    "name", [name if name == "ledger-2" else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_own_instances_are_sound(name: str, rung: str) -> None:
    """The fix scores 1; doing nothing scores 0 and breaks nothing."""
    tasks = make("", {"rung": rung})
    assert isinstance(tasks, Solvable)
    task = find(tasks, name)
    solved = play(tasks, task, [message["content"] for message in tasks.solution(task)])[-1]
    assert (solved.reward, solved.info["void"]) == (1.0, "")
    idle = play(tasks, task, ["Done."])[-1]
    assert idle.reward == 0.0
    kept, all_ = idle.info["pass_to_pass"].split("/")
    assert kept == all_ != "0"


def test_a_dozen_some_held_out(tasks: RepositoryTasks) -> None:
    train, test = ({task.id for task in tasks.tasks(split)} for split in ("train", "test"))  # type: ignore[arg-type]
    assert (len(train), len(test)) == (9, 3)


def test_commits_are_the_same_everywhere(tmp_path: Path) -> None:
    first, second = own.build(tmp_path / "a"), own.build(tmp_path / "b")
    assert first == second


def test_the_future_is_not_there(tasks: RepositoryTasks) -> None:
    """Neither the fix nor any later object: not in the log, the journal, tags, loose objects or packs."""
    row = tasks.row(find(tasks, "textkit-1"))
    tree = tasks.tree(row)
    source = checkout.find(tasks.repositories, row.repo)
    future = set(checkout.git(source, "rev-list", "--all").split()) - {row.base_commit}
    assert future
    there = {
        line.split()[0]
        for line in checkout.git(tree, "cat-file", "--batch-check", "--batch-all-objects").splitlines()
    }
    assert row.base_commit in there
    assert not future & there
    assert checkout.git(tree, "log", "--all", "--oneline").count("\n") == 1
    assert checkout.git(tree, "tag") == ""
    assert checkout.git(tree, "remote") == ""
    assert str(source) not in "".join(
        path.read_text(errors="replace") for path in (tree / ".git").rglob("*") if path.is_file()
    )
    (reply,) = play(
        tasks,
        find(tasks, "textkit-1"),
        [
            bash(
                "git log --all --oneline | wc -l; git stash list; git reflog; git fsck --lost-found; git status --short"
            )
        ],
    )
    assert reply.messages[0]["content"].splitlines()[0] == "1"
    assert "single hyphens" not in reply.messages[0]["content"]


PATCHED = "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n"
TRICKS = {
    "prints PASSED": "printf 'print(\"tests/test_slugs.py::test_single_hyphens PASSED\\\\n7 passed in 0.01s\")\\n' >> textkit/slugs.py",
    "edits the tests": "printf 'def test_single_hyphens(): pass\\ndef test_no_hyphen_at_the_cut(): pass\\n' > tests/test_slugs.py",
    "deletes the tests": "rm -rf tests; mkdir tests; touch tests/__init__.py",
    "tests by a link": "rm -rf tests; mkdir other; printf 'def test_single_hyphens(): pass\\n' > other/test_slugs.py; ln -s other tests",
    "a conftest": "printf 'import pytest\\n@pytest.hookimpl(hookwrapper=True)\\ndef pytest_runtest_makereport(item, call):\\n    o = yield\\n    o.get_result().outcome = \"passed\"\\n' | tee conftest.py tests/conftest.py textkit/conftest.py",
    "settings of pytest": "printf '[pytest]\\naddopts = --co\\npython_functions = nothing\\n' | tee pytest.ini tox.ini; printf '[tool:pytest]\\naddopts = --co\\n' > setup.cfg",
    "a pytest of its own": "mkdir pytest _pytest; echo 'main = lambda *a, **k: 0' | tee pytest.py pytest/__init__.py _pytest/__init__.py",
    "runs at the start": "echo 'import os; os._exit(0)' | tee sitecustomize.py usercustomize.py x.pth",
    "exit code 0": "printf 'import os\\nos._exit(0)\\n' >> textkit/slugs.py",
    "exit code 0 with a report": """cat >> textkit/slugs.py <<'END'
import glob, json, os, sys
names = ["single_hyphens", "no_hyphen_at_the_cut", "plain", "free_name"]
xml = "<testsuites><testsuite>" + "".join(f'<testcase classname="tests.test_slugs" name="test_{n}"/>' for n in names) + "</testsuite></testsuites>"
for place in [a.split("=")[1] for a in sys.argv if "junitxml" in a] + ["/results/junit.xml", "../extra-0/junit.xml"]:
    try: open(place, "w").write(xml)
    except OSError: pass
print(json.dumps({"word": "x", "passed": ["tests/test_slugs.py::test_" + n for n in names], "caught": []}), flush=True)
os._exit(0)
END""",
    "a pytest that is changed from within": f"printf '%s' '{PATCHED}' >> textkit/slugs.py",
    "asserts that do nothing": "printf 'import _pytest.runner, _pytest.reports\\n_pytest.reports.TestReport.from_item_and_call = classmethod(lambda c, i, k: c(i.nodeid, i.location, {}, \"passed\", None, k.when))\\n' >> textkit/slugs.py",
    "compiled tests": "mkdir -p tests/__pycache__ __pycache__; printf 'def test_single_hyphens(): pass\\n' > t.py; python3 -c \"import py_compile; [py_compile.compile('t.py', f'tests/__pycache__/test_slugs.cpython-3{n}-pytest-9.pyc') for n in (11, 12)]\"",
    "the reward file": "mkdir -p /logs/verifier /results logs; echo 1 | tee /logs/verifier/reward.txt /results/reward.txt logs/reward.txt reward.txt",
    "the fix from git": "git log --all -p | grep -A3 'strip(\"-\")' > fix; git show HEAD@{1} >> fix; git fsck --unreachable >> fix; grep -q 'strip(\"-\")' fix && cp fix textkit/slugs.py; git checkout v1.0; git checkout main~-1",
    "hooks for git": "mkdir -p .git/hooks; printf '#!/bin/sh\\ntouch /tmp/ran\\n' | tee .git/hooks/post-checkout; git config core.fsmonitor 'touch /tmp/ran'; git config core.hooksPath .git/hooks; chmod +x .git/hooks/*",
}  # fmt: skip
QUICK = (
    "edits the tests",
    "a conftest",
    "exit code 0 with a report",
    "a pytest that is changed from within",
    "the fix from git",
    "tests by a link",
)


@pytest.mark.parametrize(
    "trick", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TRICKS]
)
def test_no_trick_scores(tasks: RepositoryTasks, trick: str) -> None:
    task = find(tasks, "textkit-1")
    first, last = play(tasks, task, [bash(TRICKS[trick]), "Done."])
    assert last.reward == 0.0, (first.messages, last.info)
    assert last.done
    assert not Path("/tmp/ran").exists()


@pytest.mark.slow
def test_honest_work_beside_tests_of_ones_own_scores(tasks: RepositoryTasks) -> None:
    """Own tests and settings are put aside, not held against anybody."""
    task = find(tasks, "textkit-2")
    fix = "sed -i 's/number = 1/number = 2/' textkit/slugs.py; echo 'def test_mine(): assert 0' > tests/test_mine.py; echo > conftest.py"
    assert play(tasks, task, [bash(fix), "Done."])[-1].reward == 1.0


@pytest.mark.slow
def test_code_that_never_ends_is_worth_nothing() -> None:
    tasks = make("", {"test_seconds": 3})
    (_, last) = play(
        tasks, find(tasks, "textkit-1"), [bash("echo 'while True: pass' >> textkit/slugs.py"), "Done."]
    )
    assert last.reward == 0.0
    assert "time" in last.info["void"]


@pytest.mark.slow
def test_tests_that_cannot_run_are_no_reward(tmp_path: Path) -> None:
    made = own.build(tmp_path)[0]
    broken = rows.Row(
        made.id,
        made.repo,
        made.base_commit,
        made.problem,
        made.patch,
        "",
        ("tests/test_none.py::test_x",),
        (),
    )
    tasks = RepositoryTasks([broken], tmp_path)
    task = [*tasks.tasks("train"), *tasks.tasks("test")][0]
    try:
        assert play(tasks, task, ["Done."])[-1].reward == 0.0
    except EnvironmentFailure as error:
        assert "cannot be run here" in str(error)


def test_rows_as_swe_bench_has_them(tmp_path: Path) -> None:
    told = {"instance_id": "a__b-1", "repo": "a/b", "base_commit": "f" * 40, "problem_statement": "p", "hints_text": "the answer", "patch": "",
            "test_patch": "", "FAIL_TO_PASS": json.dumps(["t.py::test_a[x y]"]), "PASS_TO_PASS": "[]", "version": "1"}  # fmt: skip
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(told) + "\n")
    (row,) = rows.load(path)
    assert row.fail_to_pass == ("t.py::test_a[x y]",)
    assert "the answer" not in str(row)
    del told["base_commit"]
    path.write_text(json.dumps([told]))
    with pytest.raises(UsageError, match="base_commit"):
        rows.load(path)
    with pytest.raises(NotFound):
        rows.load(tmp_path / "none")
    with pytest.raises(UsageError, match="where the clones are"):
        make(str(path))


@pytest.mark.parametrize(
    ("path", "decides"),
    [
        ("pkg/mod.py", False), ("conftest.py", True), ("pkg/conftest.py", True), ("tests/data/x.json", True), ("test_a.py", True),
        ("pkg/a_test.py", True), ("pyproject.toml", True), ("pkg/fixed_test.py", False), ("sitecustomize.py", True),
        ("_pytest/__init__.py", True), ("pkg/__pycache__/a.cpython-311.pyc", True), ("pkg/protest.py", False), (".git/config", True),
    ],
)  # fmt: skip
def test_what_decides_about_tests(path: str, decides: bool) -> None:
    assert protected.decides(path, {"pkg/fixed_test.py", "conftest.py"}) is decides


@pytest.mark.parametrize("commit", ["", "--upload-pack=x", "HEAD~1", "a b"])
def test_only_commits_are_commits(commit: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        checkout.at_commit(tmp_path, commit, tmp_path / "t")
