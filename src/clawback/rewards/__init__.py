"""Reward models: what a person's ratings say about answers that nobody rated."""

from clawback.rewards.head import Head, Trust, fit

__all__ = ["Head", "Trust", "fit"]
