"""FrozenLake as the tiny models of ``benchmarks gym`` know it: squares have names, as in chess (a1 is where it begins), and a reply ends with a way."""

from __future__ import annotations

from typing import Any

from clawback import Agent

WAYS = ("left", "down", "right", "up")


class SquareAgent(Agent):
    env_options: dict[str, Any] = {"is_slippery": False}
    side = 4

    def get_system_prompt(self) -> str:
        return ""

    def format_observation(self, observation: Any) -> str:
        row, column = divmod(int(observation), self.side)
        return f"{'abcdefgh'[row]}{column + 1}"

    def extract_action(self, response: str) -> int:
        return WAYS.index(response.split()[-1])

    def action_replies(self) -> tuple[str, ...]:
        return WAYS


class IceAgent(SquareAgent):
    env_options = {"is_slippery": True}


class PondAgent(SquareAgent):
    """A pond of 3 × 3 with two holes."""

    env_options = {"is_slippery": False, "desc": ["SFH", "FFF", "HFG"]}
    side = 3
