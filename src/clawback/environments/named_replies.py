"""Replies that a user names as an environment's actions, where the environment does not say them itself (``NAME?replies=[yes]|[no]``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clawback.environments import core, world_helpers
from clawback.environments.play import let_go
from clawback.environments.world_helpers import MOST_REPLIES
from clawback.errors import NotFound, UsageError
from clawback.records import Message


class NamedReplies:
    """An environment set whose actions are these replies, word for word. Any other reply counts as unread."""

    def __init__(self, of: core.EnvironmentSet, replies: Sequence[str]) -> None:
        """Raises ``UsageError`` for fewer than two replies, for empty ones and for more than ``MOST_REPLIES``."""
        if not 1 < len(replies) <= MOST_REPLIES or not all(map(str.strip, replies)):
            raise UsageError(
                f"`replies` takes 2 to {MOST_REPLIES} replies with | between them: replies=[yes]|[no]."
            )
        self.of, self.replies, self.name = of, tuple(replies), of.name

    def tasks(self, split: core.Split) -> Sequence[core.Task]:
        return self.of.tasks(split)

    def make(self) -> core.Environment:
        return _Episode(self.of.make(), self.replies)

    def action_replies(self) -> Sequence[str]:
        return self.replies

    def solution(self, task: core.Task) -> Sequence[Message]:
        if not isinstance(self.of, core.Solvable):
            raise NotFound(f"{self.name} knows no solutions.")
        return self.of.solution(task)

    async def aclose(self) -> None:
        await let_go(self.of)


class _Episode:
    def __init__(self, world: core.Environment, replies: Sequence[str]) -> None:
        self.world, self.replies = world, replies

    async def reset(self, task: core.Task, seed: int) -> core.Observation:
        return await self.world.reset(task, seed)

    async def step(self, message: Message) -> core.Step:
        found = await self.world.step(message)
        is_named = world_helpers.text(message).strip() in self.replies
        return replace(found, info={**found.info, "unparsable": not is_named})

    async def close(self) -> None:
        await self.world.close()
