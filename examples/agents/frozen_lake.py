"""FrozenLake without slipping, in words: from the top left to the bottom right, around the holes.

    clawback gym FrozenLake-v1 --agent frozen_lake:LakeAgent --episodes 4000 --max-tokens 8

The best policy returns 1. Random steps return about 0.015 on Gymnasium's map of 4 × 4, and 0.07 on the small map of ``PondAgent``.
"""

from __future__ import annotations

import re
from typing import Any

from clawback import Agent


class LakeAgent(Agent):
    env_options = {"is_slippery": False}
    side = 4

    def get_system_prompt(self) -> str:
        return "Cross the lake. Action: 0 left, 1 down, 2 right, 3 up."

    def format_observation(self, observation: Any) -> str:
        return f"Row {int(observation) // self.side}, column {int(observation) % self.side}."

    def extract_action(self, response: str) -> int:
        found = re.search(r"Action: ([0-3])", response)
        if found is None:
            raise ValueError("no action in it")
        return int(found.group(1))


class PondAgent(LakeAgent):
    """A pond of 3 × 3 with two holes."""

    env_options = {"is_slippery": False, "desc": ["SFH", "FFF", "HFG"]}
    side = 3
