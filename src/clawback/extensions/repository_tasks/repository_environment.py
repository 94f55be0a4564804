"""The repository agent's environment: a problem, a work tree without later commits, and the fix's tests, run out of the policy's reach."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, RLock
from typing import Any

from clawback.environments.core import EnvironmentFailure, Observation, Split, Task
from clawback.environments.world_helpers import share_out
from clawback.errors import ClawbackError, NotFound, UsageError
from clawback.extensions.repository_tasks import checkout, judging, own, protected, swe_rows
from clawback.extensions.repository_tasks.swe_rows import InstanceRow
from clawback.extensions.sandbox import choose, open_sandbox, scratch
from clawback.extensions.terminal_tasks.episode import (
    HOW,
    Guest,
    ShellEnvironment,
    TerminalSettings,
    TerminalWorld,
    says,
)
from clawback.records import Message

TEST_SECONDS = 300.0
OPTIONS = ("repositories", "packages", "test_seconds")
"""Settings of a name beside those of the box."""
_SYSTEM = (
    "You are in the folder of a Git repository of Python code, in a Linux shell without a network. "
    "Change the code so that the problem is solved; the tests that will tell are not shown, and changes to tests do not count. "
    + HOW
)


class RepositoryTasks:
    """Rows of SWE-bench over local clones."""

    free_replies = True

    def __init__(
        self, rows: Sequence[InstanceRow], repositories: Path, settings: TerminalSettings | None = None, name: str = "repository",
        packages: Sequence[Path] = (), test_seconds: float = TEST_SECONDS,
    ) -> None:  # fmt: skip
        self.name, self.repositories, self.packages, self.test_seconds = (
            name,
            repositories,
            tuple(packages),
            test_seconds,
        )
        self.answer_seconds = max(600.0, 24 * test_seconds)
        """The tests run in several boxes, each with a limit of its own."""
        self._settings = settings or TerminalSettings()
        self._rows = {row.id: row for row in rows}
        self._made: dict[str, Path] = {}
        self._plans: dict[str, judging.RowPlan] = {}
        self._planning: dict[str, Lock] = {}
        self._lock = RLock()
        self._cache = scratch.make("repositories")
        weakref.finalize(self, scratch.let_go, self._cache)

    def tasks(self, split: Split) -> Sequence[Task]:
        shared = share_out({id: row.split for id, row in self._rows.items()})
        rows = [self._rows[id] for id in shared[split]]
        return [Task(row.id, {"repo": row.repo, "problem": row.problem}, split) for row in rows]

    def row(self, task: Task) -> InstanceRow:
        if task.id not in self._rows:
            raise NotFound(f"There is no instance {task.id!r} in {self.name}.")
        return self._rows[task.id]

    def tree(self, row: InstanceRow) -> Path:
        """The repository at its base commit, made once; it is copied for each episode."""
        return self._once(
            f"{row.id}-base",
            lambda target: checkout.at_commit(
                checkout.find(self.repositories, row.repo), row.base_commit, target
            ),
        )

    def reference(self, row: InstanceRow) -> Path:
        """The same with the tests of the fix, for the judge."""

        def make(target: Path) -> None:
            shutil.copytree(self.tree(row), target, symlinks=True)
            checkout.apply(target, row.test_patch)

        return self._once(f"{row.id}-tests", make)

    def fixed(self, row: InstanceRow) -> Path | None:
        """The repository with its fix and the fix's tests; None where the row has no fix."""

        def make(target: Path) -> None:
            whole = target.with_name("whole")
            shutil.copytree(self.reference(row), whole, symlinks=True)
            checkout.apply(whole, row.patch)
            protected.assemble(whole, whole, target, checkout.touched(row.patch))
            shutil.rmtree(whole, ignore_errors=True)

        return self._once(f"{row.id}-fixed", make) if row.patch.strip() else None

    def plan(self, row: InstanceRow, tests: Sequence[str], box_settings: judging.TestBox) -> judging.RowPlan:
        """How the row's tests are judged, made once: other episodes of the row wait for it. A failure is not kept."""
        with self._lock:
            lock = self._planning.setdefault(row.id, Lock())
        with lock:
            if row.id not in self._plans:
                reference, fixed = self.reference(row), self.fixed(row)
                self._plans[row.id] = judging.plan(reference, fixed, tests, row.fail_to_pass, box_settings)
            return self._plans[row.id]

    def _once(self, name: str, make: Callable[[Path], None]) -> Path:
        """Made by whoever comes first; others wait. A failure is not kept: the next one tries again."""
        with self._lock:
            if name not in self._made:
                target = Path(tempfile.mkdtemp(dir=self._cache)) / "tree"
                make(target)
                self._made[name] = target
            return self._made[name]

    def delete_at_end(self, folder: Path) -> None:
        """A folder that goes when the tasks do."""
        weakref.finalize(self, scratch.let_go, folder)

    def make(self) -> RepositoryEnvironment:
        return RepositoryEnvironment(self, self._settings)

    def solution(self, task: Task) -> Sequence[Message]:
        """The fix as it was made, applied by one command, and a last word."""
        row = self.row(task)
        if not row.patch:
            raise NotFound(f"The instance {row.id} has no patch.")
        return [
            says(
                f"```bash\ngit apply --whitespace=nowarn - <<'END-OF-PATCH'\n{row.patch.rstrip(chr(10))}\nEND-OF-PATCH\n```"
            ),
            says("Done."),
        ]


class RepositoryEnvironment(ShellEnvironment):
    """One episode of a repository task."""

    def __init__(self, tasks: RepositoryTasks, settings: TerminalSettings) -> None:
        super().__init__(settings)
        self._tasks = tasks

    def open(self, task: Task) -> TerminalWorld:
        self._row = self._tasks.row(task)
        self._rung = choose(self.settings.rung)
        judging.packages()  # said at the beginning, not after the work
        guest = self.settings.guest or Guest()
        box = open_sandbox(
            self.settings.limits,
            self._rung,
            work=judging.TREE,
            read=[*self._tasks.packages, *guest.read],
            extra=guest.extra,
            network=self.settings.guest is not None,
        )
        try:
            box.put(self._tasks.tree(self._row))
        except BaseException:
            box.close()
            raise
        messages = ({"role": "system", "content": _SYSTEM}, {"role": "user", "content": self._row.problem})
        return TerminalWorld(box, Observation(messages), {}, self.settings.command_seconds)

    def grade(self, work: Path) -> tuple[float, Mapping[str, Any]]:
        """1 where every test that should pass does, else 0. Those that the fix makes pass are run first: where one fails, the others are not."""
        row, tests = self._row, [*self._row.fail_to_pass, *self._row.pass_to_pass]
        if not row.fail_to_pass:
            raise EnvironmentFailure(f"The instance {row.id} has no test that the fix makes pass.")
        reference = self._tasks.reference(row)
        place = judging.TestBox(
            self.settings.limits, self._rung, self._tasks.test_seconds, self._tasks.packages
        )
        plan = self._tasks.plan(row, tests, place)
        may_change = checkout.touched(row.patch)
        with TemporaryDirectory() as folder:
            try:
                protected.assemble(work, reference, Path(folder) / "tree", may_change)
            except ClawbackError as error:
                return 0.0, {"void": str(error)}
            verdict = judging.judge(Path(folder) / "tree", plan.files, place, plan.deciding)
            if verdict is None:
                protected.assemble(reference, reference, Path(folder) / "clean", set())
                if judging.judge(Path(folder) / "clean", plan.files, place) is None:
                    raise EnvironmentFailure(
                        f"The tests of {row.id} cannot be run here, on the untouched code either."
                    )
                return 0.0, {"void": "the tests could not be run on it"}
        fixed = len(verdict.passed.intersection(plan.deciding))
        others = {*row.pass_to_pass, *plan.passing}
        kept = len(verdict.passed.intersection(others))
        told = {
            "fail_to_pass": f"{fixed}/{len(plan.deciding)}",
            "pass_to_pass": f"{kept}/{len(others)}" if verdict.complete else "not run",
            "void": verdict.void,
            **({"passing_without_the_fix": list(plan.passing)} if plan.passing else {}),
        }
        return float(set(tests) <= verdict.passed), told


def names() -> list[str]:
    """What can stand after ``repository:`` beside a file of rows: nothing, for our own."""
    return []


def make(rest: str = "", settings: Mapping[str, Any] | None = None) -> RepositoryTasks:
    """Our own instances, or rows of a file over clones: ``repository:ROWS.jsonl?repositories=FOLDER&packages=FOLDER``."""
    options = {"turns": 20, **(settings or {})}
    repositories, packages = (options.pop(name, None) for name in OPTIONS[:2])
    seconds = float(options.pop("test_seconds", TEST_SECONDS))
    box_settings = TerminalSettings.from_options("Repository", options, OPTIONS)
    extra = [Path(packages).expanduser().resolve()] if packages else []
    if not rest:
        folder = scratch.make("own")
        tasks = RepositoryTasks(own.build(folder), folder, box_settings, "repository", test_seconds=seconds)
        tasks.delete_at_end(folder)
        return tasks
    if repositories is None:
        raise UsageError("Say where the clones are: repository:ROWS.jsonl?repositories=FOLDER.")
    rows = swe_rows.load(Path(rest).expanduser())
    return RepositoryTasks(
        rows, Path(repositories).expanduser(), box_settings, f"repository:{rest}", extra, seconds
    )
