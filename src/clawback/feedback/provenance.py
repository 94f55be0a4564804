"""The provenance of feedback: whose words a remark is, and which base model wrote the answer.

An opinion and its words are two things. A rating that an MCP client passes on, or that stands in a file, is the owner's opinion. But the words in it were
written by a model, or by whoever wrote the file. Only the owner's own words may go into a live prompt unseen; all others wait for a yes.

Where a person moves to another base model, ratings of the old one's turns still say what the person likes. Their tokens are of another vocabulary, so a
run reads these turns as it reads the answers of any other model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from clawback.records import OWN_MODELS, OWNER, Feedback

if TYPE_CHECKING:
    from clawback.records import Turn
    from clawback.store import Store, TurnStore


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


KEY = "bases"
"""In the store: ``[[moment, base], …]``, oldest first. Empty where there was only one."""


def timeline(store: Store) -> list[tuple[float, str]]:
    """When which base began to answer, oldest first."""
    return [(float(at), str(base)) for at, base in store.get(KEY) or ()]


def known(store: Store) -> set[str]:
    """The bases that this home has had; empty where there was only one."""
    return {base for _, base in timeline(store)}


def switch(store: Store, previous: str, base: str, at: float) -> None:
    """Another base answers from now on."""
    changes = timeline(store) or [(0.0, previous)]
    if changes[-1][1] != base:
        store.set(KEY, [*changes, (at, base)])


def as_seen_now(store: Store) -> Callable[[Turn], Turn]:
    """A function that gives a turn as a run on the present base sees it: an answer of an earlier base is that of another model."""
    changes = timeline(store)

    def as_of_base(turn: Turn) -> Turn:
        if not changes or not (turn.version is not None or _is_own(turn.model)):
            return turn
        base = next((base for at, base in reversed(changes) if at <= turn.created_at), changes[0][1])
        if base == changes[-1][1]:
            return turn
        return replace(turn, model=base, version=None, response_ids=None, response_logprobs=None)

    return as_of_base


def _is_own(model: str) -> bool:
    name = model.lower()
    return name in OWN_MODELS or name.startswith("clawback/")
