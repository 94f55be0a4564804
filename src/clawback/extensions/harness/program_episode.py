"""An episode that a program leads: it asks as often as it likes, and when it is over its outcome is the reward."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from socket import socket
from typing import Any

from clawback.environments.core import UNDELIVERED, EnvironmentFailure, Observation, Step, Task
from clawback.extensions.harness.session import HarnessSession, PendingRequest
from clawback.records import JsonObject, Message


@dataclass(frozen=True, slots=True)
class ProgramExit:
    """The end of a program."""

    reward: float
    info: Mapping[str, Any] = field(default_factory=dict)


class ProgramEpisode(ABC):
    """``reset`` starts the program and gives its first request; ``step`` answers it and gives the next one, or the outcome."""

    def __init__(self, turns: int) -> None:
        """``turns``: requests after which the program is ended, and judged as it stands."""
        self.turns = turns
        self.session: HarnessSession | None = None
        self._work: asyncio.Task[ProgramExit] | None = None
        self._question: PendingRequest | None = None
        self._answered = 0

    @abstractmethod
    async def open(self, task: Task) -> socket:
        """Make ready; the socket that the program will connect to."""

    @abstractmethod
    async def run(self, task: Task, session: HarnessSession) -> ProgramExit:
        """The program, to its end. Raises ``EnvironmentFailure`` where it is not the policy that failed."""

    @abstractmethod
    async def stop(self) -> None:
        """End the program early: ``run`` then returns its outcome."""

    @abstractmethod
    async def release(self) -> None:
        """Let go of what ``open`` made. May be called twice."""

    async def reset(self, task: Task, seed: int) -> Observation:  # noqa: ARG002 - the program draws its own luck
        await self.close()
        self._answered = 0
        self.session = HarnessSession()
        self.session.start(await self.open(task))
        self._work = asyncio.create_task(self.run(task, self.session))
        self._question = await self._next()
        if self._question is None:
            self._work.result()  # what it raised says more
            raise EnvironmentFailure("the program ended before it asked the model anything")
        return Observation((), request=self._question.request())

    async def step(self, message: Message) -> Step:
        assert self._question is not None
        assert self._work is not None
        delivered = not self._question.answer.done()
        if delivered:
            self._question.answer.set_result(self._question.reply(message))
        info: JsonObject = {} if delivered else {UNDELIVERED: True}
        self._answered += 1
        self._question = await self._next()
        cut = self._question is not None and self._answered >= self.turns
        if self._question is not None and not cut:
            return Step(request=self._question.request(), info=info)
        if cut:
            await self.stop()
        outcome = await self._work
        info |= {"success": outcome.reward == 1.0, "truncated": cut, **outcome.info}
        return Step((), outcome.reward, True, info)

    async def _next(self) -> PendingRequest | None:
        """What the program asks next; None where it is over."""
        assert self.session is not None
        assert self._work is not None
        asking = asyncio.create_task(self.session.next())
        try:
            await asyncio.wait([asking, self._work], return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() and not self._work.done() else None
        finally:
            asking.cancel()

    async def close(self) -> None:
        session, self.session = self.session, None
        work, self._work = self._work, None
        if work is not None and not work.done():
            await self.stop()
            work.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await work
        if session is not None:
            await session.close()
        await self.release()
