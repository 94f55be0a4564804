"""Finds what can be added to Clawback, by group and name: the parts that come with it, and those of other packages.

A group is an entry-point group. ``BUILT_IN`` says what pyproject.toml registers for Clawback itself (a test holds the two
equal), so that a built-in is found without reading the entry points of every installed package, which takes longer
than a hook or a command may. Only a name that is not built in is looked up among those.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMANDS = "clawback.commands"
"""Commands by their path (``lab.hosted``): a click command."""
ENVIRONMENTS = "clawback.environments"
"""Environment sets by name: a ``registry.Kind``, a set, or what makes one."""
TRAINERS = "clawback.trainers"
"""What trains in place of this machine: a module with ``policy``, ``recipe``, ``present`` and ``train`` (``jobs.seams.Trainer``)."""
SAMPLERS = "clawback.samplers"
"""What draws answers and episodes in place of the run's own process (``jobs.seams.VllmDrawing``, ``jobs.seams.ClusterDrawing``)."""
ENGINES = "clawback.engines"
"""Engines by device: a module with ``load``, as ``engine.load``."""
SERVERS = "clawback.servers"
"""What serves in place of one home's app: a module with ``make`` and ``names``."""
SANDBOXES = "clawback.sandboxes"
"""What runs programs that models write: a module with ``PythonTool``, ``boxed`` and ``findings``."""
WRAPPERS = "clawback.wrappers"
"""Functions that make an environment set of another, or of a class of the user's."""
PROMPTS = "clawback.prompts"
"""Further names of ``clawback.prompts``: a module whose ``__all__`` lists them."""

_WORLDS, _BOX = "clawback.extensions.worlds.kinds", "clawback.extensions.sandbox.kinds"
BUILT_IN: Mapping[str, Mapping[str, str]] = {
    COMMANDS: {
        "people": "clawback.extensions.people.commands:people",
        "demo": "clawback.extensions.demo.commands:demo",
        "connect.channel": "clawback.extensions.channels.commands:channel",
        "connect.mcp": "clawback.extensions.channels.commands:mcp",
        "lab.hosted": "clawback.extensions.hosted.commands:hosted",
        "lab.federated": "clawback.extensions.federated.commands:federated",
    },
    ENVIRONMENTS: {
        "gymnasium": f"{_WORLDS}:GYMNASIUM",
        "textarena": f"{_WORLDS}:TEXTARENA",
        "reasoning-gym": f"{_WORLDS}:REASONING_GYM",
        "openenv": f"{_WORLDS}:OPENENV",
        "trl": f"{_WORLDS}:TRL",
        "skyrl-gym": f"{_WORLDS}:SKYRL_GYM",
        "tools": "clawback.environments.registry:TOOLS",
        "gsm8k": f"{_WORLDS}:GSM8K",
        "bfcl": f"{_WORLDS}:BFCL",
        "terminal": f"{_BOX}:TERMINAL",
        "repository": f"{_BOX}:REPOSITORY",
        "miniwob": "clawback.extensions.browser.kinds:MINIWOB",
    },
    TRAINERS: {"hosted": "clawback.extensions.hosted.trainer"},
    SAMPLERS: {
        "vllm": "clawback.extensions.hosted.drawing",
        "ray": "clawback.extensions.cluster.drawing",
    },
    ENGINES: {"mlx": "clawback.extensions.mlx.policy"},
    SERVERS: {"people": "clawback.extensions.people.everyone"},
    SANDBOXES: {"own": "clawback.extensions.sandbox.services"},
    WRAPPERS: {
        "agent": "clawback.extensions.llamagym.finding:of_agent",
        "harness": "clawback.extensions.harness:wrap",
    },
    PROMPTS: {"rlprompt": "clawback.extensions.rlprompt"},
    "clawback.rewards": {"environment": "clawback.environments.verifying:EnvironmentVerifier"},
}
"""Group → name → ``module:attribute``, or a module."""


def built_in(group: str) -> Mapping[str, str]:
    """What comes with Clawback, in the order in which it is shown."""
    return BUILT_IN.get(group, {})


def others(group: str) -> dict[str, str]:
    """What other packages provide: name → where it is. A name that is built in stays the built-in one."""
    from importlib.metadata import entry_points

    known = built_in(group)
    return {point.name: point.value for point in entry_points(group=group) if point.name not in known}


def names(group: str) -> list[str]:
    """Every name of a group."""
    return sorted({*built_in(group), *others(group)})


def where(group: str, name: str) -> str:
    """``module:attribute`` behind a name; "" where nobody provides it."""
    return built_in(group).get(name) or others(group).get(name, "")


def load(group: str, name: str) -> Any:
    """The object behind a name; imports its module. Raises ``NotFound``, and ``ClawbackError`` where it cannot be loaded."""
    from clawback.errors import NotFound

    value = where(group, name)
    if not value:
        raise NotFound(f"Nothing here provides `{name}` ({group}).")
    return load_value(value)


def load_value(value: str) -> Any:
    """The object that ``module:attribute`` names, or a module."""
    module, _, attribute = value.partition(":")
    found: Any = import_module(module)
    for part in filter(None, attribute.split(".")):
        found = getattr(found, part)
    return found
