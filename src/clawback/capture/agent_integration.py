"""The interface of an agent integration: install Clawback's hooks, remove them, and parse the agent's events.

A new agent is one file with such a class, registered under the entry point ``clawback.agents``;
docs/agents.md shows a complete example.
"""

from __future__ import annotations

# No `from __future__ import annotations`: named tuples would compile each of theirs, in every hook (capture/events.py).
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from clawback.capture.events import Event
from clawback.capture.ingest import Unusable
from clawback.errors import UsageError
from clawback.paths import Home
from clawback.plugins import AGENTS, BUILT_IN, built_in, load, others, where

if TYPE_CHECKING:
    from clawback.records import JsonObject


class State(NamedTuple):
    """Whether Clawback is in an agent's settings, and what is wrong there ("" when nothing is)."""

    installed: bool
    settings: Path
    problem: str = ""
    other: Path | None = None
    """The program of another home, which its hooks run."""


class AgentIntegration(Protocol):
    """An agent integration. Every path can be given (``settings``) in place of the agent's usual one."""

    name: str
    title: str
    """What people call it."""
    usage: str
    """How its person rates, in a few words."""

    def is_present(self) -> bool:
        """Is the agent on this machine?"""
        ...

    def plan(self, home: Home, settings: Path | None = None) -> Sequence[str]:
        """The changes that ``install`` will make, one line per file, for a person to read first."""
        ...

    def install(self, home: Home, settings: Path | None = None) -> list[Path]:
        """Install our part, keeping everything else in the files; returns the files that changed. Repeating it changes nothing.

        Raises ``ConfigError`` for settings that cannot be parsed, and leaves those alone.
        """
        ...

    def uninstall(self, home: Home, settings: Path | None = None) -> list[Path]:
        """Remove exactly what was installed; returns the files that changed. Files that nobody else touched are then as they were."""
        ...

    def status(self, home: Home, settings: Path | None = None) -> State: ...

    def parse(self, event: Mapping[str, object]) -> Event | None:
        """Translate an agent's event into ours; None for one that is not needed. Raises ``Unusable``."""
        ...

    def reply(self, sentence: str) -> JsonObject:
        """The hook output that makes the agent show the sentence instead of asking a model."""
        ...

    def ask(self, home: Home, event: Event) -> JsonObject | None:
        """Optional hook output after any other event, such as a line that invites the person to rate."""
        ...


def names() -> list[str]:
    """Every agent that can be set up."""
    return [*built_in(AGENTS), *sorted(others(AGENTS))]


def find(name: str) -> AgentIntegration:
    """Raises ``UsageError`` for an agent that nobody provides."""
    if name not in BUILT_IN[AGENTS] and not where(AGENTS, name):
        raise UsageError(f"There is no agent {name!r}; there are: {', '.join(names())}.")
    agent: AgentIntegration = load(AGENTS, name)()
    return agent


def troubles(home: Home) -> list[str]:
    """What is wrong with the agents that were set up, one sentence each."""
    from clawback.errors import ClawbackError

    found = []
    for name in sorted({file.name.rsplit("-", 1)[0] for file in (home.root / "installed").glob("*.json")}):
        try:
            agent = find(name)
            if problem := agent.status(home).problem:
                found.append(f"{agent.title}: {problem}.")
        except (ClawbackError, OSError) as error:
            found.append(str(error))
    return found


def text(event: Mapping[str, object], key: str, limit: int = 16_000_000) -> str:
    """A field as text that can be stored ("" when absent). Raises ``Unusable`` for another type or more than the limit."""
    value = event.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > limit:
        raise Unusable(f"{key} is not text of at most {limit:,} characters")
    # Half a surrogate pair is valid JSON but no text.
    return value.encode("utf-8", "replace").decode("utf-8")
