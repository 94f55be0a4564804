"""Prompts as policies: refined, evolved and chosen by the feedback that their answers get."""
