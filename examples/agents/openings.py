"""A bandit that the embedded model can play as it ships: with which word should an answer begin? It begins with one of six, each about as often.

    clawback env train openings --agent openings:OpeningsAgent --episodes 1500 --max-tokens 3

To "Tell me about …" it pays 1 to begin with "Sure", to "What is …" with "I". By chance that returns 0.17; the best policy returns 1.
"""

from __future__ import annotations

import random
from typing import Any

from clawback import Agent

WORDS = ("Sure", "I", "Sorry", "No", "Of", "Certainly")
QUESTIONS = (
    "Tell me about otters.", "What is jazz?", "Tell me about tea.", "What is a glacier?",
    "Tell me about bees.", "What is chess?", "Tell me about bread.", "What is a comet?",
)  # fmt: skip


class Openings:
    """Gymnasium's contract, without importing it."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:  # noqa: ARG002
        self.question = random.Random(seed).randrange(len(QUESTIONS))
        return self.question, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return self.question, float(action == self.question % 2), True, False, {}


class OpeningsAgent(Agent):
    make_env = staticmethod(Openings)

    def get_system_prompt(self) -> str:
        return ""

    def format_observation(self, observation: int) -> str:
        return QUESTIONS[observation]

    def extract_action(self, response: str) -> int:
        words = response.split()
        return WORDS.index(words[0].rstrip(".,!"))
