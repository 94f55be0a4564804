"""Whose words a remark is. Only the owner's own may go into a live prompt unseen; all others wait for a yes.

An opinion and its words are two things. A rating that an MCP client passes on, or that stands in a file, is the owner's opinion. But the words in it were
written by a model, or by whoever wrote the file, so they are not taken for something that the owner has said.
"""

from __future__ import annotations

from clawback.records import OWNER, Feedback

OWNER_CHANNELS = frozenset(
    {"cli", "chat", "web", "demo", "claude-code", "codex", "gemini-cli", "slack", "telegram", "discord"}
)
"""Surfaces on which the owner types: the terminal, the page, and commands (``/rl note …``) in agents that one person uses. Not on it are files that were
imported, MCP clients, agents, and every name that a client of the API makes up."""


def channel(source: str) -> str:
    """``slack`` of ``slack:U012``."""
    return source.partition(":")[0]


def in_own_words(given: Feedback) -> bool:
    """Whether the owner wrote the text of this feedback, by all that is known of where it came from."""
    return given.author == OWNER and channel(given.source) in OWNER_CHANNELS


def shown(given: Feedback) -> str:
    """Whose words they are, for people to read: ``rater:anna``, ``an imported file``, ``the owner``."""
    if in_own_words(given):
        return "the owner"
    if given.author != OWNER:
        return given.author
    named = {"import": "an imported file", "mcp": "a model, through MCP"}
    return named.get(given.source, f"{given.source} (not a place where only you write)")
