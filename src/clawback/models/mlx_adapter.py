"""Conversion of adapters to and from mlx-lm's layout: the same numbers, transposed and under other names.

PEFT     base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight [r, in]    B [out, r]    y += alpha/r
· B(A x) mlx-lm                    model.layers.3.self_attn.q_proj.lora_a [in, r]           b [r, out]    y +=
scale · (x a) b
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from clawback.errors import ModelError

if TYPE_CHECKING:
    from clawback.records import JsonObject

WEIGHTS = "adapters.safetensors"
CONFIG = "adapter_config.json"
_FRONT = "base_model.model."
_ENDS = {".lora_A.weight": ".lora_a", ".lora_B.weight": ".lora_b"}


def to_mlx(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[JsonObject, dict[str, Tensor]]:  # fmt: skip
    """Settings and tensors for mlx-lm of what ``adapter.read`` gave. Raises ``ModelError`` for an adapter of fused experts."""
    made = {}
    for name, tensor in tensors.items():
        if tensor.ndim != 2:
            raise ModelError("mlx-lm has no adapters of fused experts, and this version has some.")
        short = name.removeprefix(_FRONT)
        for theirs, ours in _ENDS.items():
            short = short.replace(theirs, ours)
        made[short] = tensor.T.contiguous()
    layers = {int(part) for name in made for part in name.split(".") if part.isdigit()}
    settings = {
        "fine_tune_type": "lora",
        "num_layers": len(layers),
        "lora_parameters": {
            "rank": config["r"],
            "scale": float(config["lora_alpha"]) / float(config["r"]),
            "dropout": 0.0,
            "keys": sorted({_key(name) for name in made}),
        },
    }
    return settings, made


def there(folder: Path) -> bool:
    """Whether a folder holds an adapter in this layout."""
    return (folder / WEIGHTS).is_file()


def read(folder: Path) -> tuple[JsonObject, dict[str, Tensor]]:
    """A folder of mlx-lm as PEFT would hold it: configuration and tensors.

    Raises ``ModelError`` for what is damaged, or no plain LoRA (mlx-lm's ``dora`` and ``full`` are none).
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        settings = json.loads((folder / CONFIG).read_text("utf-8"))
        tensors = load_file(folder / WEIGHTS)
        kind, given = settings.get("fine_tune_type", "lora"), settings["lora_parameters"]
        rank, scale = int(given["rank"]), float(given["scale"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:  # fmt: skip
        raise ModelError(f"The adapter {folder} is damaged: {error}.") from error
    if kind != "lora":
        raise ModelError(f"The adapter {folder} is not a plain LoRA (fine_tune_type {str(kind)[:20]}).")
    back = {ours: theirs for theirs, ours in _ENDS.items()}
    made, modules = {}, set()
    for name, tensor in tensors.items():
        module, _, end = name.rpartition(".")
        if f".{end}" not in back or tensor.ndim != 2:
            raise ModelError(
                f"The adapter {folder} holds {name}, which is no part of a LoRA. It was not loaded."
            )
        made[_FRONT + module + back[f".{end}"]] = tensor.T.contiguous()
        modules.add(module)
    # Whole names: mlx-lm may have trained the last few layers only.
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": scale * rank, "target_modules": sorted(modules)}
    return config, made


def _key(name: str) -> str:
    """``model.layers.3.self_attn.q_proj.lora_a`` → ``self_attn.q_proj``."""
    parts = name.rsplit(".", 1)[0].split(".")
    number = next(i for i, part in enumerate(parts) if part.isdigit())
    return ".".join(parts[number + 1 :])
