"""Whose words a remark is. Only the owner's own may go into a live prompt unseen; all others wait for a yes.

An opinion and its words are two things. A rating that an MCP client passes on, or that stands in a file, is the owner's opinion. But the words in it were
written by a model, or by whoever wrote the file, so they are not taken for something that the owner has said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from clawback.records import OWNER, Feedback

if TYPE_CHECKING:
    from clawback.store import TurnStore

OWNER_CHANNELS = frozenset({"cli", "chat", "web", "demo", "claude-code", "codex", "gemini-cli"})
"""Surfaces on which the owner types: the terminal, the page, and commands (``/rl remark …``) in agents that one person uses. Not among them are files that
were imported, MCP clients, agents, and every name that a client of the API makes up."""
SHARED_CHANNELS = frozenset({"slack", "telegram", "discord", "openclaw"})
"""Surfaces on which many people write, each under a name: ``slack:U012`` is the owner where that is known (``TurnStore.identify``)."""
AGENT_SHELLS = (
    "CLAUDECODE", "GEMINI_CLI", "CODEX_THREAD_ID", "CODEX_TOOL_CALL_ID", "CODEX_SANDBOX", "OPENCLAW_SHELL", "OPENCODE",
    "CURSOR_AGENT", "AI_AGENT",
)  # fmt: skip
"""Variables that agents set in the shells in which they run commands. Codex names its sandbox on macOS alone, its thread
everywhere."""


def of_terminal(environment: Mapping[str, str]) -> str:
    """The source of a command: the owner typed it, or an agent ran it, whose words are its own."""
    return "agent" if any(environment.get(name) for name in AGENT_SHELLS) else "cli"


def in_own_words(opinion: Feedback) -> bool:
    """Whether the owner wrote the text of this feedback, by all that is known of where it came from."""
    channel, named, _ = opinion.source.partition(":")
    return opinion.author == OWNER and channel in (SHARED_CHANNELS if named else OWNER_CHANNELS)


def is_owner(store: TurnStore, source: str) -> bool:
    """Whether what comes from this source is the owner's own word."""
    person = store.person_behind(source)
    return in_own_words(Feedback(0, "preference", source=source, person=person))


def shown(opinion: Feedback) -> str:
    """Whose words they are, for people to read: ``rater:anna``, ``an imported file``, ``the owner``."""
    if in_own_words(opinion):
        return "the owner"
    if opinion.author != OWNER:
        return opinion.author
    named = {"import": "an imported file", "mcp": "an MCP client's model", "agent": "an agent"}
    return named.get(opinion.source, f"`{opinion.source}`, where not only you write")
