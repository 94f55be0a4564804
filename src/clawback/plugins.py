"""What is imported when it is asked for: the parts behind a group and a name, and the faces of rooms.

A group is an entry-point group. ``BUILT_IN`` says what pyproject.toml registers for Clawback itself (a test holds the two
equal), so that a built-in is found without reading the entry points of every installed package, which takes longer
than a hook or a command may. Only a name that is not built in is looked up among those.

A face is the names that a room offers to others. Importing it is cheap, whatever its names need; the rest of the room is private (import-linter:
"protected").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

ALGORITHMS = "clawback.algorithms"
"""Training algorithms by name: a class with ``advantages`` and ``loss`` (``rl.algorithms.Algorithm``)."""
AGENTS = "clawback.agents"
"""Agents by name: a class with ``install``, ``parse`` and the rest of ``capture.agent_integration.Agent``."""
TRANSCRIPTS = "clawback.transcripts"
"""Readers of agents' own records of a session, by agent: a function of lines that returns ``capture.exchanges.Exchange``."""
HOOKS = "clawback.hooks"
"""What ``clawback-hook NAME`` prints where NAME is no agent: a function of the home and the event's bytes that returns text."""
PUBLISHERS = "clawback.publishers"
"""Publishers by name: a class that takes a ``Target`` (``release.publishers.Publisher``)."""
REWARDS = "clawback.rewards"
"""Verifiers by name: a class that scores a response (``rewards.verifiers.Verifier``)."""
GRADERS = "clawback.graders"
"""Reward models: a module with ``load``, ``grader`` and ``learned_from`` (``rewards.reward_model.RewardModels``)."""
COMMANDS = "clawback.commands"
"""Commands by their path (``lab.hosted``): a click command."""
STATUS = "clawback.status"
"""Lines of ``clawback status``: a function of the home that returns text, "" for none."""
ENVIRONMENTS = "clawback.environments"
"""Environment sets by name: a ``registry.Kind``, a set, or what makes one."""
TRAINERS = "clawback.trainers"
"""What trains in place of this machine: a module with ``policy``, ``recipe``, ``present`` and ``train`` (``jobs.seams.Trainer``);
``processes`` shares the gradient of a run here out: a module with ``group`` and ``workers_of_a_node``."""
SAMPLERS = "clawback.samplers"
"""What draws answers and episodes in place of the run's own process (``jobs.seams.VllmDrawing``, ``jobs.seams.ClusterDrawing``)."""
ENGINES = "clawback.engines"
"""Engines by device: a module with ``load``, as ``engine.load``."""
IMPORTERS = "clawback.importers"
"""Reads and writes files of turns: a module with ``scored_lines`` and ``export_file``."""
ROUTES = "clawback.routes"
"""Routes under ``/api``: a function of the ``inference.server.Server`` that returns Starlette routes; for the owner alone."""
SERVERS = "clawback.servers"
"""What serves in place of one home's app: a module with ``make`` and ``names``."""
SANDBOXES = "clawback.sandboxes"
"""What runs programs that models write: a module with ``PythonTool``, ``boxed`` and ``findings``."""
WRAPPERS = "clawback.wrappers"
"""Functions that make an environment set of another, or of a class of the user's."""
PROMPTS = "clawback.prompts"
"""Further names of ``clawback.prompts``: a module whose ``__all__`` lists them."""
NAMES = "clawback.names"
"""Further names of ``clawback`` itself."""

_EXTENSIONS = "clawback.extensions."
_ALGORITHMS, _PUBLISHERS = "clawback.rl.algorithms", "clawback.extensions.publishers"
_AGENTS = "clawback.extensions.agents"
_WORLDS = "clawback.extensions.worlds"
BUILT_IN: Mapping[str, Mapping[str, str]] = {
    ALGORITHMS: {
        "combined": f"{_ALGORITHMS}.combined:Combined",
        "dpo": f"{_ALGORITHMS}.dpo:Dpo",
        "grpo": f"{_ALGORITHMS}.grpo:Grpo",
        "gspo": f"{_ALGORITHMS}.gspo:Gspo",
        "kto": f"{_ALGORITHMS}.kto:Kto",
        "mis-po": f"{_ALGORITHMS}.mis_po:MisPo",
        "opd": f"{_ALGORITHMS}.opd:Opd",
        "ppo": f"{_ALGORITHMS}.ppo:Ppo",
        "reinforce": f"{_ALGORITHMS}.reinforce:Reinforce",
        "rloo": f"{_ALGORITHMS}.rloo:Rloo",
        "sac": f"{_ALGORITHMS}.sac:Sac",
        "trpo": f"{_ALGORITHMS}.trpo:Trpo",
    },
    PUBLISHERS: {
        "merged": f"{_PUBLISHERS}.merged:Merged",
        "gguf": f"{_PUBLISHERS}.merged_gguf:Gguf",
        "vllm": f"{_PUBLISHERS}.vllm:Vllm",
        "ollama": f"{_PUBLISHERS}.ollama:Ollama",
        "llama-cpp": f"{_PUBLISHERS}.llama_cpp:LlamaCpp",
        "lm-studio": f"{_PUBLISHERS}.lm_studio:LmStudio",
        "mlx": f"{_PUBLISHERS}.mlx:Mlx",
    },
    AGENTS: {
        "claude-code": f"{_AGENTS}.claude_code:ClaudeCode",
        "codex": f"{_AGENTS}.codex:Codex",
        "openclaw": f"{_AGENTS}.openclaw:OpenClaw",
        "gemini-cli": f"{_AGENTS}.gemini_cli:GeminiCli",
        "opencode": f"{_AGENTS}.plugged:OpenCode",
        "hermes": f"{_AGENTS}.hermes:Hermes",
        "open-webui": f"{_AGENTS}.open_webui:OpenWebUI",
    },
    TRANSCRIPTS: {
        "claude-code": f"{_AGENTS}.claude_transcript:read",
        "codex": f"{_AGENTS}.codex_rollout:read",
        "gemini-cli": f"{_AGENTS}.gemini_chat:read",
    },
    HOOKS: {"status-line": f"{_AGENTS}.status_line:text"},
    COMMANDS: {
        "import": "clawback.extensions.importers.commands:import_",
        "export": "clawback.extensions.importers.export_command:export",
        "move": "clawback.extensions.moving.commands:move",
        "people": "clawback.extensions.people.commands:people",
        "raters": "clawback.extensions.people.raters_command:raters",
        "demo": "clawback.extensions.demo.commands:demo",
        "config.import": "clawback.extensions.openclaw_rl.commands:import_",
        "data.encryption": "clawback.extensions.crypt.commands:encryption",
        "data.salvage": "clawback.extensions.salvage.commands:salvage",
        "model.make": "clawback.extensions.demo.commands:make",
        "prompts.corpus": "clawback.extensions.teachers.commands:corpus",
        "connect.channel": "clawback.extensions.channels.commands:channel",
        "connect.mcp": "clawback.extensions.channels.commands:mcp",
        "lab.reward": "clawback.extensions.reward.commands:reward",
        "lab.baseline": "clawback.extensions.teachers.commands:baseline",
        "lab.hosted": "clawback.extensions.hosted.commands:hosted",
        "lab.hosted.serve": "clawback.extensions.trainer_server.commands:serve",
        "lab.hosted.draw": "clawback.extensions.vllm.commands:draw",
        "lab.federated": "clawback.extensions.federated.commands:federated",
    },
    STATUS: {"move": "clawback.extensions.moving.commands:status"},
    ENVIRONMENTS: {
        "gymnasium": f"{_WORLDS}:GYMNASIUM",
        "textarena": f"{_WORLDS}:TEXTARENA",
        "reasoning-gym": f"{_WORLDS}:REASONING_GYM",
        "openenv": f"{_WORLDS}:OPENENV",
        "trl": f"{_WORLDS}:TRL",
        "skyrl-gym": f"{_WORLDS}:SKYRL_GYM",
        "tools": "clawback.extensions.tools:TOOLS",
        "gsm8k": f"{_WORLDS}:GSM8K",
        "bfcl": f"{_WORLDS}:BFCL",
        "terminal": "clawback.extensions.terminal_tasks:TERMINAL",
        "repository": "clawback.extensions.repository_tasks:REPOSITORY",
        "miniwob": "clawback.extensions.browser:MINIWOB",
    },
    TRAINERS: {
        "hosted": "clawback.extensions.hosted.hosted_run",
        "processes": "clawback.extensions.scale.process_group",
    },
    SAMPLERS: {
        "vllm": "clawback.extensions.vllm.vllm_drawing",
        "ray": "clawback.extensions.scale.ray_drawing",
    },
    ENGINES: {"mlx": "clawback.extensions.mlx.mlx_policy"},
    IMPORTERS: {"files": "clawback.extensions.importers"},
    ROUTES: {"imports": "clawback.extensions.importers.import_api:routes"},
    SERVERS: {"people": "clawback.extensions.people.everyone"},
    SANDBOXES: {"own": "clawback.extensions.sandbox.services"},
    WRAPPERS: {
        "agent": "clawback.extensions.llamagym.finding:of_agent",
        "harness": "clawback.extensions.harness:wrap",
    },
    PROMPTS: {"rlprompt": "clawback.extensions.rlprompt"},
    GRADERS: {"reward-model": "clawback.extensions.reward.run_grader"},
    REWARDS: {
        "exit-code": "clawback.extensions.reward.answer_checks:ExitCode",
        "json-schema": "clawback.extensions.reward.answer_checks:JsonSchema",
        "python-tests": "clawback.extensions.reward.answer_checks:PythonTests",
        "regex": "clawback.extensions.reward.answer_checks:Regex",
        "environment": "clawback.environments.verifying:EnvironmentVerifier",
    },
    NAMES: {
        "Agent": "clawback.extensions.llamagym.agent:Agent",
        "rollout": "clawback.extensions.harness:rollout",
    },
}
"""Group → name → ``module:attribute``, or a module."""
BUILDS_ON: Mapping[str, tuple[str, ...]] = {
    "browser": ("sandbox",),
    "chat_histories": ("data_sets",),
    "harness": ("sandbox", "terminal_tasks"),
    "importers": ("chat_histories", "data_sets"),
    "repository_tasks": ("sandbox", "terminal_tasks"),
    "terminal_tasks": ("sandbox",),
    "trainer_server": ("hosted",),
    "vllm": ("hosted",),
}
"""Extension → all those that it imports: without one of them it provides nothing. The others know nothing of each other (import-linter)."""


def built_in(group: str) -> Mapping[str, str]:
    """What comes with Clawback, in the order in which it is shown. An extension whose folder is gone provides nothing."""
    entries = BUILT_IN.get(group, {})
    return {name: value for name, value in entries.items() if _is_present(value)}


def _is_present(value: str) -> bool:
    """False for an object of an extension that was taken away, or that builds on such a one."""
    return not _missing(_extension(value))


def _extension(value: str) -> str:
    """The extension that an object belongs to; "" for one of the core or of another package."""
    if not value.startswith(_EXTENSIONS):
        return ""
    return value.removeprefix(_EXTENSIONS).partition(":")[0].partition(".")[0]


def _missing(extension: str) -> str:
    """The first of an extension and those that it builds on whose folder is gone; "" where all are there."""
    parts = (extension, *BUILDS_ON.get(extension, ())) if extension else ()
    return next((part for part in parts if not _has_extension(part)), "")


@cache
def _has_extension(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(_EXTENSIONS + name) is not None


def others(group: str) -> dict[str, str]:
    """What other packages provide: name → where it is. A name that is built in stays the built-in one."""
    from importlib.metadata import entry_points

    known, points = built_in(group), entry_points(group=group)
    return {one.name: one.value for one in points if one.name not in known and _is_present(one.value)}


def names(group: str) -> list[str]:
    """Every name of a group."""
    return sorted({*built_in(group), *others(group)})


def where(group: str, name: str) -> str:
    """``module:attribute`` behind a name; "" where nobody provides it."""
    return built_in(group).get(name) or others(group).get(name, "")


def load(group: str, name: str) -> Any:
    """The object behind a name; imports its module. Raises ``NotFound``, and ``ClawbackError`` where it cannot be loaded."""
    require(group, name, f"`{name}`")
    return load_value(where(group, name))


def require(group: str, name: str, user: str) -> None:
    """Raises ``NotFound`` where nobody provides the part. Imports nothing. ``user``: what needs the part, as the message names it."""
    if where(group, name):
        return
    from clawback.errors import NotFound

    if extension := _missing(_extension(BUILT_IN.get(group, {}).get(name, ""))):
        raise NotFound(
            f"{user} needs the extension `{extension}`, which this installation is without: "
            "install Clawback with all of its extensions, or leave that out."
        )
    raise NotFound(f"{user} needs a part that no installed package provides: `{name}` ({group}).")


def load_value(value: str) -> Any:
    """The object that ``module:attribute`` names, or a module."""
    module, _, attribute = value.partition(":")
    item: Any = import_module(module)
    for part in filter(None, attribute.split(".")):
        item = getattr(item, part)
    return item


def face(room: str, modules: Mapping[str, str]) -> tuple[list[str], Callable[[str], Any]]:
    """``__all__`` and ``__getattr__`` of a room.

    Args:
        modules: module within the room → the names that it adds to the face, with blanks between. A module's own name adds the module.
    """
    where = {name: module for module, names in modules.items() for name in names.split()}

    def offered(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        module = import_module(f"{room}.{where[name]}")
        return module if where[name].rpartition(".")[2] == name else getattr(module, name)

    return sorted(where), offered
