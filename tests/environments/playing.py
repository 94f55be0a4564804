"""Playing a task with given replies, for tests of worlds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clawback.environments.core import EnvironmentSet, Observation, Step, Task


async def walk(
    environments: EnvironmentSet, task: Task, replies: Sequence[Any], seed: int = 0
) -> tuple[Observation, list[Step]]:
    """What an episode opened with, and what came of each reply (text, or a whole message)."""
    world = environments.make()
    steps: list[Step] = []
    try:
        opened = await world.reset(task, seed)
        for reply in replies:
            said = {"role": "assistant", "content": reply} if isinstance(reply, str) else reply
            steps.append(await world.step(said))
            if steps[-1].done:
                break
    finally:
        await world.close()
        await world.close()
    return opened, steps
