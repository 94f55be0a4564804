"""Small worlds for the tests: quick ones, slow ones, and such as break."""

from __future__ import annotations

import asyncio

from clawback.environments.core import EnvironmentFailure, Observation, Step, Task


class Rows:
    """``turns`` replies long; a reply pays what ``pay`` makes of it."""

    def __init__(self, owner):
        self.owner, self.row = owner, 0

    async def reset(self, task, seed):
        self.task, self.seed = task, seed
        self.owner.resets.append((task.id, seed))
        if self.owner.breaks(self, 0):
            raise EnvironmentFailure("the server is gone")
        return Observation(
            ({"role": "system", "content": "Play."}, {"role": "user", "content": f"Begin {seed % 100}"})
        )

    async def step(self, message):
        self.row += 1
        if self.owner.slow:
            await asyncio.sleep(0.001 * (self.seed % 3))
        if self.owner.breaks(self, self.row):
            raise ConnectionError("reset by peer")
        said = message["content"]
        info = {"unparsable": True} if self.owner.unread(said) else {}
        turns = self.owner.turns if isinstance(self.owner.turns, int) else self.owner.turns(self.seed)
        done = self.row >= turns
        return Step(
            () if done else ({"role": "user", "content": f"Row {self.row}"},),
            self.owner.pay(said, self),
            done,
            info,
        )

    async def close(self):
        self.owner.closed += 1


class Worlds:
    name = "rows"

    def __init__(
        self, turns=3, pay=lambda said, world: float(len(said) % 3), breaks=lambda w, row: False, unread=lambda said: False,
        slow=False, tasks=4,
    ):  # fmt: skip
        self.turns, self.pay, self.breaks, self.unread, self.slow = turns, pay, breaks, unread, slow
        self.resets, self.closed, self.count = [], 0, tasks

    def tasks(self, split):
        return [Task(f"{split}-{i}", {}, split) for i in range(self.count)]

    def make(self):
        return Rows(self)
