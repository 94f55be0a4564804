"""A contextual bandit in words: each of eight colours has its number, which pays 1. Guessing returns 0.25, knowing 1.

clawback env train colours --agent colours:ColoursAgent --episodes 1500 --max-tokens 8
"""

from __future__ import annotations

import random
from typing import Any

from clawback import Agent

COLOURS = ("red", "green", "blue", "black", "white", "grey", "pink", "brown")


class Colours:
    """Gymnasium's contract, without importing it."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:  # noqa: ARG002
        self.colour = random.Random(seed).randrange(len(COLOURS))
        return self.colour, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return self.colour, float(action == self.colour * 3 % 4), True, False, {}


class ColoursAgent(Agent):
    make_env = staticmethod(Colours)

    def get_system_prompt(self) -> str:
        return ""

    def format_observation(self, observation: int) -> str:
        return COLOURS[observation]

    def extract_action(self, response: str) -> int:
        return "0123".index(response.split()[-1])
