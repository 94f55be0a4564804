"""The environment set of a Gymnasium id and an agent of the user's that puts it into words."""

from __future__ import annotations

from typing import Any

from clawback import installed
from clawback.environments.core import EnvironmentSet
from clawback.environments.world_helpers import imported, load_object
from clawback.errors import MissingExtra, UsageError
from clawback.extensions.llamagym.agent import Agent
from clawback.extensions.llamagym.agent_worlds import AgentWorlds


def of_agent(task: str, agent: str, seed: int) -> EnvironmentSet:
    """Raises ``UsageError`` for what is no agent or no world, ``MissingExtra`` without Gymnasium."""
    kind = load_object(agent)
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
