"""Capture of turns: from agents' hooks and plugins, and from our server."""
