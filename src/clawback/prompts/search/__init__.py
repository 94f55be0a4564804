"""Searching for a better prompt: who proposes (a model, templates, generations, GEPA), how it is raced, what it costs, how a search that was stopped goes on."""
