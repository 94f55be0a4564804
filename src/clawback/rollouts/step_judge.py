"""A judge's votes on single replies, beside what the environment rewards (process rewards; Lightman et al. 2023, arXiv:2305.20050).

An outcome comes once, at the end of an episode; a judge that reads each reply with what came back says earlier which of them served. Its mean vote, between -1
and 1, times ``weight`` is added to the reward of the step. Only training tasks are judged: the return of held-out tasks stays the environment's own word.
A step that no vote could be read for gets nothing on top; a judge that cannot be asked at all is a failure of the environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from clawback.environments.core import (
    Environment,
    EnvironmentFailure,
    EnvironmentSet,
    Observation,
    Split,
    Step,
    Task,
)
from clawback.environments.play import let_go
from clawback.environments.tools.task_rewards import message_text
from clawback.errors import JudgeError
from clawback.feedback.endpoint import Ask, NoAnswer
from clawback.feedback.passes import readings
from clawback.feedback.verdict import JUDGE, boxed, decided, fenced
from clawback.records import Message

OVER = "The episode is over."


class StepJudged:
    """An environment set whose training episodes are judged reply by reply."""

    def __init__(self, of: EnvironmentSet, ask: Ask, weight: float, votes: int = 1) -> None:
        self.of, self.ask, self.weight, self.votes, self.name = of, ask, weight, votes, of.name

    def tasks(self, split: Split) -> Sequence[Task]:
        return self.of.tasks(split)

    def make(self) -> Environment:
        return _Episode(self, self.of.make())

    async def aclose(self) -> None:
        await let_go(self.of)

    async def vote(
        self, history: Sequence[Message], reply: Message, after: Sequence[Message]
    ) -> float | None:
        """From -1 to 1; None where no vote could be read. Raises ``EnvironmentFailure``."""
        material = fenced(
            (
                ("REQUEST", _text(history)),
                ("ANSWER", message_text(reply)),
                ("NEXT STATE", _text(after) or OVER),
            )
        )
        try:
            votes = await asyncio.to_thread(readings, self.ask, JUDGE, material, self.votes, boxed, decided)
        except NoAnswer:
            return None
        except JudgeError as error:
            raise EnvironmentFailure(f"The judge of single steps cannot be asked: {error}") from error
        return sum(votes) / len(votes)


class _Episode:
    """One episode with a judge beside it."""

    def __init__(self, of: StepJudged, world: Environment) -> None:
        self.of, self.world = of, world
        self.judged = False
        self.messages: list[Message] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        opened = await self.world.reset(task, seed)
        self.judged, self.messages = task.split == "train", list(opened.messages)
        return opened

    async def step(self, message: Message) -> Step:
        step = await self.world.step(message)
        if not self.judged:
            return step
        vote = await self.of.vote(self.messages, message, step.messages)
        self.messages += [message, *step.messages]
        if vote is None:
            return replace(step, info={**step.info, "unjudged": True})
        return replace(
            step, reward=(step.reward or 0.0) + self.of.weight * vote, info={**step.info, "judge": vote}
        )

    async def close(self) -> None:
        await self.world.close()


def _text(messages: Sequence[Message]) -> str:
    return "\n\n".join(f"{m.get('role')}: {message_text(m)}" for m in messages)
