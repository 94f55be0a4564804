"""Environments: multi-turn tasks that reply to a policy's messages and reward them, and episodes in them."""
