"""The terminal agent: a task, a shell in a box, and tests that run when the policy is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clawback.environments.core import Observation, Split, Task
from clawback.environments.world_helpers import share_out
from clawback.errors import NotFound, SandboxRefused, UsageError
from clawback.extensions.sandbox import choose, choose_for_image, find_image
from clawback.extensions.sandbox.rungs import OWN_NAMES
from clawback.extensions.terminal_tasks import folders
from clawback.extensions.terminal_tasks.episode import (
    HOW,
    ShellEnvironment,
    TerminalSettings,
    TerminalWorld,
    says,
)
from clawback.extensions.terminal_tasks.grading import furnish, grade, limits_of, opened, outside_work
from clawback.records import Message

OWN = Path(__file__).with_name("tasks")
_SYSTEM = f"You work in a Linux shell, in a folder of your own, without a network. {HOW}"


class TerminalEnvironment(ShellEnvironment):
    """One episode of a terminal task."""

    def __init__(self, tasks: TerminalTasks, settings: TerminalSettings) -> None:
        super().__init__(settings)
        self._tasks = tasks

    def open(self, task: Task) -> TerminalWorld:
        self._folder = folder = self._tasks.folder(task)
        limits = limits_of(folder, self.settings.limits)
        if folder.image and self.settings.guest:
            raise UsageError(
                f"The task {folder.id} names an image, in which no agent program of yours is installed."
            )
        if folder.image and not folder.refusal:
            image = choose_for_image(folder.image, self.settings.rung, limits.cpus)
            self._rung, self._folder = image.engine, replace(folder, work=folder.work or image.work)
        else:
            self._rung = choose(self.settings.rung)
        folder = self._folder
        if why := refusal(folder, self._rung):
            raise UsageError(f"The task {folder.id} cannot be run: {why}.")
        box = opened(folder, limits, self._rung, guest=self.settings.guest)
        try:
            furnish(box, folder)
        except BaseException:
            box.close()
            raise
        messages = (
            {"role": "system", "content": _SYSTEM},
            {"role": "user", "content": folder.instruction.strip()},
        )
        return TerminalWorld(
            box, Observation(messages), folder.env, min(self.settings.command_seconds, folder.agent_seconds)
        )

    def grade(self, work: Path) -> tuple[float, Mapping[str, Any]]:
        return grade(self._folder, work, limits_of(self._folder, self.settings.limits), self._rung), {}


def refusal(folder: folders.TaskFolder, rung: str) -> str:
    """Why a task cannot be run in a box of this rung ("" if it can)."""
    if folder.refusal:
        return folder.refusal
    if stray := outside_work(folder):
        return f"it puts files at {stray}, outside of its working folder, which only an image of its own can hold"
    if rung not in OWN_NAMES and folder.work in folder.instruction:
        return f"it names {folder.work} in its text, and only bubblewrap can give a box that path (this machine's rung: {rung})"
    return ""


class TerminalTasks:
    """Tasks from folders: our own twenty, or any folder of Harbor's or Terminal-Bench's tasks."""

    free_replies = True

    def __init__(
        self, root: Path = OWN, settings: TerminalSettings | None = None, name: str = "terminal"
    ) -> None:
        self.name = name
        self._settings = settings or TerminalSettings()
        self._folders = {folder.id: folder for folder in map(folders.read, folders.find(root))}
        longest = max((folder.test_seconds for folder in self._folders.values()), default=0.0)
        self.answer_seconds = 4 * longest + 60
        """A check runs in at most four boxes, each with a limit of its own."""
        self._missing: dict[str, str] = {}  # images, and why each cannot be had
        if not self._folders:
            raise NotFound(f"{root} has no task folders (with a task.toml or a task.yaml).")

    def tasks(self, split: Split) -> Sequence[Task]:
        """Those that can be run; ``refused`` has the others."""
        runnable = {id: folder for id, folder in self._folders.items() if not self._refusal(folder)}
        shared = share_out({id: folder.split for id, folder in runnable.items()})
        return [Task(id, {"instruction": runnable[id].instruction}, split) for id in shared[split]]

    def refused(self) -> dict[str, str]:
        """Tasks that cannot be run, and why: whatever this machine has, or for want of their image."""
        return {id: why for id, folder in self._folders.items() if (why := self._refusal(folder))}

    def _refusal(self, folder: folders.TaskFolder) -> str:
        if folder.refusal or not folder.image:
            return folder.refusal
        if folder.image not in self._missing:
            try:
                find_image(folder.image, self._settings.rung)
                self._missing[folder.image] = ""
            except SandboxRefused as error:
                self._missing[folder.image] = str(error).removesuffix(".")
        return self._missing[folder.image]

    def folder(self, task: Task) -> folders.TaskFolder:
        if task.id not in self._folders:
            raise NotFound(f"There is no task {task.id!r} in {self.name}.")
        return self._folders[task.id]

    def make(self) -> TerminalEnvironment:
        return TerminalEnvironment(self, self._settings)

    def solution(self, task: Task) -> Sequence[Message]:
        """The task's own solution as one command, and a last word."""
        folder = self.folder(task)
        if folder.solution is None:
            raise NotFound(f"The task {task.id} has no solution.")
        script = folder.solution.read_text(encoding="utf-8").rstrip()
        return [says(f"```bash\n{script}\n```"), says("Done.")]


def names() -> list[str]:
    """What can stand after ``terminal:`` beside a folder of tasks: nothing, for our own."""
    return []


def make(rest: str = "", settings: Mapping[str, object] | None = None) -> TerminalTasks:
    """Our own tasks, or those in a folder: ``terminal``, ``terminal:FOLDER?turns=20&rung=landlock``."""
    root = Path(rest).expanduser() if rest else OWN
    options = TerminalSettings.from_options("Terminal", settings or {})
    return TerminalTasks(root, options, f"terminal:{rest}" if rest else "terminal")
