"""Finds an environment set by its name, or builds one from a Gymnasium id and an agent of yours that puts it into words."""

from __future__ import annotations

from typing import Any

from clawback import installed
from clawback.environments import registry
from clawback.environments.core import EnvironmentSet
from clawback.environments.shots import FewShot
from clawback.environments.worlds import imported, loaded
from clawback.errors import MissingExtra, UsageError


def find(task: str, agent: str | None = None, *, seed: int = 0, shots: str = "") -> EnvironmentSet:
    """Raises ``UsageError`` for a name that nobody provides, ``MissingExtra`` where Gymnasium is needed and not installed.

    ``shots``: how many worked examples each task begins with, or a file of them (``FewShot``).
    """
    found = registry.find(task) if agent is None else _of_agent(task, agent, seed)
    return FewShot(found, shots, seed) if shots else found


def _of_agent(task: str, agent: str, seed: int) -> EnvironmentSet:
    from clawback.environments.agent import Agent
    from clawback.environments.agent_worlds import AgentWorlds

    kind = loaded(agent)
    if not (isinstance(kind, type) and issubclass(kind, Agent)):
        raise UsageError(f"{agent!r} is no subclass of clawback.Agent.")
    make = getattr(kind, "make_env", None)
    if make is None:
        try:
            import gymnasium
        except ImportError as error:
            raise MissingExtra(
                f"Gymnasium is not installed. Run: {installed.add('environments')} (or give the agent a static method make_env)."
            ) from error
        module, _, name = task.rpartition(":")
        if module:  # a package that registers it
            imported(module)
        try:
            spec = gymnasium.spec(name)
        except gymnasium.error.Error as error:
            raise UsageError(f"Gymnasium has no environment {task!r}: {error}") from error
        options = dict(getattr(kind, "env_options", {}))

        def make() -> Any:
            return gymnasium.make(spec, disable_env_checker=True, **options)

    return AgentWorlds(task, kind.speaker(seed), make)
