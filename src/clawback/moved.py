"""Old module names: rooms and modules that moved into ``clawback.extensions`` can be imported under both names.

An old name gives the same module, with a ``DeprecationWarning`` that says the new one. Files that an older version
wrote (a Flower project with ``from clawback.jobs.flower import …``) and programs of users go on working.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

MOVED = {
    "channels": "extensions.channels",
    "cli.channel": "extensions.channels.commands",
    "cli.cloud_demo": "extensions.demo.cloud_display",
    "cli.demo": "extensions.demo.commands",
    "cli.federated": "extensions.federated.commands",
    "cli.hosted": "extensions.hosted.commands",
    "cli.people": "extensions.people.commands",
    "cluster": "extensions.cluster",
    "demo": "extensions.demo",
    "engine.authorship": "learning.authorship",
    "engine.best_weights": "learning.best_weights",
    "engine.budget": "learning.budget",
    "engine.conversions": "models.conversions",
    "engine.devices": "devices",
    "engine.embedded": "embedded",
    "engine.episodes": "learning.episodes",
    "engine.gguf_codes": "models.gguf_codes",
    "engine.gguf_file": "models.gguf_file",
    "engine.gguf_writer": "release.gguf_writer",
    "engine.hub_cache": "models.hub_cache",
    "engine.identity": "models.identity",
    "engine.local_models": "models.local_models",
    "engine.loose_files": "models.loose_files",
    "engine.machines": "learning.machines",
    "engine.memory": "policy.memory",
    "engine.mlx": "extensions.mlx",
    "engine.model_folder": "models.model_folder",
    "engine.options": "learning.options",
    "engine.placement": "policy.placement",
    "engine.reading": "learning.reading",
    "engine.run": "learning.run",
    "engine.throughput": "policy.throughput",
    "engine.torch": "engine",
    "engine.torch.loop": "learning.loop",
    "engine.torch.loop.value_head": "learning.value_head",
    "engine.torch.models": "models",
    "engine.torch.models.dialogue": "environments.dialogue",
    "engine.torch.models.interpolation": "policy.interpolation",
    "engine.torch.models.policy": "policy.policy",
    "engine.torch.models.proof": "jobs.proof",
    "engine.torch.sampling.agreement": "policy.sampler",
    "engine.torch.scoring.base_judge": "jobs.base_judge",
    "engine.torch.sampling": "sampling",
    "engine.torch.sampling.batcher": "serve.batcher",
    "engine.torch.sampling.conversations": "environments.conversations",
    "engine.torch.sampling.grammar": "serve.grammar",
    "engine.torch.sampling.grouped": "extensions.people.shared_rows",
    "engine.torch.sampling.shelf": "extensions.people.shelf",
    "engine.torch.scoring": "scoring",
    "engine.torch.scoring.linear": "models.linear",
    "engine.torch.scoring.packing": "learning.loop.packing",
    "engine.torch.scoring.lora": "models.lora",
    "engine.torch.sources": "learning.sources",
    "engine.torch.sources.examples": "learning.examples",
    "engine.torch.threads": "sampling.threads",
    "engine.tracking": "jobs.tracking",
    "engine.training": "learning.training",
    "engine.types": "models.types",
    "environments.adapters": "extensions.worlds",
    "environments.agent": "extensions.llamagym.agent",
    "environments.agent_learner": "extensions.llamagym.agent_learner",
    "environments.agent_settings": "extensions.llamagym.agent_settings",
    "environments.agent_worlds": "extensions.llamagym.agent_worlds",
    "environments.best_weights": "learning.best_weights",
    "environments.browser": "extensions.browser",
    "environments.repository": "extensions.sandbox.repository",
    "environments.terminal": "extensions.sandbox.terminal",
    "environments.tools.bfcl": "extensions.worlds.bfcl",
    "environments.tools.gsm8k": "extensions.worlds.gsm8k",
    "environments.tools.python_tool": "extensions.sandbox.python_tool",
    "federated": "extensions.federated",
    "harness": "extensions.harness",
    "hosted": "extensions.hosted",
    "jobs.elsewhere": "extensions.hosted.trainer",
    "jobs.fair": "extensions.people.fair",
    "jobs.federating": "extensions.federated.federating",
    "jobs.flower": "extensions.federated.flower",
    "people": "extensions.people.homes",
    "prompts.env": "extensions.rlprompt.env",
    "prompts.feedback": "extensions.rlprompt.feedback",
    "prompts.online": "extensions.rlprompt",
    "prompts.refinement": "extensions.rlprompt.refinement",
    "prompts.rewards": "extensions.rlprompt.rewards",
    "prompts.search.population": "extensions.rlprompt.population",
    "sandbox": "extensions.sandbox",
    "serve.cloud_demo": "extensions.demo.cloud_demo",
    "serve.everyone": "extensions.people.everyone",
}
"""Old name → new name, both below ``clawback``. A room's modules move with it. ``engine.recipe`` is a function now: an alias would replace it."""
_ROOT = "clawback."


def new_name(name: str) -> str:
    """The full name that a module has now; "" for one that did not move."""
    if not name.startswith(_ROOT):
        return ""
    head, tail = name[len(_ROOT) :], ""
    while head:
        if head in MOVED:
            return f"{_ROOT}{MOVED[head]}{tail}"
        head, dot, last = head.rpartition(".")
        tail = f"{dot}{last}{tail}"
    return ""


class _Alias:
    """A finder and loader: an old name is the module of the new name."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        new = new_name(name)
        if not new:
            return None
        from importlib.machinery import ModuleSpec
        from importlib.util import find_spec

        there = find_spec(new)
        if there is None:
            return None
        package = there.submodule_search_locations is not None
        return ModuleSpec(name, self, origin=there.origin, is_package=package)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        import warnings
        from importlib import import_module

        new = new_name(spec.name)
        warnings.warn(f"{spec.name} is {new} now.", DeprecationWarning, stacklevel=2)
        module = import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has written the old name's spec into the module; its loader_state is the module's own.
        spec = module.__spec__
        if spec is not None and new_name(spec.name):
            module.__spec__ = spec.loader_state

    def get_code(self, name: str) -> object:
        """For ``python -m OLD.NAME``."""
        from importlib.util import find_spec

        spec = find_spec(new_name(name))
        get_code = getattr(spec.loader, "get_code", None) if spec else None
        return get_code(new_name(name)) if get_code else None


def install() -> None:
    """Make the old names importable. Called once, when ``clawback`` is imported."""
    sys.meta_path.insert(0, _Alias())
