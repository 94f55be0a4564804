"""Prompts while they are used: which one answers, what its answers are worth."""
