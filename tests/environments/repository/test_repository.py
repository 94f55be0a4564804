"""The repository agent: instances are sound, the future is not there, and no trick scores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from clawback.environments.core import EnvironmentFailure, Solvable, Step, Task
from clawback.errors import NotFound, UsageError
from clawback.extensions.repository_tasks import checkout, judging, own, protected, swe_rows
from clawback.extensions.repository_tasks.repository_environment import RepositoryTasks, make
from clawback.extensions.sandbox import probe

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
    """The fix scores 1; doing nothing scores 0, and the tests that passed before the fix do pass before it."""
    tasks = make("", {"rung": rung})
    assert isinstance(tasks, Solvable)
    task = find(tasks, name)
    solved = play(tasks, task, [message["content"] for message in tasks.solution(task)])[-1]
    assert (solved.reward, solved.info["void"]) == (1.0, "")
    idle = play(tasks, task, ["Done."])[-1]
    assert (idle.reward, idle.info["pass_to_pass"]) == (0.0, "not run")
    row = tasks.row(task)
    place = judging.TestBox(tasks._settings.limits, rung, tasks.test_seconds, tasks.packages)  # type: ignore[arg-type]
    plans = tasks.plan(row, [*row.fail_to_pass, *row.pass_to_pass], place)
    assert (plans.deciding, plans.passing) == (row.fail_to_pass, ()), "each fails without the fix"
    verdict = judging.judge(tasks.reference(row), plans.files, place)
    assert verdict is not None
    assert verdict.passed == set(row.pass_to_pass)


def test_tests_that_pass_without_the_fix_decide_nothing(tasks: RepositoryTasks) -> None:
    row = tasks.row(find(tasks, "textkit-3"))
    space, words = (
        "tests/test_layout.py::test_the_space_counts",
        "tests/test_layout.py::test_long_words_stand_alone",
    )
    assert row.fail_to_pass == (space,)
    assert words in row.pass_to_pass
    place = judging.TestBox(tasks._settings.limits, RUNGS[0], tasks.test_seconds, tasks.packages)  # type: ignore[arg-type]
    reference, fixed = tasks.reference(row), tasks.fixed(row)
    plan = judging.plan(reference, fixed, [space, words], [space, words], place)
    assert (plan.deciding, plan.passing) == ((space,), (words,))
    with pytest.raises(EnvironmentFailure, match="without it"):
        judging.plan(reference, fixed, [words], [words], place)


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
    broken = swe_rows.InstanceRow(
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
    (row,) = swe_rows.load(path)
    assert row.fail_to_pass == ("t.py::test_a[x y]",)
    assert "the answer" not in str(row)
    del told["base_commit"]
    path.write_text(json.dumps([told]))
    with pytest.raises(UsageError, match="base_commit"):
        swe_rows.load(path)
    with pytest.raises(NotFound):
        swe_rows.load(tmp_path / "none")
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
