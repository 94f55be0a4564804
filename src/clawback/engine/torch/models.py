"""Load a base model: from a folder or the hub, safetensors only, never with code from the model's repository."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clawback.config import EMBEDDED
from clawback.engine.torch.linear import quicken
from clawback.engine.types import ModelInfo
from clawback.errors import ModelError

_BLOCK = 64 * 1024
_BLOCKS = 64


def resolve(base: str, revision: str | None = None) -> tuple[str, str]:
    """Where the weights are, and what they are: (folder or hub id, identity).

    The identity of a folder is ``sha256:…`` over its configuration and weights; that of a hub id its commit.
    Raises ``ModelError`` for a folder that is missing, incomplete, or holds pickled or quantised weights only.
    """
    if base == EMBEDDED:
        from clawback.engine import embedded

        base = str(embedded.path())
    folder = Path(base).expanduser()
    looks_local = folder.is_absolute() or base.startswith((".", "~")) or base.count("/") != 1
    if folder.is_dir():
        return str(folder.resolve()), fingerprint(folder)
    if folder.is_file():
        raise ModelError(
            f"{base} is a file. Name the folder of a Hugging Face model with safetensors weights."
        )
    if looks_local and "/" in base:
        raise ModelError(
            f"There is no folder {base}. Check the path, or name a model of the Hugging Face hub."
        )
    return base, _commit(base, revision)


def fingerprint(folder: Path) -> str:
    """``sha256:…`` over ``config.json`` and the weights: in full up to 4 MB a file, else 64 blocks spread over it.

    Training or converting a model changes nearly every block, so the sample tells models apart in milliseconds
    whatever their size.
    """
    weights = check_folder(folder)
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in weights:
        size = path.stat().st_size
        digest.update(f"\n{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for index in range(_BLOCKS):
                file.seek(index * max(_BLOCK, (size - _BLOCK) // (_BLOCKS - 1)))
                digest.update(file.read(_BLOCK))
    return f"sha256:{digest.hexdigest()}"


def check_folder(folder: Path) -> list[Path]:
    """The weight files of a model folder. Raises ``ModelError`` with what to do where it cannot be trained."""
    if not (folder / "config.json").is_file():
        if any(folder.glob("*.gguf")):
            raise ModelError(
                f"{folder} holds GGUF weights, which cannot be trained. Name the original model they were made from."
            )
        raise ModelError(f"{folder} is no model folder: it has no config.json.")
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
            raise ModelError(
                f"{folder} holds pickled weights, which may run code when loaded. Convert them to safetensors first."
            )
        raise ModelError(f"{folder} holds no weights (*.safetensors).")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            named = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError, OSError) as error:
            raise ModelError(f"{index} cannot be read: {error}. Fetch the model again.") from error
        missing = sorted(named - {path.name for path in weights})
        if missing:
            raise ModelError(f"{folder} is incomplete: {missing[0]} is missing. Fetch the model again.")
    return weights


def load_base(
    base: str, *, revision: str | None, dtype: torch.dtype, load_in_4bit: bool, device: torch.device
) -> tuple[nn.Module, Any, ModelInfo]:
    """The model (frozen, in evaluation mode), its tokenizer, and what it is made of.

    Raises ``ModelError`` where transformers cannot load it, with the reason in one sentence.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    # Its bar for reading weights would be drawn over ours; downloads keep theirs.
    logging.disable_progress_bar()
    source, identity = resolve(base, revision)
    local = identity.startswith("sha256:")
    options: dict[str, Any] = {"trust_remote_code": False}
    if not local:
        options["revision"] = identity
    extra: dict[str, Any] = {}
    if load_in_4bit:
        from transformers import BitsAndBytesConfig

        extra["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=dtype,
            bnb_4bit_use_double_quant=True,
        )
    if device.type != "cpu":
        extra["device_map"] = {"": device}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        model = AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, use_safetensors=True, **options, **extra
        )
    except Exception as error:  # transformers raises many kinds; each means the same to the user
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"The model {base} cannot be loaded: {reason}") from error
    model.eval()
    model.requires_grad_(False)
    quicken(model)
    return model, tokenizer, describe(model, base, identity)


def describe(model: nn.Module, base: str, revision: str) -> ModelInfo:
    """Count what a model is made of. Tied weights count once; quantised ones as what they stand for."""
    inner: Any = model
    config = inner.config.get_text_config()
    total = sum(_elements(parameter) for parameter in model.parameters())
    experts, chosen = _experts(config)
    in_experts = sum(_elements(p) for name, p in model.named_parameters() if ".experts." in name)
    active = total - round(in_experts * (1 - chosen / experts)) if experts > 1 else total
    hidden = int(_first(config, "hidden_size", "n_embd", "d_model") or 0)
    return ModelInfo(
        base=base,
        revision=revision,
        architecture=type(model).__name__,
        total_parameters=total,
        active_parameters=active,
        hidden=hidden,
        layers=int(_first(config, "num_hidden_layers", "n_layer", "num_layers") or 0),
        vocabulary=int(config.vocab_size),
        intermediate=int(
            _first(config, "moe_intermediate_size", "intermediate_size", "n_inner") or 4 * hidden
        ),
        context=int(_first(config, "max_position_embeddings", "n_positions", "max_seq_len") or 2048),
        experts=experts,
    )


def _elements(parameter: nn.Parameter) -> int:
    # A 4-bit weight is stored as bytes that hold two values each.
    return parameter.numel() * (2 if parameter.dtype == torch.uint8 else 1)


def _experts(config: Any) -> tuple[int, int]:
    """How many experts a layer has, and how many a token goes to."""
    count = int(
        _first(config, "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts") or 0
    )
    chosen = int(
        _first(config, "num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts") or 1
    )
    return count, min(chosen, count)


def _first(config: Any, *names: str) -> Any:
    return next(
        (value for name in names if isinstance(value := getattr(config, name, None), (int, float))), None
    )


def _commit(base: str, revision: str | None) -> str:
    """The commit of a hub id, from the cache where it is there, else from the hub."""
    from transformers.utils.hub import cached_file, extract_commit_hash

    try:
        path = cached_file(base, "config.json", revision=revision)
        commit = extract_commit_hash(path, None)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"The model {base} was not found: {reason}") from error
    if not commit:
        raise ModelError(
            f"The model {base} has no commit that could be recorded. Download it and name its folder."
        )
    return str(commit)
