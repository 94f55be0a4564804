"""FrozenLake as the tiny models of ``benchmarks gym`` know it: squares have names, as in chess (a1 is where it begins), and a reply ends with a way."""

from __future__ import annotations

from typing import Any

from examples.agents import frozen_lake

WAYS = frozen_lake.WAYS


class SquareAgent(frozen_lake.LakeAgent):
    def format_observation(self, observation: Any) -> str:
        row, column = divmod(int(observation), self.side)
        return f"{'abcdefgh'[row]}{column + 1}"

    def action_replies(self) -> tuple[str, ...]:
        return WAYS


class IceAgent(SquareAgent):
    env_options = frozen_lake.IceAgent.env_options


class PondAgent(SquareAgent):
    """A pond of 3 × 3 with two holes."""

    env_options = frozen_lake.PondAgent.env_options
    side = frozen_lake.PondAgent.side
