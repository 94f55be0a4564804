"""The fields of a PEFT ``LoraConfig``: each is read as PEFT reads it, or refused by its name.

Patterns and regular expressions are resolved here, into whole names, one rank and one scale, so that every other part
of Clawback (sampling, servers of many adapters, publishers) sees a plain LoRA. Which modules have a LoRA is read from
the tensors: a regular expression of somebody else's file is used for ranks and scales alone, and has a time limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn.functional import pad

from clawback.errors import ModelError

if TYPE_CHECKING:
    from clawback.records import JsonObject

CONFIG = "adapter_config.json"
MOST_SCALE = 1_000
"""Of ``alpha / rank``; no training uses a hundredth of it."""
MOST_RANK = 1024
PATTERN_SECONDS = 1.0
"""For matching one name with one regular expression."""

_RESOLVED = frozenset({
    "r", "lora_alpha", "use_rslora", "fan_in_fan_out", "target_modules", "target_parameters",
    "exclude_modules", "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern",
})  # fmt: skip
"""Fields that decide which modules have a LoRA, of which rank and scale."""
_INERT = frozenset({
    "peft_type", "peft_version", "task_type", "auto_mapping", "base_model_name_or_path", "revision",
    "inference_mode", "lora_dropout", "megatron_core", "qalora_group_size", "runtime_config",
    "loftq_config", "eva_config", "corda_config", "lora_ga_config",
})  # fmt: skip
"""Fields without an effect on what a trained adapter answers: descriptions, training alone, settings of fields that are off."""
_ALLOWED: dict[str, tuple[Any, ...]] = {
    "bias": ("none",),
    # Other ways of initialisation change the base's own weights (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA) or the formula (MiCA).
    "init_lora_weights": (True, False, "gaussian", "orthogonal", "eva"),
}
"""Values of fields that have more than one."""
_PLAIN_LORA = "Save it as a plain LoRA with the program that made it, or merge it into its base and train on that model."


def unsupported(folder: Path, field: str, value: object) -> ModelError:
    return ModelError(
        f"The adapter {folder} sets {field} ({str(value)[:60]}), which is not supported. {_PLAIN_LORA}"
    )


def check(folder: Path, config: Mapping[str, object], names: Iterable[str]) -> None:
    """Refuse every field that is set and not understood, and every tensor (``names``) that is no part of a LoRA.

    Raises ``ModelError`` with the field's name and value.
    """
    odd = [name for name in sorted(names) if not re.search(r"\.lora_[AB]\.weight$", name)]
    for field, value in config.items():
        if field in _RESOLVED or field in _INERT:
            continue
        if field == "bias" and not any(name.endswith(".bias") for name in odd):
            continue  # there is none to read: "none", or layers without a bias
        if value not in _ALLOWED[field] if field in _ALLOWED else value:
            raise unsupported(folder, field, value)
    for name in odd:
        if "lora_embedding" in name or name.endswith(".base_layer.weight"):
            raise unsupported(folder, "target_modules", f"…{name[-50:]}")
        raise ModelError(f"The adapter {folder} holds {name}, which is no part of a LoRA. It was not loaded.")
    _check_types(folder, config)


def _check_types(folder: Path, config: Mapping[str, object]) -> None:
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or isinstance(rank, bool) or not 0 < rank <= MOST_RANK:
        raise ModelError(f"The adapter {folder} has no usable rank (r) in {CONFIG}.")
    root = math.sqrt(rank) if config.get("use_rslora") else 1.0
    if not isinstance(alpha, (int, float)) or not 0 < alpha * root <= MOST_SCALE * rank:  # NaN neither
        raise ModelError(f"The adapter {folder} has no usable lora_alpha in {CONFIG}.")
    for field in ("target_parameters", "target_modules"):
        value = config.get(field) or []
        text = field == "target_modules" and isinstance(value, str)
        if not text and not (isinstance(value, list) and all(isinstance(name, str) for name in value)):
            raise ModelError(f"The adapter {folder} has no list of names as {field} in {CONFIG}.")
    for field in ("rank_pattern", "alpha_pattern"):
        value = config.get(field) or {}
        numbers = isinstance(value, dict) and all(
            isinstance(n, (int, float)) and not isinstance(n, bool) and 0 < n < MOST_RANK * MOST_SCALE
            for n in value.values()
        )
        if not numbers:
            raise ModelError(f"The adapter {folder} has no numbers by name as {field} in {CONFIG}.")


def plain(
    folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> tuple[JsonObject, dict[str, Tensor]]:
    """The same adapter with one rank, one scale and a list of modules.

    Where it has fused experts (``target_parameters``), ranks and scales of single parameters stay in ``rank_pattern``
    and ``alpha_pattern``, by whole names: the tensors of several parameters of one module do not say which is whose.
    """
    config, made = dict(config), dict(tensors)
    narrowed = ("exclude_modules", "layers_to_transform", "layers_pattern")
    if isinstance(config.get("target_modules"), str) or any(
        config.get(field) is not None for field in narrowed
    ):
        pattern, modules = config.get("target_modules"), _modules(config, made)
        if isinstance(pattern, str) and pattern != "all-linear":
            for module in modules:
                if not _matches(folder, "target_modules", pattern, module):
                    raise unsupported(folder, "target_modules", f"{pattern}, which is not {module}")
        config["target_modules"] = modules
    patterns = {field: config.get(field) or {} for field in ("rank_pattern", "alpha_pattern")}
    if config.get("target_parameters"):
        names = [*_modules(config, made), *_parameters(config, made)]
        for field, pattern in patterns.items():
            found = {name: value for name in names if (value := _matching(folder, field, pattern, name))}
            config[field] = {re.escape(name): value for name, value in found.items()}
    else:
        if any(patterns.values()):
            config["r"], config["lora_alpha"], made = _uniform(folder, config, patterns, made)
        elif config.get("use_rslora"):
            config["lora_alpha"] *= math.sqrt(config["r"])
        config["use_rslora"] = False
        config.pop("rank_pattern", None)
        config.pop("alpha_pattern", None)
    for field in narrowed:
        config.pop(field, None)
    return config, made


def _uniform(
    folder: Path,
    config: Mapping[str, Any],
    patterns: Mapping[str, Mapping[str, Any]],
    tensors: dict[str, Tensor],
) -> tuple[int, float, dict[str, Tensor]]:
    """(rank, alpha, tensors) of which every module has the same rank and scale: smaller ones are filled up with zeros, scales go into B."""
    modules = _modules(config, tensors)
    ranks = {
        name: int(_matching(folder, "rank_pattern", patterns["rank_pattern"], name) or config["r"])
        for name in modules
    }
    rank = max(ranks.values(), default=int(config["r"]))
    if rank > MOST_RANK:
        raise ModelError(f"The adapter {folder} has no usable rank_pattern in {CONFIG}.")
    made = {}
    for key, tensor in tensors.items():
        module, is_b = module_of(key), ".lora_B." in key
        own = ranks[module]
        if tensor.ndim != 2 or tensor.shape[1 if is_b else 0] != own:
            raise ModelError(f"The adapter {folder} is damaged: {key} does not have the rank {own}.")
        if not is_b:
            made[key] = pad(tensor, (0, 0, 0, rank - own))
            continue
        alpha = _matching(folder, "alpha_pattern", patterns["alpha_pattern"], module) or config["lora_alpha"]
        scale = alpha / (math.sqrt(own) if config.get("use_rslora") else own)
        if not 0 < scale <= MOST_SCALE:
            raise ModelError(f"The adapter {folder} has no usable alpha_pattern in {CONFIG}.")
        made[key] = pad(tensor.float() * scale, (0, rank - own))
    return rank, float(rank), made


def module_of(key: str) -> str:
    """``base_model.model.model.layers.0.mlp.up_proj.lora_A.weight`` → ``model.layers.0.mlp.up_proj``."""
    path = re.split(r"\.lora_[AB]\.", key)[0].removeprefix("base_model.model.")
    return ".".join(part for part in path.split(".") if part != "base_layer")


def _modules(config: Mapping[str, object], tensors: Mapping[str, Tensor]) -> list[str]:
    """Modules with a LoRA, fused experts left out."""
    holders = _holders(config)
    return sorted({m for key in tensors if not _held(m := module_of(key), holders)})


def _parameters(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> list[str]:
    """Whole names of the parameters of fused experts that may have a LoRA."""
    short = {name.rpartition(".")[2] for name in config.get("target_parameters") or []}
    modules = {m for key in tensors if _held(m := module_of(key), _holders(config))}
    return sorted(f"{module}.{name}" for module in modules for name in short)


def _holders(config: Mapping[str, Any]) -> set[str]:
    """Last parts of the names of modules whose parameters have a LoRA."""
    parameters = config.get("target_parameters") or []
    return {name.rpartition(".")[0] or "experts" for name in parameters}


def _held(module: str, holders: set[str]) -> bool:
    return any(module == holder or module.endswith(f".{holder}") for holder in holders)


def _matching(folder: Path, field: str, patterns: Mapping[str, object], name: str) -> Any:
    """The value of the first pattern that means this module, as PEFT's ``get_pattern_key`` finds it; None for none."""
    found = (
        value for pattern, value in patterns.items() if _matches(folder, field, rf"(.*\.)?({pattern})$", name)
    )
    return next(found, None)


def _matches(folder: Path, field: str, pattern: str, name: str) -> bool:
    import regex

    try:
        return regex.fullmatch(pattern, name, timeout=PATTERN_SECONDS) is not None
    except (regex.error, TimeoutError, RecursionError) as error:
        raise unsupported(folder, field, pattern) from error
