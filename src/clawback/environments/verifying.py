"""An environment as a verifier of a person's own turns: where a prompt is one of its tasks, its reward is the answer's score.

``[[reward.verifiers]]`` with ``name = "environment"`` and ``task`` as ``clawback env list`` has them. What an
environment cannot judge by one reply (a prompt that is none of its tasks, an episode that continues, an
environment that fails) has ``otherwise`` as its score, so that it neither helps nor hurts.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import ClassVar

from clawback.environments.core import EnvironmentFailure, EnvironmentSet, Task
from clawback.environments.play import let_go
from clawback.environments.registry import find
from clawback.errors import UsageError
from clawback.records import text_of

SECONDS = 60.0
"""That opening a task, or judging an answer, may take."""


@dataclass(frozen=True)
class EnvironmentVerifier:
    """The reward of the environment ``task`` for the first reply, as a number from 0 to 1."""

    name: ClassVar[str] = "environment"
    task: str
    agent: str | None = None
    tasks: int = 2000
    """How many of its tasks are known by their prompts, those to learn from first."""
    otherwise: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.otherwise <= 1:
            raise UsageError("`otherwise` of the verifier `environment` is a score from 0 to 1.")

    def __call__(self, prompt: str, response: str) -> float:
        """Its score, or ``otherwise``."""
        task = self._by_prompt.get(_plain(prompt))
        if task is None:
            return self.otherwise
        try:
            reward = asyncio.run(asyncio.wait_for(self._judged(task, response), SECONDS))
        except (EnvironmentFailure, TimeoutError):
            return self.otherwise
        return self.otherwise if reward is None else min(1.0, max(0.0, reward))

    @cached_property
    def _set(self) -> EnvironmentSet:
        return find(self.task, self.agent)

    @cached_property
    def _by_prompt(self) -> dict[str, Task]:
        """What each task asks → the task. Where two ask the same, the first."""
        every = [task for split in ("train", "test") for task in self._set.tasks(split)]
        return asyncio.run(self._fetch_tasks(list(islice(every, self.tasks))))

    async def _fetch_tasks(self, tasks: list[Task]) -> dict[str, Task]:
        found: dict[str, Task] = {}
        try:
            for task in tasks:
                world = self._set.make()
                try:
                    opening = await asyncio.wait_for(world.reset(task, 0), SECONDS)
                    said = [m for m in opening.messages if m.get("role") == "user"]
                    if said:
                        found.setdefault(_plain(text_of(said[-1].get("content"))), task)
                finally:
                    await world.close()
        finally:
            await let_go(self._set)
        return found

    async def _judged(self, task: Task, response: str) -> float | None:
        world = self._set.make()
        try:
            await world.reset(task, 0)
            step = await world.step({"role": "assistant", "content": response})
            return step.reward if step.done or step.reward is not None else None
        finally:
            await world.close()
            await let_go(self._set)


def _plain(text: str) -> str:
    return " ".join(text.split())
