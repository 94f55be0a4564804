"""What a person's ratings and remarks say about answers that nobody rated."""

from clawback.rewards.reward_head import Head, Trust, fit

__all__ = ["Head", "Trust", "fit"]
