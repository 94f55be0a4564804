"""Capture of turns: from agents' hooks and from files."""
