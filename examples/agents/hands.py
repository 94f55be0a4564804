"""Blackjack by the sum of the hand alone: "hard 16", "soft 18"; "stand" or "hit" is the last word of a reply.

    clawback env train Blackjack-v1 --agent hands:HandsAgent --episodes 15000 --batch 256 --max-tokens 4

Basic strategy, which looks at the dealer's card too, returns -0.045; the best by the sum alone about -0.06, always standing -0.18, tossing coins -0.40.
"""

from __future__ import annotations

from typing import Any

from clawback import Agent


class HandsAgent(Agent):
    env_options = {"natural": False, "sab": False}

    def get_system_prompt(self) -> str:
        return ""

    def format_observation(self, observation: Any) -> str:
        total, _, ace = observation
        return f"{'soft' if ace else 'hard'} {int(total)}"

    def extract_action(self, response: str) -> int:
        return ("stand", "hit").index(response.split()[-1])

    def action_replies(self) -> tuple[str, ...]:
        return ("stand", "hit")
