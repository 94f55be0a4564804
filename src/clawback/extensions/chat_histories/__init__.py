"""Histories of chat programs and agents: their conversations as trees of messages, and the entries that these give."""
