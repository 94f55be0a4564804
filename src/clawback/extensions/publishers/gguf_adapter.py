"""Converts an adapter to GGUF, llama.cpp's own format (its layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).

PEFT's ``A [r, in]`` and ``B [out, r]`` become ``<tensor>.lora_a`` and ``<tensor>.lora_b`` under the names
that GGUF has for the base's tensors. GGUF stores models of the Llama and Mistral families with the rows of
each query and key head in another order (rotary pairs side by side, where Hugging Face has halves), so the
rows of ``B`` are reordered likewise.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import installed
from clawback.errors import MissingExtra, ModelError
from clawback.files import sync

if TYPE_CHECKING:
    from torch import Tensor

FAMILIES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""Model type → GGUF architecture, for those whose adapters are known to come out right."""
_REORDERED = ("llama", "mistral")
_FRONT = "base_model.model."


def convert(adapter: Path, config: Mapping[str, Any], out: Path) -> None:
    """Write the adapter of a PEFT folder as one GGUF file, in one rename.

    Args:
        config: the base model's (``config.json``).

    Raises:
        ModelError: a family whose layout over there is not known here, or fused experts.
        MissingExtra: the ``gguf`` package is not installed.
    """
    try:
        import gguf
    except ImportError as error:
        raise MissingExtra(f"Writing GGUF needs another part: {installed.add('gguf')}.") from error
    from clawback.models import adapter as adapters

    kind = str(config.get("model_type"))
    if kind not in FAMILIES:
        raise ModelError(
            f"Adapters of {kind} models are not turned into GGUF here (known: {', '.join(sorted(FAMILIES))}). "
            "llama.cpp's own convert_lora_to_gguf.py may know them."
        )
    settings, tensors = adapters.read(adapter)
    architecture = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == FAMILIES[kind])
    names = gguf.get_tensor_name_map(architecture, int(config["num_hidden_layers"]))
    beside = out.with_name(out.name + ".part")
    writer = gguf.GGUFWriter(beside, FAMILIES[kind])
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(settings["lora_alpha"]))
    for name, tensor in sorted(tensors.items()):
        short, part = name.removeprefix(_FRONT).removesuffix(".weight").rsplit(".", 1)
        there = names.get_name(short)
        if tensor.ndim != 2 or there is None:
            raise ModelError(f"GGUF has no place for {name} of this version.")
        data = tensor.float()
        if part == "lora_B" and kind in _REORDERED:
            data = _reordered(short, data, config)
        writer.add_tensor(f"{there}.weight.{part.lower()}", data.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    sync(beside)
    beside.replace(out)


def _reordered(name: str, rows: Tensor, config: Mapping[str, Any]) -> Tensor:
    """[out, r] → [out, r]: rows of a head from (half, pair) to (pair, half), for queries and keys."""
    heads = {
        "q_proj": int(config["num_attention_heads"]),
        "k_proj": int(config.get("num_key_value_heads") or config["num_attention_heads"]),
    }.get(name.rsplit(".", 1)[1])
    if heads is None:
        return rows
    out, rank = rows.shape
    return rows.reshape(heads, 2, out // heads // 2, rank).transpose(1, 2).reshape(out, rank)
