"""Clawback makes your own model better at what you like, from the feedback you already give."""
