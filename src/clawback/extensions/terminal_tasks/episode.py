"""An episode in a shell: messages become commands in a box, until the policy is done or a limit is reached."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from clawback.environments.core import EnvironmentFailure, Observation, Step, Task
from clawback.environments.tools.calls import Call, ParsedReply
from clawback.errors import ClawbackError, NotFound, SandboxError, UsageError
from clawback.extensions.sandbox import Extra, Limits, Sandbox
from clawback.extensions.terminal_tasks.shell_tools import TOOLS, Shell, read
from clawback.records import Message

UNPARSABLE = -0.05
"""What a reply that cannot be read costs."""
HOW = (
    "Use the tools, one step at a time; or write\n```bash\nCOMMAND\n```\nto run a command, and\n"
    "```write PATH\nCONTENT\n```\nto write a file. Files are named from the current folder. "
    "When you are done, answer without a command."
)


@dataclass(frozen=True, slots=True)
class Guest:
    """A program that works in a box beside the task's files, and reaches a server of ours (``clawback.extensions.harness``)."""

    extra: tuple[Extra, ...] = ()
    read: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class TerminalSettings:
    """How long an episode may go on, and in what box."""

    turns: int = 12
    command_seconds: float = 20.0
    unparsable: int = 3
    """As many replies in a row that cannot be read end the episode."""
    limits: Limits = field(default_factory=Limits)
    rung: str | None = None
    guest: Guest | None = None

    @classmethod
    def names(cls) -> list[str]:
        """Those that a task's name may set."""
        return [field.name for field in fields(cls) if field.name not in ("limits", "guest")]

    @classmethod
    def from_options(
        cls, tasks: str, options: Mapping[str, Any], others: Sequence[str] = ()
    ) -> TerminalSettings:
        """Settings from a task's name. Raises ``UsageError`` for one that these tasks do not have. ``others``: further ones that they have."""
        names = cls.names()
        for name in options:
            if name not in names:
                raise UsageError(
                    f"{tasks} tasks have no setting `{name}`. There are {', '.join([*names, *others])}."
                )
        return cls(**options)


@dataclass(frozen=True, slots=True)
class TerminalWorld:
    """What an episode begins with."""

    box: Sandbox
    observation: Observation
    env: Mapping[str, str]
    command_seconds: float


class ShellEnvironment(ABC):
    """One episode. What a task is, and what its outcome is worth, is for the kinds of tasks to say."""

    def __init__(self, settings: TerminalSettings) -> None:
        self.settings = settings
        self._box: Sandbox | None = None
        self._shell: Shell | None = None
        self._turns = self._unread = 0
        self._acted = False

    @abstractmethod
    def open(self, task: Task) -> TerminalWorld:
        """A box with the task's files, and what the policy reads first."""

    @abstractmethod
    def grade(self, work: Path) -> tuple[float, Mapping[str, Any]]:
        """The reward, in [0, 1], of the working folder as the policy left it; and what else is to be told."""

    async def reset(self, task: Task, seed: int) -> Observation:  # noqa: ARG002 - the files are the whole world
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
        world = self.opened(task)
        self._shell = Shell(world.box, world.command_seconds, world.env)
        return Observation(world.observation.messages, world.observation.tools or TOOLS)

    def _step(self, message: Message) -> Step:
        if self._box is None or self._shell is None:
            raise UsageError("The episode has not begun, or is over: call reset first.")
        self._turns += 1
        reply = read(message)
        unread = bool(reply.problems)
        acts = unread or bool(reply.calls)
        self._acted = self._acted or bool(reply.calls)
        self._unread = self._unread + 1 if unread else 0
        last = self._turns >= self.settings.turns
        given_up = self._unread >= self.settings.unparsable
        with faults():
            answers = (*(_answered(call, self._shell.answer(call)) for call in reply.calls), *_refused(reply))
            if acts and not last and not given_up:
                return Step(answers, reward=UNPARSABLE if unread else None, info={"unparsable": unread})
            reward, told = self.judged()
        # An episode that ends before anything was done counts as unreadable: a model that only talks does not look fine.
        idle = not acts and not self._acted
        info = {"unparsable": unread or idle, "truncated": acts and last, "success": reward == 1.0, **told}
        info |= {"idle": True} if idle else {}
        return Step(answers, reward=reward + (UNPARSABLE if unread else 0.0), done=True, info=info)

    def opened(self, task: Task) -> TerminalWorld:
        """The task's box, which is this episode's from now on, and what the policy reads first. For ``judged`` without steps."""
        self._turns = self._unread = 0
        self._acted = False
        with faults():
            world = self.open(task)
        self._box = world.box
        return world

    def judged(self) -> tuple[float, Mapping[str, Any]]:
        """The reward, and what else is to be told. The box ends before its files are looked at, so that nothing of it runs while they are."""
        assert self._box is not None
        box, self._box = self._box, None
        with TemporaryDirectory() as folder:
            work = Path(folder) / "work"
            try:
                box.end_all()
                try:
                    box.take(work)
                except SandboxError as error:  # too deep, too many, too large: the policy's own doing
                    return 0.0, {"untakable": str(error)}
            finally:
                box.close()
            return self.grade(work)


class faults:
    """What breaks in a box by no fault of the policy ends the episode without a reward."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, UsageError | NotFound | EnvironmentFailure):
            return
        if isinstance(error, ClawbackError | OSError):
            raise EnvironmentFailure(f"The sandbox failed: {error}") from error


def _answered(call: Call, text: str) -> Message:
    if call.id:
        name = {"name": call.name} if call.name else {}
        return {"role": "tool", "tool_call_id": call.id, **name, "content": text}
    return {"role": "user", "content": text}


def _refused(reply: ParsedReply) -> list[Message]:
    """What the policy reads about each call that could not be read."""
    ids = reply.problem_ids or ("",) * len(reply.problems)
    return [_answered(Call("", {}, id), problem) for problem, id in zip(reply.problems, ids, strict=True)]


def says(text: str) -> Message:
    """An assistant's message."""
    return {"role": "assistant", "content": text}
