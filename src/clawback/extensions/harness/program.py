"""Episodes that an agent program leads: it runs in the task's box, asks the policy through the box's one server, and the task's own check
of what it left behind is the reward."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from typing import Any

from clawback.environments.core import EnvironmentFailure, EnvironmentSet, Split, Task
from clawback.errors import SandboxError, UsageError
from clawback.extensions.harness import commands
from clawback.extensions.harness.commands import Command
from clawback.extensions.harness.program_episode import ProgramEpisode, ProgramExit
from clawback.extensions.harness.session import MODEL, HarnessSession
from clawback.extensions.sandbox import Extra, Limits, Process, Sandbox
from clawback.extensions.terminal_tasks.episode import Guest, ShellEnvironment
from clawback.records import text_of

SECONDS = 900.0
"""That a program may work on a task."""
AGENT = "/agent"
"""Where the box has the files that a command names."""
MIB = 1 << 20
LIMITS = Limits(
    seconds=SECONDS,
    cpu_seconds=SECONDS,
    memory=4096 * MIB,
    address_space=1 << 40,
    processes=256,
    disk=1024 * MIB,
    open_files=4096,
)
"""Of its box: runtimes such as Node reserve far more addresses than they use."""
LAST_WORDS = 400
"""Characters of a program's last words in a message."""


class ProgramTasks:
    """The tasks of a set in the sandbox (terminal, repository), worked on by an agent program."""

    def __init__(self, of: EnvironmentSet, program: Command, turns: int, seconds: float = SECONDS) -> None:
        """Raises ``UsageError`` where the tasks are not done in a box."""
        if not isinstance(of.make(), ShellEnvironment):
            raise UsageError(
                f"A harness works on tasks in the sandbox (terminal, repository), and {of.name} has none. "
                "For other tasks write a function with @clawback.rollout."
            )
        self.of, self.program, self.turns, self.seconds = of, program, turns, seconds
        self.name = of.name
        self.answer_seconds = seconds + max(600.0, float(getattr(of, "answer_seconds", 0.0)))

    def tasks(self, split: Split) -> Sequence[Task]:
        return self.of.tasks(split)

    def make(self) -> ProgramEpisode:
        return _Episode(self)


def wrap(of: EnvironmentSet, harness: str, turns: int) -> ProgramTasks:
    """A set whose tasks this preset or command works on. Raises ``UsageError``, ``NotFound``."""
    return ProgramTasks(of, commands.command(harness), turns)


class _Episode(ProgramEpisode):
    def __init__(self, tasks: ProgramTasks) -> None:
        super().__init__(tasks.turns)
        self.tasks = tasks
        self._inner: Any = None
        self._world: Any = None
        self._process: Process | None = None
        self._stopped = False

    async def open(self, task: Task) -> socket:
        self._stopped = False
        return await asyncio.to_thread(self._open, task)

    def _open(self, task: Task) -> socket:
        inner = self.tasks.of.make()
        assert isinstance(inner, ShellEnvironment)
        self._inner = inner
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="clawback-agent-")))
            for index, source in enumerate(self.tasks.program.copied.values()):
                target = folder / str(index) / source.name
                target.parent.mkdir()
                (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
            extra = (Extra(AGENT, folder),) if self.tasks.program.copied else ()
            limits = replace(LIMITS, seconds=self.tasks.seconds, cpu_seconds=self.tasks.seconds)
            guest = Guest(extra, self.tasks.program.shown)
            inner.settings = replace(inner.settings, limits=limits, guest=guest)
            self._world = inner.opened(task)
        box: Sandbox = self._world.box
        assert box.listener is not None
        return box.listener

    async def run(self, task: Task, session: HarnessSession) -> ProgramExit:  # noqa: ARG002 - the box has the task
        return await asyncio.to_thread(self._run, session)

    def _run(self, session: HarnessSession) -> ProgramExit:
        box: Sandbox = self._world.box
        words, env = self._prepared(box, session.key)
        try:
            self._process = box.start(words, timeout=self.tasks.seconds, env=env, interactive=False)
            result = self._process.wait()
        except SandboxError as error:
            raise EnvironmentFailure(f"The sandbox failed: {error}") from error
        output = (result.stderr.strip() or result.stdout.strip())[-LAST_WORDS:]
        if result.exit_code in (126, 127) or (not self._answered and result.exit_code and not self._stopped):
            raise EnvironmentFailure(
                f"{words[0]} ended with {result.exit_code} before it asked the model: {output}"
            )
        reward, details = self._inner.judged()
        over = (
            {"truncated": True, "stop_reason": f"the harness ended by {result.ended}"} if result.ended else {}
        )
        return ProgramExit(reward, {**details, **over, "exit_code": result.exit_code, "output": output})

    def _prepared(self, box: Sandbox, key: str) -> tuple[list[str], dict[str, str]]:
        """The command and its environment; its own files are written into a home that is not the task's folder."""
        program, home = self.tasks.program, "/tmp/home"  # noqa: S108 - of the box
        values = {
            "task": _instruction(self._world.observation.messages),
            "url": box.address,
            "key": key,
            "model": MODEL,
            "home": box.path(home),
        }
        for name, text in program.files.items():
            box.write(commands.fill(name, {"home": home}), commands.fill(text, values).encode())
        box.write(f"{home}/.keep", b"")
        copied = {
            word: box.path(f"{AGENT}/{index}/{source.name}")
            for index, (word, source) in enumerate(program.copied.items())
        }
        words = [copied.get(word, word) for word in program.words]
        env: Mapping[str, str] = {"HOME": "{home}", **self._world.env, **commands.VARIABLES, **program.env}
        path = ":".join([*(f"{folder}/bin" for folder in program.shown), box.environment().get("PATH", "")])
        variables = {name: commands.fill(value, values) for name, value in env.items()}
        return [commands.fill(word, values) for word in words], {**variables, "PATH": path}

    async def stop(self) -> None:
        self._stopped = True
        if self._process is not None:
            self._process.stop()

    async def release(self) -> None:
        inner, self._inner = self._inner, None
        self._process = None
        if inner is not None:
            await inner.close()


def _instruction(messages: Sequence[Mapping[str, Any]]) -> str:
    """The task in words; how our own tools are used is no business of a program that has its own."""
    return "\n\n".join(text_of(m.get("content")) for m in messages if m.get("role") == "user")
