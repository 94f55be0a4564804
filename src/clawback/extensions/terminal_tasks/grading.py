"""Grading of a terminal task, out of the policy's reach.

The policy's box is closed first. Its working folder is copied into a fresh box, where the task's tests run,
so processes that were left running and files planted in a home or in the place of the reward are gone. Where
a task must run what the policy wrote, ``tests/run/run.sh`` does so in a box before, without the tests; the
judging box runs none of it.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from clawback.environments.core import EnvironmentFailure
from clawback.errors import NotFound, SandboxError, UsageError
from clawback.extensions.sandbox import Extra, Limits, Sandbox, open_sandbox
from clawback.extensions.sandbox.rungs import RungName
from clawback.extensions.terminal_tasks.episode import Guest
from clawback.extensions.terminal_tasks.folders import TaskFolder

_REWARDS = ("/logs/verifier/reward.txt", "/logs/verifier/reward.json")
_TEXTS = (".sh", ".py", ".txt", ".bash")


def limits_of(task: TaskFolder, limits: Limits) -> Limits:
    """A task may ask for more than the setting gives; then the setting holds."""
    wanted = [count for count in (task.cpus, limits.cpus) if count]
    return replace(
        limits,
        cpus=min(*wanted, os.cpu_count() or 1) if wanted else None,
        memory=min(task.memory or limits.memory, limits.memory),
        disk=min(task.disk or limits.disk, limits.disk),
    )


def opened(
    task: TaskFolder, limits: Limits, rung: RungName, extra: Sequence[Extra] = (), guest: Guest | None = None
) -> Sandbox:
    """A fresh box for the task, or container of its image. ``guest``: a program that works in it beside the task's files."""
    beside = guest or Guest()
    return open_sandbox(
        limits,
        rung,
        work=task.work,
        extra=[*extra, *beside.extra],
        read=beside.read,
        image=task.image or None,
        network=guest is not None,
    )


def furnish(box: Sandbox, task: TaskFolder) -> None:
    """The task's files, where its image or its Dockerfile puts them."""
    box.fill()
    for source, target in task.copies:
        if source.is_dir():
            box.put(source, target)
        else:
            box.write(target, source.read_bytes(), source.stat().st_mode & 0o777)


def outside_work(task: TaskFolder) -> str:
    """A path of the task that no box has ("" if there is none)."""
    return next((at for _, at in task.copies if not (at == task.work or at.startswith(task.work + "/"))), "")


def grade(task: TaskFolder, work: Path, limits: Limits, rung: RungName) -> float:
    """The reward of what ``work`` holds. A check that could not be made raises; it is never a reward of 0.

    A check that says nothing is tried on the task's untouched files: if it speaks there, what the policy left behind
    silenced it, and that is worth nothing.
    """
    said = _attempt(task, work, limits, rung)
    if said is None:
        with TemporaryDirectory() as folder, opened(task, limits, rung) as box:
            furnish(box, task)
            box.take(Path(folder) / "clean")
            clean = _attempt(task, Path(folder) / "clean", limits, rung)
        if clean is None:
            raise EnvironmentFailure(
                f"The tests of {task.id} ended without a reward, on untouched files as well."
            )
        return 0.0
    return said


def _attempt(task: TaskFolder, work: Path, limits: Limits, rung: RungName) -> float | None:
    assert task.test is not None
    seconds = replace(
        limits, seconds=task.test_seconds, cpu_seconds=max(limits.cpu_seconds, task.test_seconds)
    )
    with TemporaryDirectory() as folder:
        runs = task.test.parent / "run"
        if (runs / "run.sh").is_file():
            ran = _run_first(task, runs, work, Path(folder) / "ran", seconds, rung)
            if ran is None:
                return 0.0
            work = ran
        tests = (task.root / "tests" if task.by_exit_code else task.test.parent, "/tests")
        extra = [Extra("/tests", tests[0]), Extra("/logs", write=True)]
        with _judging(task, work, seconds, rung, extra) as box:
            box.write("/logs/verifier/.keep", b"")
            script = box.path("/tests") + "/test.sh"
            if task.by_exit_code:
                box.write("/logs/run-tests.sh", translated(box, task, task.test.read_bytes()))
                script = box.path("/logs") + "/run-tests.sh"
            result = box.exec(["bash", script], env=_environment(box, task))
            if task.by_exit_code:
                return (
                    None if result.ended or result.exit_code in (126, 127) else float(result.exit_code == 0)
                )
            return None if result.ended else _reward(box)


def _run_first(
    task: TaskFolder, runs: Path, work: Path, into: Path, limits: Limits, rung: RungName
) -> Path | None:
    """Run what the policy wrote, in a box that knows none of the answers. How it ends does not matter; what it leaves does.

    None where what it leaves cannot be taken (too much, too deep): that is the policy's doing.
    """
    with _judging(task, work, limits, rung, [Extra("/tests/run", runs)]) as box:
        box.exec(["bash", box.path("/tests/run") + "/run.sh"], env=_environment(box, task))
        try:
            box.end_all()
            box.take(into)
        except SandboxError:
            return None
    return into


@contextmanager
def _judging(
    task: TaskFolder, work: Path, limits: Limits, rung: RungName, extra: list[Extra]
) -> Iterator[Sandbox]:
    with opened(task, limits, rung, extra) as box:
        box.put(work)
        if (
            box.path("/tests") != "/tests"
        ):  # a rung without names of its own: the scripts are told the real ones
            for one in extra:
                if one.source is not None:
                    _translate(box, task, one)
        yield box


def _translate(box: Sandbox, task: TaskFolder, extra: Extra) -> None:
    assert extra.source is not None
    for path in sorted(extra.source.rglob("*")):
        if path.is_file() and path.suffix in _TEXTS:
            box.write(
                f"{extra.at}/{path.relative_to(extra.source)}", translated(box, task, path.read_bytes())
            )


def translated(box: Sandbox, task: TaskFolder, script: bytes) -> bytes:
    """A script with the box's real paths, on a rung that cannot give them other names."""
    text = script.decode(errors="surrogateescape")
    for at in ("/tests", "/logs", "/solution", task.work):
        here = box.path(at)
        if here != at:
            text = re.sub(rf"(?<![\w./-]){re.escape(at)}(?![\w.-])", lambda _, here=here: here, text)  # type: ignore[misc]
    return text.encode(errors="surrogateescape")


def _environment(box: Sandbox, task: TaskFolder) -> dict[str, str]:
    """The judge's home is not the working folder: nothing there is read by programs as a person's settings."""
    return {**task.env, "HOME": box.path("/tmp"), "TEST_DIR": box.path("/tests"), "PYTHONNOUSERSITE": "1"}  # noqa: S108


def _reward(box: Sandbox) -> float | None:
    for path in _REWARDS:
        try:
            text = box.read(path, limit=1 << 16).decode()
            told = json.loads(text) if path.endswith("json") else float(text)
        except NotFound:
            continue
        except (SandboxError, UsageError, ValueError):
            return None
        values = list(told.values()) if isinstance(told, dict) else [told]
        if not values or not all(isinstance(one, int | float) and math.isfinite(one) for one in values):
            return None
        return min(1.0, max(0.0, sum(values) / len(values)))
    return None
