"""Old module names: rooms and modules that moved into ``clawback.extensions`` can be imported under both names.

An old name gives the same module, with a ``DeprecationWarning`` that says the new one. Files that an older version
wrote (a Flower project with ``from clawback.jobs.flower import …``) and programs of users go on working.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType

MOVED = {
    "capture.adapter": "capture.agent_integration",
    "capture.annotation_tools": "extensions.importers.annotation_tools",
    "capture.claude_code": "extensions.agents.claude_code",
    "capture.claude_transcript": "extensions.agents.claude_transcript",
    "capture.codex": "extensions.agents.codex",
    "capture.codex_rollout": "extensions.agents.codex_rollout",
    "capture.conversations": "capture.conversation_threads",
    "capture.corpora": "extensions.teachers.corpora",
    "capture.gemini_chat": "extensions.agents.gemini_chat",
    "capture.gemini_cli": "extensions.agents.gemini_cli",
    "capture.hermes": "extensions.agents.hermes",
    "capture.hooked": "extensions.agents.hooked",
    "capture.importers": "extensions.importers",
    "capture.importers.annotated": "extensions.data_sets.annotated",
    "capture.importers.chatgpt": "extensions.chat_histories.chatgpt",
    "capture.importers.chats": "extensions.chat_histories.chats",
    "capture.importers.columns": "extensions.data_sets.columns",
    "capture.importers.entries": "extensions.data_sets.entries",
    "capture.importers.fields": "extensions.chat_histories.fields",
    "capture.importers.lines": "extensions.data_sets.lines",
    "capture.importers.local_chats": "extensions.chat_histories.local_chats",
    "capture.importers.messages": "extensions.data_sets.messages",
    "capture.importers.open_webui": "extensions.chat_histories.open_webui_chats",
    "capture.importers.pairs": "extensions.data_sets.pair_records",
    "capture.importers.plan": "extensions.importers.import_plan",
    "capture.importers.ranked": "extensions.data_sets.ranked",
    "capture.importers.sessions": "extensions.chat_histories.agent_sessions",
    "capture.importers.sets": "extensions.data_sets.sets",
    "capture.importers.trees": "extensions.chat_histories.trees",
    "capture.importers.verdicts": "extensions.data_sets.verdicts",
    "capture.openclaw": "extensions.agents.openclaw",
    "capture.opencode": "extensions.agents.plugged",
    "capture.peers": "extensions.importers.peers",
    "capture.plugged": "extensions.agents.plugged",
    "capture.proof": "capture.server_proof",
    "capture.rows": "capture.text_rows",
    "capture.settings_file": "extensions.agents.settings_file",
    "capture.status_line": "extensions.agents.status_line",
    "capture.stored_text": "capture.ingest",
    "channels": "extensions.channels",
    "cli.adopt": "training_commands.adopt",
    "cli.answer_view": "terminal.answer_view",
    "cli.baseline": "extensions.teachers.commands",
    "cli.channel": "extensions.channels.commands",
    "cli.cloud_demo": "extensions.demo.cloud_display",
    "cli.common": "terminal",
    "cli.demo": "extensions.demo.commands",
    "cli.encryption": "terminal.encryption",
    "cli.env": "training_commands.env",
    "cli.episode_output": "training_commands.episode_output",
    "cli.federated": "extensions.federated.commands",
    "cli.files": "terminal.encryption",
    "cli.generate": "training_commands.generate",
    "cli.gym": "training_commands.gym",
    "cli.hosted": "extensions.hosted.commands",
    "cli.import_files": "extensions.importers.commands",
    "cli.judge": "training_commands.judge",
    "cli.move": "extensions.moving.commands",
    "cli.people": "extensions.people.commands",
    "cli.progress_bar": "terminal.progress_bar",
    "cli.prompt_draft": "training_commands.prompt_draft",
    "cli.prompts": "training_commands.prompts",
    "cli.publish": "training_commands.publish",
    "cli.raters": "extensions.people.raters_command",
    "cli.report": "training_commands.report",
    "cli.reward": "extensions.reward.commands",
    "cli.runs": "training_commands.runs",
    "cli.sentences": "terminal.sentences",
    "cli.train": "training_commands.train",
    "cli.versions": "training_commands.versions",
    "cluster": "extensions.scale",
    "cluster.drawer": "extensions.scale.model_worker",
    "demo": "extensions.demo",
    "engine.authorship": "sources.targets",
    "engine.budget": "learning.run_budget",
    "engine.conversions": "models.conversions",
    "engine.devices": "devices",
    "engine.embedded": "embedded",
    "engine.episodes": "learning.episode_run",
    "engine.gguf_codes": "extensions.publishers.gguf_codes",
    "engine.gguf_file": "models.gguf_file",
    "engine.gguf_writer": "extensions.publishers.gguf_writer",
    "engine.hub_cache": "models.model_files",
    "engine.identity": "models.identity",
    "engine.local_models": "models.local_models",
    "engine.loose_files": "models.model_files",
    "engine.machines": "runs.run_options",
    "engine.memory": "policy.memory",
    "engine.mlx": "extensions.mlx",
    "engine.model_folder": "models.model_files",
    "engine.options": "trainer.recipe",
    "engine.placement": "policy.torch_policy",
    "engine.reading": "learning.reading",
    "engine.run": "trainer.run",
    "engine.throughput": "policy.throughput",
    "engine.torch": "engine",
    "engine.torch.loop": "trainer",
    "engine.torch.loop.trainer": "trainer.training_loop",
    "engine.torch.loop.value_head": "trainer.torch_learner",
    "engine.torch.models": "models",
    "engine.torch.models.dialogue": "rollouts.token_record",
    "engine.torch.models.generation": "models.loading",
    "engine.torch.models.interpolation": "policy.interpolation",
    "engine.torch.models.policy": "policy.policy",
    "engine.torch.models.proof": "admin.proof",
    "engine.torch.models.template_worker": "templates.template_worker",
    "engine.torch.models.templates": "templates.rendering",
    "engine.torch.models.vision": "templates.vision",
    "engine.torch.sampling": "sampling",
    "engine.torch.sampling.agreement": "policy.sampler",
    "engine.torch.sampling.batcher": "inference.batcher",
    "engine.torch.sampling.conversations": "sampling.conversations",
    "engine.torch.sampling.grammar": "inference.schema_grammar",
    "engine.torch.sampling.grouped": "extensions.people.shared_rows",
    "engine.torch.sampling.shelf": "extensions.people.shelf",
    "engine.torch.scoring": "scoring",
    "engine.torch.scoring.base_judge": "jobs.base_judge",
    "engine.torch.scoring.linear": "models.linear",
    "engine.torch.scoring.lora": "models.linear",
    "engine.torch.scoring.packing": "trainer.examples",
    "engine.torch.sources": "sources",
    "engine.torch.sources.episodes": "learning.episode_examples",
    "engine.torch.sources.examples": "trainer.examples",
    "engine.torch.threads": "sampling.choose",
    "engine.tracking": "jobs.tracking",
    "engine.training": "learning.training",
    "engine.types": "models.types",
    "environments.action_form": "rollouts.action_form",
    "environments.adapters": "extensions.worlds",
    "environments.agent": "extensions.llamagym.agent",
    "environments.agent_learner": "extensions.llamagym.agent_learner",
    "environments.agent_settings": "extensions.llamagym.agent_settings",
    "environments.agent_worlds": "extensions.llamagym.agent_worlds",
    "environments.best_weights": "trainer.best_weights",
    "environments.branches": "rollouts.program_dialogue",
    "environments.browser": "extensions.browser",
    "environments.find": "environments.registry",
    "environments.program_dialogue": "rollouts.program_dialogue",
    "environments.repository": "extensions.repository_tasks",
    "environments.rollouts": "rollouts.concurrent",
    "environments.step_judge": "rollouts.step_judge",
    "environments.terminal": "extensions.terminal_tasks",
    "environments.tools.bfcl": "extensions.worlds.bfcl",
    "environments.tools.formats": "environments.tools.call_formats",
    "environments.tools.gsm8k": "extensions.worlds.gsm8k",
    "environments.tools.mcp": "extensions.tools.mcp_toolbox",
    "environments.tools.python_tool": "extensions.sandbox.python_tool",
    "environments.tools.rewards": "environments.tools.task_rewards",
    "environments.tools.schema": "environments.tools.function_schema",
    "environments.tools.shop": "extensions.tools.shop",
    "environments.tools.tasks_file": "extensions.tools.tasks_file",
    "environments.worlds": "environments.world_helpers",
    "federated": "extensions.federated",
    "feedback.aggregate": "feedback.turn_reward",
    "feedback.agreement": "feedback.calibrate",
    "feedback.examples": "feedback.rated_examples",
    "feedback.judge": "feedback.next_state_judge",
    "feedback.raters": "feedback.rater_statistics",
    "gate.adapters": "gate.adapter_gate",
    "gate.asking": "gate.fresh",
    "gate.prompts": "gate.prompt_gate",
    "harness": "extensions.harness",
    "hosted": "extensions.hosted",
    "hosted.leash": "extensions.vllm.leash",
    "hosted.stand_in": "extensions.trainer_server",
    "hosted.vllm_process": "extensions.vllm.vllm_process",
    "hosted.vllm_sampler": "extensions.vllm.vllm_sampler",
    "hosted.vllm_server": "extensions.vllm.vllm_server",
    "jobs.baseline": "extensions.teachers.teacher_answers",
    "jobs.checks": "jobs.inputs",
    "jobs.drawing_engine": "jobs.seams",
    "jobs.elsewhere": "extensions.hosted.hosted_run",
    "jobs.fair": "extensions.people.fair",
    "jobs.federating": "extensions.federated.federating",
    "jobs.flower": "extensions.federated.flower",
    "jobs.forgetting": "admin.forgetting",
    "jobs.health": "admin.health",
    "jobs.inbox": "admin.rating_inbox",
    "jobs.judging": "jobs.judge_pass",
    "jobs.model_choice": "admin.model_choice",
    "jobs.model_proof": "admin.model_proof",
    "jobs.move_worker": "extensions.moving.move_worker",
    "jobs.moving": "extensions.moving.moving",
    "jobs.news": "jobs.news_answer",
    "jobs.openclaw_rl": "extensions.openclaw_rl.translation",
    "jobs.playing": "episode_jobs.playing",
    "jobs.prompt_drafts": "prompt_jobs.prompt_drafts",
    "jobs.prompt_models": "prompt_jobs.prompt_models",
    "jobs.prompt_search": "prompt_jobs.prompt_search",
    "jobs.prompt_worker": "prompt_jobs.prompt_worker",
    "jobs.prompting": "prompt_jobs.prompt_learning",
    "jobs.remote_commands": "admin.remote_commands",
    "jobs.report": "admin.html_report",
    "jobs.report_figures": "admin.report_figures",
    "jobs.rewarding": "extensions.reward.rewarding",
    "jobs.rule_prompt": "prompt_jobs.rule_prompt",
    "jobs.service": "admin.system_service",
    "jobs.setup": "admin.installation",
    "jobs.training": "jobs.training_job",
    "jobs.upkeep": "admin.upkeep",
    "people": "extensions.people.homes",
    "privacy.encryption": "extensions.crypt.database_encryption",
    "prompts.env": "extensions.rlprompt.refinement_env",
    "prompts.feedback": "extensions.rlprompt.feedback_signals",
    "prompts.guards": "prompts.prompt_guards",
    "prompts.online": "extensions.rlprompt",
    "prompts.refinement": "extensions.rlprompt.refinement_env",
    "prompts.rewards": "extensions.rlprompt.rewards",
    "prompts.rules": "prompts.prompt",
    "prompts.search.population": "extensions.rlprompt.population",
    "prompts.search.templates": "prompts.search.remark_templates",
    "prompts.sections": "prompts.prompt",
    "prompts.types": "prompts.search_types",
    "release.loading": "release.version_registry",
    "release.publishers.base": "release.publishers.publisher",
    "release.publishers.gguf": "extensions.publishers.gguf_adapter",
    "release.publishers.llama_cpp": "extensions.publishers.llama_cpp",
    "release.publishers.lm_studio": "extensions.publishers.lm_studio",
    "release.publishers.merged": "extensions.publishers.merged",
    "release.publishers.merged_gguf": "extensions.publishers.merged_gguf",
    "release.publishers.mlx": "extensions.publishers.mlx",
    "release.publishers.ollama": "extensions.publishers.ollama",
    "release.publishers.vllm": "extensions.publishers.vllm",
    "release.registry": "release.version_registry",
    "rewards.encoder": "extensions.reward.encoder",
    "rewards.features": "features.style_features",
    "rewards.files": "extensions.reward.reward_files",
    "rewards.guards": "rewards.overoptimization",
    "rewards.hidden_tests": "extensions.reward.hidden_tests",
    "rewards.measures": "extensions.reward.measures",
    "rewards.members": "extensions.reward.members",
    "rewards.rated": "extensions.reward.rated",
    "rewards.similarity": "extensions.reward.similarity",
    "rewards.state_features": "features.state_features",
    "rewards.text_statistics": "features.text_statistics",
    "rl.turns": "rl.turn_advantages",
    "rules.judge": "rules.rule_judge",
    "rules.learning": "rules.rule_pass",
    "rules.reminders": "rules.rule_reminders",
    "rules.spoken": "feedback.rule_consent",
    "rules.trial": "rules.rule_test",
    "sandbox": "extensions.sandbox",
    "serve.answers_api": "inference.answers_api",
    "serve.best_answer": "inference.best_answer",
    "serve.chat": "inference.local_responses",
    "serve.cloud_demo": "extensions.demo.cloud_demo",
    "serve.dialects": "dialects",
    "serve.everyone": "extensions.people.everyone",
    "serve.forward": "inference.forward",
    "serve.import_api": "extensions.importers.import_api",
    "serve.local": "inference.local",
    "serve.prompting": "inference.prompting",
    "serve.recorder": "inference.recorder",
    "serve.schema": "serve.openapi_schema",
    "serve.server": "inference.server",
    "serve.shapes": "serve.bodies",
    "serve.streams": "inference.streams",
    "serve.tools": "inference.tools",
    "serve.wire": "inference.wire",
    "settings": "config.settings",
    "store.base": "store.database",
    "store.cipher": "encryption.cipher",
    "store.copies": "salvage.copies",
    "store.forgetting": "store.store",
    "store.keys": "encryption.keys",
    "store.pictures": "store.picture_table",
    "store.prompts": "store.pending",
    "store.raters": "store.invitations",
    "store.rules": "store.rule_tables",
    "store.runs": "store.run_tables",
    "store.salvage": "salvage.damaged_database",
    "store.salvage_pages": "salvage.salvage_pages",
    "store.salvage_rows": "salvage.salvage_rows",
    "store.versions": "store.version_tables",
    "system_prompt": "records",
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


def renamed(module: str, former: Mapping[str, str], name: str) -> object:
    """What a module's attribute of this former name is called now; for its ``__getattr__``. ``former``: former name → present one."""
    if name not in former:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    import warnings

    warnings.warn(f"{module}.{name} is {former[name]} now.", DeprecationWarning, stacklevel=3)
    return getattr(sys.modules[module], former[name])


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
