"""Worked examples before each task (few-shot prompting; Brown et al. 2020, arXiv:2005.14165), for models that would never try what is rewarded.

Examples are training tasks with the solutions that the environment itself knows, or conversations of a file. They come as earlier turns, between the
system message and the task. Where tasks have tools of their own, each question has its tools before it, in examples and tasks alike.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from clawback.environments import world_helpers
from clawback.environments.core import (
    Environment,
    EnvironmentSet,
    Observation,
    Solvable,
    Split,
    Step,
    Task,
    Tool,
)
from clawback.environments.play import View, episode, let_go
from clawback.environments.policies import Solution
from clawback.environments.tools.calls import FORM, listed
from clawback.errors import NotFound, UsageError
from clawback.records import Message

MOST = 32
TRIES = 4
"""Training tasks that are looked at for each example that is wanted: not every one has a known solution."""
OWN_TOOLS = f"Each question has the tools before it that can be called for it. {FORM}"


@dataclass(frozen=True, slots=True)
class Shot:
    """A conversation that is shown. ``task``: what it solves; "" for one of a file."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    task: str = ""


class FewShot:
    """An environment set, each of whose episodes begins with the same examples. Their tasks are left out of training."""

    def __init__(self, of: EnvironmentSet, shots: str, seed: int = 0) -> None:
        """``shots``: how many tasks to solve, or a file, a line ``{"messages": […]}`` for each example. Raises ``UsageError``, ``NotFound``."""
        self.of, self.seed, self.name = of, seed, of.name
        self.count = int(shots) if shots.isdigit() else 0
        self.written = [] if shots.isdigit() else _written(Path(shots).expanduser())
        if shots.isdigit() and not 0 < self.count <= MOST:
            raise UsageError(f"--shots takes 1 to {MOST} examples, or a file of them.")
        if self.count and not isinstance(of, Solvable):
            raise UsageError(
                f"{of.name} knows no solutions to show. Name a file of examples (--shots FILE.jsonl), a line for each: "
                '{"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}'
            )

    def tasks(self, split: Split) -> Sequence[Task]:
        shown = {one.task for one in self.examples} if split == "train" else ()
        return [task for task in self.of.tasks(split) if task.id not in shown]

    def make(self) -> Environment:
        return _Episode(self, self.of.make())

    async def aclose(self) -> None:
        await let_go(self.of)

    @cached_property
    def examples(self) -> Sequence[Shot]:
        """Raises ``UsageError`` where the environment solves too few."""
        if not self.count:
            return self.written
        with ThreadPoolExecutor(1) as aside:  # the caller may be in an event loop
            found = aside.submit(asyncio.run, self._solved()).result()
        if len(found) < self.count:
            raise UsageError(
                f"{self.name} solves {len(found)} of the training tasks that were tried, and {self.count} examples are asked for."
            )
        return found

    async def _solved(self) -> list[Shot]:
        assert isinstance(self.of, Solvable)
        tasks = list(self.of.tasks("train"))
        random.Random(world_helpers.mixed(self.seed, "shots")).shuffle(tasks)
        found: list[Shot] = []
        try:
            for task in tasks[: TRIES * self.count]:
                if len(found) == self.count:
                    break
                try:
                    player = _Teacher(self.of.solution(task))
                except NotFound:
                    continue
                played = await episode(self.of, task, player, self.seed, len(player.messages))
                if played.solved:
                    found.append(Shot(_shown(played.messages), player.tools, task.id))
        finally:
            await let_go(self.of)
        return found

    def opened(self, opening: Observation) -> Observation:
        """An episode's opening with the examples in it."""
        system = [m for m in opening.messages[:1] if m["role"] == "system"]
        asked = opening.messages[len(system) :]
        if not any(one.tools for one in self.examples) or all(
            one.tools == opening.tools for one in self.examples
        ):
            earlier = [m for one in self.examples for m in one.messages]
            return Observation((*system, *earlier, *asked), opening.tools)
        earlier = [m for one in self.examples for m in _with_tools(one.messages, one.tools)]
        told = "\n\n".join([*(str(m["content"]) for m in system), OWN_TOOLS])
        return Observation(
            ({"role": "system", "content": told}, *earlier, *_with_tools(asked, opening.tools))
        )


class _Episode:
    """One episode with the examples before it."""

    def __init__(self, of: FewShot, world: Environment) -> None:
        self.of, self.world = of, world

    async def reset(self, task: Task, seed: int) -> Observation:
        return self.of.opened(await self.world.reset(task, seed))

    async def step(self, message: Message) -> Step:
        return await self.world.step(message)

    async def close(self) -> None:
        await self.world.close()


class _Teacher(Solution):
    """Plays a solution, and remembers the tools that it was offered."""

    tools: tuple[Tool, ...] = ()

    async def __call__(self, view: View) -> Message:
        self.tools = view.tools
        return await super().__call__(view)


def _shown(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Without the system message, up to the last reply."""
    last = max(i for i, m in enumerate(messages) if m["role"] == "assistant")
    return tuple(m for m in messages[: last + 1] if m["role"] != "system")


def _with_tools(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    first, *rest = messages
    return (
        [{**first, "content": f"{listed(tools)}\n\n{world_helpers.text(first)}"}, *rest]
        if tools
        else list(messages)
    )


def _written(path: Path) -> list[Shot]:
    found = []
    for number, row in enumerate(world_helpers.rows(path), 1):
        messages: Any = row.get("messages")
        roles = (
            [m.get("role") if isinstance(m, dict) else None for m in messages]
            if isinstance(messages, list)
            else []
        )
        if (
            not roles
            or roles[0] != "user"
            or roles[-1] != "assistant"
            or not set(roles) <= {"user", "assistant", "tool"}
        ):
            raise UsageError(
                f"{path}, example {number}: `messages` must begin with the user's and end with the assistant's."
            )
        found.append(Shot(tuple(messages)))
    if not 0 < len(found) <= MOST:
        raise UsageError(f"{path} has {len(found)} examples; 1 to {MOST} can be shown.")
    return found
