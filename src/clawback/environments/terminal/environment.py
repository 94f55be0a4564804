"""The terminal agent: a task, a shell in a box, and tests that run when the policy is done."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from clawback.environments.core import EnvironmentFailure, Observation, Split, Step, Task
from clawback.environments.terminal import folders
from clawback.environments.terminal.grading import furnish, grade, limits_of, outside_work
from clawback.environments.terminal.tools import TOOLS, Call, Shell, calls
from clawback.errors import ClawbackError, NotFound, SandboxError, UsageError
from clawback.records import Message
from clawback.sandbox import Limits, Sandbox, choose, open_sandbox

OWN = Path(__file__).with_name("tasks")
UNPARSABLE = -0.05
"""What a reply that cannot be read costs."""
_SYSTEM = (
    "You work in a Linux shell, in a folder of your own, without a network. Use the tools, one step at a time; or write\n"
    "```bash\nCOMMAND\n```\nto run a command, and\n```write PATH\nCONTENT\n```\nto write a file. "
    "Files are named from the current folder. When the task is done, answer without a command."
)


@dataclass(frozen=True, slots=True)
class Settings:
    """How long an episode may go on, and in what box."""

    turns: int = 12
    command_seconds: float = 20.0
    unparsable: int = 3
    """As many replies in a row that cannot be read end the episode."""
    limits: Limits = field(default_factory=Limits)
    rung: str | None = None


class TerminalEnvironment:
    """One episode of a terminal task."""

    def __init__(self, tasks: TerminalTasks, settings: Settings) -> None:
        self._tasks, self._settings = tasks, settings
        self._box: Sandbox | None = None
        self._shell: Shell | None = None
        self._folder: folders.Folder | None = None
        self._turns = self._unread = 0

    async def reset(self, task: Task, seed: int) -> Observation:  # noqa: ARG002 - the folder is the whole world
        await self.close()
        return await asyncio.to_thread(self._reset, task)

    async def step(self, message: Message) -> Step:
        return await asyncio.to_thread(self._step, message)

    async def close(self) -> None:
        box, self._box = self._box, None
        if box is not None:
            await asyncio.to_thread(box.close)

    # ---- in a thread

    def _reset(self, task: Task) -> Observation:
        folder = self._tasks.folder(task)
        rung = choose(self._settings.rung)
        why = refusal(folder, rung)
        if why:
            raise UsageError(f"The task {folder.id} cannot be run: {why}.")
        self._folder, self._turns, self._unread = folder, 0, 0
        with _faults():
            self._box = open_sandbox(limits_of(folder, self._settings.limits), rung, work=folder.work)
            furnish(self._box, folder)
        seconds = min(self._settings.command_seconds, folder.agent_seconds)
        self._shell = Shell(self._box, seconds, folder.env)
        messages = (
            {"role": "system", "content": _SYSTEM},
            {"role": "user", "content": folder.instruction.strip()},
        )
        return Observation(messages, TOOLS)

    def _step(self, message: Message) -> Step:
        if self._box is None or self._shell is None or self._folder is None:
            raise UsageError("The episode has not begun: call reset first.")
        self._turns += 1
        asked = calls(message)
        unread = any(call.problem for call in asked)
        self._unread = self._unread + 1 if unread else 0
        last = self._turns >= self._settings.turns
        given_up = self._unread >= self._settings.unparsable
        with _faults():
            answers = tuple(_answered(call, self._shell.answer(call)) for call in asked)
            if asked and not last and not given_up:
                return Step(answers, reward=UNPARSABLE if unread else None, info={"unparsable": unread})
            reward = self._judged()
        info = {
            "unparsable": unread,
            "truncated": bool(asked) and last,
            "turns": self._turns,
            "success": reward == 1.0,
        }
        return Step(answers, reward=reward + (UNPARSABLE if unread else 0.0), done=True, info=info)

    def _judged(self) -> float:
        """The box ends before its files are looked at, so that nothing of it runs while they are."""
        assert self._box is not None
        assert self._folder is not None
        box, self._box = self._box, None
        with TemporaryDirectory() as folder:
            work = Path(folder) / "work"
            try:
                box.end_all()
                try:
                    box.take(work)
                except SandboxError:  # too deep, too many, too large: the policy's own doing
                    return 0.0
            finally:
                box.close()
            return grade(self._folder, work, limits_of(self._folder, self._settings.limits), box.rung)


class _faults:
    """What breaks in a box by no fault of the policy ends the episode without a reward."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UsageError | NotFound | EnvironmentFailure):
            return
        if isinstance(error, ClawbackError | OSError):
            raise EnvironmentFailure(f"The sandbox failed: {error}") from error


def _answered(call: Call, text: str) -> Message:
    if call.id:
        return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text}
    return {"role": "user", "content": text}


def refusal(folder: folders.Folder, rung: str) -> str:
    """Why a task cannot be run in a box of this rung ("" if it can)."""
    if folder.refusal:
        return folder.refusal + _engine(folder.refusal)
    if stray := outside_work(folder):
        return f"it puts files at {stray}, outside of its working folder, and so needs a container engine"
    if rung != "bubblewrap" and folder.work in folder.instruction:
        return f"it names {folder.work} in its text, and only bubblewrap can give a box that path (this machine's rung: {rung})"
    return ""


def _engine(why: str) -> str:
    return (
        ", which Clawback does not drive yet: run it with Harbor against `clawback serve`"
        if "engine" in why
        else ""
    )


class TerminalTasks:
    """Tasks from folders: our own twenty, or any folder of Harbor's or Terminal-Bench's tasks."""

    def __init__(self, root: Path = OWN, settings: Settings | None = None, name: str = "terminal") -> None:
        self.name = name
        self._settings = settings or Settings()
        self._folders = {folder.id: folder for folder in map(folders.read, folders.find(root))}
        if not self._folders:
            raise NotFound(f"{root} has no task folders (with a task.toml or a task.yaml).")

    def tasks(self, split: Split) -> Sequence[Task]:
        """Those that can be run; ``refused`` has the others."""
        return [
            Task(id, {"instruction": folder.instruction}, split)
            for id, folder in self._folders.items()
            if not folder.refusal and _split(folder) == split
        ]

    def refused(self) -> dict[str, str]:
        """Tasks that need more than a box, and why."""
        return {
            id: folder.refusal + _engine(folder.refusal)
            for id, folder in self._folders.items()
            if folder.refusal
        }

    def folder(self, task: Task) -> folders.Folder:
        if task.id not in self._folders:
            raise NotFound(f"There is no task {task.id!r} in {self.name}.")
        return self._folders[task.id]

    def make(self) -> TerminalEnvironment:
        return TerminalEnvironment(self, self._settings)

    def with_settings(self, **changed: object) -> TerminalTasks:
        """The same tasks under other settings."""
        other = object.__new__(TerminalTasks)
        other.name, other._folders = self.name, self._folders
        other._settings = replace(self._settings, **changed)  # type: ignore[arg-type]
        return other

    def solution(self, task: Task) -> Sequence[Message]:
        """The task's own solution as one command, and a last word."""
        folder = self.folder(task)
        if folder.solution is None:
            raise NotFound(f"The task {task.id} has no solution.")
        script = folder.solution.read_text(encoding="utf-8").rstrip()
        return [_says(f"```bash\n{script}\n```"), _says("Done.")]


def _says(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _split(folder: folders.Folder) -> Split:
    """As the task says; else one in five, by its name, is for the test."""
    if folder.split in ("train", "test"):
        return "test" if folder.split == "test" else "train"
    return "test" if hashlib.sha256(folder.id.encode()).digest()[0] % 5 == 0 else "train"
