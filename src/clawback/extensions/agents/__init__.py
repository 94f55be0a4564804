"""Agents: one file each for what knows one agent's settings and events, and its own records of a session."""
