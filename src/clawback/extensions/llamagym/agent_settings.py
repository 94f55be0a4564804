"""Translates LlamaGym's two dictionaries of settings into ours. A key for something unsupported is refused, not ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clawback.errors import UsageError
from clawback.models import Sampling

_NO_MATTER = {"pad_token_id", "eos_token_id", "bos_token_id", "num_return_sequences", "use_cache"}
_PPO_NO_MATTER = {
    "adap_kl_ctrl", "target", "horizon", "vf_coef", "cliprange_value", "log_with", "model_name", "exp_name", "task_name", "tracker_project_name",
    "tracker_kwargs", "accelerator_kwargs", "project_kwargs", "optimize_cuda_cache", "optimize_device_cache", "early_stopping", "forward_batch_size",
    "backward_batch_size", "remove_unused_columns", "query_dataset", "reward_model", "use_score_scaling", "use_score_norm", "whiten_rewards", "score_clip",
    "kl_penalty", "target_kl", "compare_steps", "ratio_threshold", "steps", "gradient_accumulation_steps", "world_size",
}  # fmt: skip
"""TRL's keys for parts that are not there any more."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What an agent goes by."""

    sampling: Sampling = Sampling()  # noqa: RUF009 — frozen
    max_tokens: int = 32
    batch: int = 16
    """Turns that are learned from at a time: whole episodes, so it may be a few more."""
    mini_batch: int = 16
    """Turns an optimizer step, about."""
    passes: int = 1
    learning_rate: float | None = None
    gamma: float = 0.99
    lam: float = 0.95
    kl: float | None = None
    clip: float | None = None
    max_grad_norm: float | None = None
    estimator: str = "gae"


def settings_of(
    generate: Mapping[str, Any] | None, ppo: Mapping[str, Any] | None
) -> tuple[AgentSettings, int | None]:
    """The settings, and a seed where one is named. Raises ``UsageError`` for a key that nobody knows."""
    made: dict[str, Any] = {"sampling": Sampling()}
    made |= _generation({key.split("/")[-1]: value for key, value in (generate or {}).items()})
    names = {
        "batch_size": "batch", "mini_batch_size": "mini_batch", "ppo_epochs": "passes", "learning_rate": "learning_rate", "gamma": "gamma",
        "lam": "lam", "init_kl_coef": "kl", "cliprange": "clip", "max_grad_norm": "max_grad_norm", "estimator": "estimator",
    }  # fmt: skip
    seed = None
    for key, value in (ppo or {}).items():
        if key == "seed":
            seed = int(value)
        elif key in names:
            made[names[key]] = value
        elif key not in _PPO_NO_MATTER:
            raise UsageError(
                f"There is no setting {key!r} of an agent's training. Choose from: {', '.join(sorted(names))}, seed."
            )
    made["mini_batch"] = min(made.get("mini_batch", 16), made.get("batch", 16))
    return AgentSettings(**made), seed


def _generation(settings: Mapping[str, Any]) -> dict[str, Any]:
    known = {"max_new_tokens", "max_length", "do_sample", "temperature", "top_p", "top_k", *_NO_MATTER}
    if unknown := sorted(set(settings) - known):
        raise UsageError(
            f"Replies cannot be drawn with {', '.join(unknown)}: what is trained would not be what answers. "
            "Choose from: max_new_tokens, do_sample, temperature, top_p, top_k."
        )
    greedy = settings.get("do_sample") is False
    sampling = Sampling(
        0.0 if greedy else float(settings.get("temperature") or 1.0),
        float(settings.get("top_p") or 1.0),
        int(settings.get("top_k") or 0),
    )
    made: dict[str, Any] = {"sampling": sampling}
    if limit := settings.get("max_new_tokens") or settings.get("max_length"):
        made["max_tokens"] = int(limit)
    return made
