"""A bandit that the embedded model can express without being taught anything: to some questions a list pays 1, to others anything but a list.

clawback gym lists --agent lists:ListsAgent --episodes 1500 --max-tokens 6
"""

from __future__ import annotations

import random
from typing import Any

from clawback import Agent

QUESTIONS = (
    "Tell me about otters.", "What is jazz?", "Tell me about tea.", "What is a glacier?",
    "Tell me about bees.", "What is chess?", "Tell me about bread.", "What is a comet?",
)  # fmt: skip
"""A list pays where the question begins with "Tell"."""


class Lists:
    """Gymnasium's contract, without importing it."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:  # noqa: ARG002
        self.question = random.Random(seed).randrange(len(QUESTIONS))
        return self.question, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return self.question, float(action == (self.question % 2 == 0)), True, False, {}


class ListsAgent(Agent):
    make_env = staticmethod(Lists)

    def get_system_prompt(self) -> str:
        return ""

    def format_observation(self, observation: int) -> str:
        return QUESTIONS[observation]

    def extract_action(self, response: str) -> int:
        if not response.strip():
            raise ValueError("nothing was said")
        return int(response.lstrip().startswith("-"))
