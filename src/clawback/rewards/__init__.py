"""Rewards and reward models: predictions, from a person's ratings and remarks, for answers that nobody rated.

Imported when first used: ``composite`` and ``verifiers`` need no NumPy, the others do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clawback.rewards.reward_head import RewardHead, Trust, fit

__all__ = ["HELD_OUT", "RewardHead", "Trust", "fit"]
HELD_OUT = "reward_held_out"
"""The store's key of a trained reward model's figures on prompts that it had not seen."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'clawback.rewards' has no attribute {name!r}")
    from clawback.rewards import reward_head

    return getattr(reward_head, name)
