"""Turns come in: from agents' hooks, from files."""
