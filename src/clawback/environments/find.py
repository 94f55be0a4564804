"""An environment set by its name: an installed one, a Gymnasium id with an agent of yours, or an object in a file of yours."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from clawback.environments.core import EnvironmentSet
from clawback.errors import ClawbackError, MissingExtra, UsageError

GROUP = "clawback.environments"


def names() -> list[str]:
    """Every installed environment set."""
    return sorted(point.name for point in entry_points(group=GROUP))


def find(task: str, agent: str | None = None, *, seed: int = 0) -> EnvironmentSet:
    """Raises ``UsageError`` for a name that nobody provides, ``MissingExtra`` where Gymnasium is needed and not installed."""
    if agent is not None:
        return _of_agent(task, agent, seed)
    for point in entry_points(group=GROUP):
        if point.name == task:
            return _made(point.load(), task)
    if ":" in task:
        return _made(load(task), task)
    known = f"Choose one of: {', '.join(names())}." if names() else "None is installed."
    raise UsageError(
        f"There is no environment {task!r}. {known} A Gymnasium id needs --agent module:Class, which puts it into words."
    )


def load(where: str) -> Any:
    """The object that ``module:name`` names; modules of the current folder count. Raises ``UsageError``."""
    module, _, name = where.partition(":")
    if not module or not name:
        raise UsageError(f"Write {where!r} as module:Class.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"There is no module {error.name!r} here or installed, so {where!r} cannot be loaded."
        ) from error
    except AttributeError as error:
        raise UsageError(f"The module {module!r} has no {name!r}.") from error
    except ClawbackError:
        raise
    except Exception as error:
        raise UsageError(f"{module!r} cannot be imported: {type(error).__name__}: {error}.") from error


def _made(found: Any, name: str) -> EnvironmentSet:
    made = found() if callable(found) and not isinstance(found, EnvironmentSet) else found
    if isinstance(made, type) or not isinstance(made, EnvironmentSet):
        raise UsageError(f"{name!r} is no environment set: it needs a name, tasks(split) and make().")
    return made


def _of_agent(task: str, agent: str, seed: int) -> EnvironmentSet:
    from clawback.environments.agent import Agent
    from clawback.environments.agent_worlds import AgentWorlds

    kind = load(agent)
    if not (isinstance(kind, type) and issubclass(kind, Agent)):
        raise UsageError(f"{agent!r} is no subclass of clawback.Agent.")
    make = getattr(kind, "make_env", None)
    if make is None:
        try:
            import gymnasium
        except ImportError as error:
            raise MissingExtra(
                "Gymnasium is not installed. Run: pip install 'clawback[gym]' (or give the agent a static method make_env)."
            ) from error
        try:
            spec = gymnasium.spec(task)
        except gymnasium.error.Error as error:
            raise UsageError(f"Gymnasium has no environment {task!r}: {error}") from error
        options = dict(getattr(kind, "env_options", {}))

        def make() -> Any:
            return gymnasium.make(spec, disable_env_checker=True, **options)

    return AgentWorlds(task, kind.speaker(seed), make)
