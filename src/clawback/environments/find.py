"""Finds an environment set by its name, or builds one from a Gymnasium id and an agent of yours that puts it into words."""

from __future__ import annotations

from clawback import plugins
from clawback.environments import registry
from clawback.environments.core import EnvironmentSet
from clawback.environments.shots import FewShot


def find(task: str, agent: str | None = None, *, seed: int = 0, shots: str = "") -> EnvironmentSet:
    """Raises ``UsageError`` for a name that nobody provides, ``MissingExtra`` where Gymnasium is needed and not installed.

    ``shots``: how many worked examples each task begins with, or a file of them (``FewShot``).
    """
    if agent is None:
        found = registry.find(task)
    else:
        found = plugins.load(plugins.WRAPPERS, "agent")(task, agent, seed)
    return FewShot(found, shots, seed) if shots else found
