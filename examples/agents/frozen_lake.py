"""FrozenLake in words: from the top left square to the bottom right one, around the holes.

    clawback env train FrozenLake-v1 --agent frozen_lake:LakeAgent --episodes 4000 --max-tokens 8
    clawback env train FrozenLake-v1 --agent frozen_lake:IceAgent --episodes 8000 --max-tokens 8     # where a step slips aside two times in three

Squares have names, as in chess: a1 is where it begins, d4 is where it ends. The best policy returns 1 (on slippery ice 0.73 within Gymnasium's hundred steps), random steps 0.015.
"""

from __future__ import annotations

from typing import Any

from clawback import Agent

WAYS = ("left", "down", "right", "up")


class LakeAgent(Agent):
    env_options = {"is_slippery": False}
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


class IceAgent(LakeAgent):
    env_options = {"is_slippery": True}


class PondAgent(LakeAgent):
    """A pond of 3 × 3 with two holes."""

    env_options = {"is_slippery": False, "desc": ["SFH", "FFF", "HFG"]}
    side = 3
