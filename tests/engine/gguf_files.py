"""Small GGUF files, written as llama.cpp's converter writes them, from a small Llama and its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
CONTROL, NORMAL = 3, 1


def llama(seed: int = 0, **changes: Any) -> Any:
    """Two layers of width 64, with the vocabulary of the tests' tokenizer."""
    import torch
    import transformers as t

    torch.manual_seed(seed)
    config = t.LlamaConfig(
        vocab_size=384,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=96,
        max_position_embeddings=512,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=2,
        initializer_range=0.2,
        tie_word_embeddings=True,
        **changes,
    )
    return t.LlamaForCausalLM(config).eval()


def write(
    path: Path,
    model: Any,
    tokenizer: Any,
    *,
    kind: Kind = Kind.F32,
    template: str | None = None,
    architecture: str = "llama",
    more: dict[str, Any] | None = None,
    leave_out: str = "",
    extra: dict[str, np.ndarray] | None = None,
) -> Path:
    """A whole GGUF file. ``more``: further keys; ``leave_out``: a tensor that is not written; ``extra``: further tensors."""
    config = model.config
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_license("apache-2.0")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    vocabulary(writer, tokenizer, config.vocab_size)
    if template:
        writer.add_chat_template(template)
    for key, value in (more or {}).items():
        {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}[type(value)](key, value)
    for name, values in (tensors(model) | (extra or {})).items():
        if name != leave_out:
            small = values.ndim == 1
            data = gguf.quants.quantize(values, Kind.F32 if small else kind)
            writer.add_tensor(name, data, raw_dtype=Kind.F32 if small else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def rounded(model: Any, kind: Kind) -> Any:
    """The same model with its matrices as that kind of quantisation keeps them."""
    import copy

    import torch

    made = copy.deepcopy(model)
    for values in made.parameters():
        if values.ndim == 2:
            packed = gguf.quants.quantize(values.detach().numpy(), kind)
            values.data = torch.from_numpy(gguf.quants.dequantize(packed, kind).copy())
    return made


def vocabulary(writer: Any, tokenizer: Any, size: int) -> None:
    import json

    core = json.loads(tokenizer.backend_tokenizer.to_str())
    ids = {index: token for token, index in tokenizer.get_vocab().items()}
    special = {one["content"] for one in core["added_tokens"]}
    tokens = [ids.get(i, f"[PAD{i}]") for i in range(size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if token in special else NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in core["model"]["merges"]])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)


def tensors(model: Any) -> dict[str, np.ndarray]:
    """The weights under GGUF's names; queries and keys in llama.cpp's order of rotation."""
    config, made = model.config, {}
    for name, value in model.state_dict().items():
        values = value.float().numpy()
        if name == "model.embed_tokens.weight":
            made["token_embd.weight"] = values
        elif name == "model.norm.weight":
            made["output_norm.weight"] = values
        elif name.startswith("model.layers."):
            _, _, layer, rest = name.split(".", 3)
            part = rest.removesuffix(".weight")
            heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
            if NAMES[part] in heads:
                values = rotated(values, heads[NAMES[part]])
            made[f"blk.{layer}.{NAMES[part]}.weight"] = values
    return made


def rotated(values: np.ndarray, heads: int) -> np.ndarray:
    """Halves of each head interleaved: llama.cpp turns neighbours, transformers turns halves."""
    rows = values.shape[0]
    return np.ascontiguousarray(
        values.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(values.shape)
    )
