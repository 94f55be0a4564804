"""What a fake platform offers to a test, in the same words for all of them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sent:
    """A message that the bot posted, with the raw request behind it."""

    id: str
    text: str
    raw: dict[str, Any]


class World(ABC):
    OWNER = "1001"
    FRIEND = "1002"
    STRANGER = "1003"
    TOKENS = {"token": "token-of-the-test"}
    KNOWS_WHEN = True
    """Whether the platform says when somebody reacted."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.posted: asyncio.Queue[Sent] = asyncio.Queue()
        self.ready = asyncio.Event()
        self.count = 0
        self.last: Any = None

    def number(self) -> int:
        self.count += 1
        return self.count

    def put(self, message: Sent) -> None:
        self.sent.append(message)
        self.posted.put_nowait(message)

    async def next(self) -> Sent:
        """The next message of the bot's that no one has looked at."""
        return await self.posted.get()

    def look_away(self) -> None:
        while not self.posted.empty():
            self.posted.get_nowait()

    def settings(self) -> str:
        """Lines for the platform's table of config.toml."""
        return ""

    @abstractmethod
    async def says(
        self,
        who: str,
        text: str,
        *,
        group: bool = False,
        mention: bool = False,
        reply: Sent | None = None,
        chat: int = 0,
    ) -> None: ...

    @abstractmethod
    async def reacts(
        self,
        who: str,
        message: Sent,
        sign: int,
        *,
        on: bool = True,
        group: bool = False,
        at: int | None = None,
        chat: int = 0,
    ) -> None:
        """``at``: seconds after the beginning; by default later than all before."""

    @abstractmethod
    async def again(self) -> None:
        """The platform tells of the last event once more."""
