"""A tiny random model of every causal architecture that transformers knows, with a byte-level tokenizer and a chat template.

A configuration is shrunk by what its fields are called: sizes, heads, experts, layers. Of the kinds of layers that a model has, each is
there once. What no rule can know stands in ``SPECIAL``. Weights are drawn wide, so that a wrong position or a leaked state is nats away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

VOCABULARY = 384
MOST_PARAMETERS = 3_000_000
MOST_LAYERS = 6
_LAYERS = re.compile(
    r"(num_(hidden_|encoder_|decoder_)?layers?|n_layers?|(en|de)coder_layers|depth|num_blocks|conf_num_hidden_layers)"
)
_SIZES: tuple[tuple[str, int], ...] = (
    (r".*vocab(ulary)?_size.*|n_words", VOCABULARY),
    (r"codebook_size", 256),
    (r"(max|n|num)_position.*|max_(target|source)_positions|n_ctx|max_seq_len|context_length", 512),
    (r"qk_(rope|nope)_head_dim", 4),
    (r"(q|kv|o)_lora_rank|.*_dt_rank|time_step_rank|adapter_rank|laurel_rank|gated_norm_rank|.*lowrank", 8),
    (
        r"v_head_dim|head_dim|.*head_dim|d_head|.*_d_head|attention_head_size|dim_head|qk_head_dim|kv_channels",
        8,
    ),
    (
        r"(num_)?(key_value|kv)_heads|kv_n_heads|num_key_value_heads|linear_num_key_heads|.*num_key_value_heads",
        2,
    ),
    (
        r".*num_(attention_|value_)?heads|n_heads?|.*attention_heads|num_heads|.*mamba_(n|num)_heads|n_mamba_heads",
        4,
    ),
    (r".*n_heads|linear_num_value_heads", 4),
    (r"hidden_size_per_layer_input|ple_embed_dim", 8),
    (r"(num_local|num|n_routed|moe_num)_experts", 4),
    (r".*experts_per_tok(en)?|moe_top_?k|top_k_experts|moe_k|.*shared_experts?", 2),
    (r"n_group|topk_group|num_expert_group|.*mamba_n_?groups|n_groups|num_groups", 1),
    (r".*(state_size|d_state)", 8),
    (r"sliding_window|attention_chunk_size|local_attention|window_size|attention_window_size", 16),
    (r"(mamba_)?chunk_size|mamba_chunk_size", 8),
    (r".*moe.*intermediate_size|expert_ffn_hidden_size|.*shared.*intermediate_size", 16),
    (r".*(intermediate|ffn|inner|feed_forward).*(size|dim)?|dff|dim_ff|mlp_dim|d_inner|lru_width", 48),
    (
        r".*hidden_size.*|(d|dim)_model|n_embd|.*embed_?(ding)?_(dim|size)|emb_dim|embedding_size|.*_proj_dim",
        32,
    ),
    (r"mamba_d_ssm", 32),
    (r"image_size", 28),
)
_DERIVED = frozenset(
    {
        "model_type",
        "transformers_version",
        "architectures",
        "dtype",
        "torch_dtype",
        "_name_or_path",
        "per_layer_config",
    }
)
_BOTH = ["sliding_attention", "full_attention"]
_ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
_MAMBA = {"mamba_d_head": 16}
_SHARED = {"layer_types": [*_BOTH, *_BOTH], "num_hidden_layers": 4, "num_kv_shared_layers": 2}
_CONVOLUTION = {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2}
_INDEXER = {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 16}
SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "bamba": {**_MAMBA, "attn_layer_indices": [1]},
    "blt": {"encoder_hash_byte_group_vocab": 64},
    "codegen": {"rotary_dim": 4},
    "gptj": {"rotary_dim": 4},
    "cohere_compass_text": {"rope_parameters": dict.fromkeys(_BOTH, _ROPE), "layer_types": _BOTH},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10_000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "dots1": {
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
    },
    "gemma3n_text": {
        **_SHARED,
        "intermediate_size": [48] * 4,
        "activation_sparsity_pattern": [0.95, 0.95, 0.0, 0.0],
    },
    "gemma4_text": {**_SHARED, "global_head_dim": 16},
    "gemma4_unified_text": {**_SHARED, "global_head_dim": 16},
    "granitemoehybrid": {**_MAMBA, "layer_types": ["linear_attention", "full_attention"]},
    "jamba": {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
    },
    "lfm2": _CONVOLUTION,
    "lfm2_moe": {**_CONVOLUTION, "num_dense_layers": 1},
    "mamba2": {"head_dim": 16},
    "moshi": {"audio_vocab_size": 64},
    "nemotron": {"num_key_value_heads": 2},
    "qwen4_exp_text": {
        **_INDEXER,
        "indexer_compress_ratio": 4,
        "ngram_vocab_size_base": 512,
        "output_gate_type": "silu",
    },
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {
        "is_decoder": True,
        "attn_layers": ["local", "lsh"],
        "axial_pos_shape": [16, 32],
        "axial_pos_embds_dim": [16, 16],
        "num_buckets": 4,
    },
    "xlstm": {"chunk_size": 64, "hidden_size": 128, "embedding_dim": 128},
    "zamba": {
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "num_hidden_layers": 4,
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
    },
    "zamba2": {
        "num_mem_blocks": 1,
        "mamba_headdim": 16,
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
    },
}
"""Fields of single families that the rules do not find, or that say which kinds of layers there are."""
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def families() -> list[str]:
    """The model types that transformers has a causal language model for."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def make(family: str, folder: Path) -> None:
    """Write the folder of a tiny random model. Raises whatever keeps it from being made."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    config = tiny_config(family)
    with torch.device("meta"):
        shapes = AutoModelForCausalLM.from_config(config)
    count = sum(p.numel() for p in shapes.parameters())
    if count > MOST_PARAMETERS:
        large = sorted(shapes.named_parameters(), key=lambda item: -item[1].numel())[0]
        raise ValueError(f"{count} parameters, the largest {large[0]} {tuple(large[1].shape)}")
    model = AutoModelForCausalLM.from_config(tiny_config(family))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and 0 < float(parameter.std()) < 0.1 and "A_log" not in name:
                parameter.mul_(0.15 / parameter.std())
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def tokenizer() -> Any:
    """Bytes, and the marks of the chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<|pad|>", "<|end|>", "<|eos|>", "<|system|>", "<|user|>", "<|assistant|>"]
    tokens = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    core = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<|pad|>",
        eos_token="<|eos|>",
        additional_special_tokens=[special[1], *special[3:]],
        chat_template=TEMPLATE,
    )


def tiny_config(family: str) -> Any:
    from transformers import CONFIG_MAPPING

    kind = CONFIG_MAPPING[family]
    return kind(**_shrunk(kind().to_dict()) | dict(SPECIAL.get(family, {})))


def _shrunk(fields: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in fields.items() if name not in _DERIVED}
    layers = next((v for name, v in fields.items() if _LAYERS.fullmatch(name) and isinstance(v, int)), 0)
    chosen = list(_one_of_each(fields, layers)) or list(range(min(layers, 2)))
    chosen = (chosen + [i for i in range(layers) if i not in chosen])[: max(2, len(chosen))]
    small = {name: _small(name, value, layers, chosen) for name, value in fields.items()}
    if "kv_lora_rank" in small and "num_key_value_heads" in small:  # latent attention has as many of both
        small["num_key_value_heads"] = small["num_attention_heads"]
    if fields.get("head_dim") and fields.get("head_dim") == fields.get("qk_rope_head_dim"):
        small["head_dim"] = small["qk_rope_head_dim"]
    return small


def _one_of_each(fields: Mapping[str, Any], layers: int) -> Iterator[int]:
    """The first layer of each kind."""
    lists = [
        value for value in fields.values() if isinstance(value, list) and layers and len(value) == layers
    ]
    known = set()
    for i, kind in enumerate(zip(*lists, strict=True)):
        if str(kind) not in known and len(known) < MOST_LAYERS:
            known.add(str(kind))
            yield i


def _small(name: str, value: Any, layers: int, chosen: list[int]) -> Any:
    if isinstance(value, dict):
        kind = value.get("model_type")
        return _shrunk(value) | {"model_type": kind} | dict(SPECIAL.get(kind, {})) if kind else value
    if isinstance(value, list) and layers and len(value) == layers:
        return [_small(name, value[i], 0, []) for i in chosen]
    if name == "head_dim" and value is None:
        return 8
    if isinstance(value, bool) or not isinstance(value, int):
        return 0.2 if name in ("initializer_range", "init_std") else value
    if name.endswith(("token_id", "_index", "_offset")):
        return min(value, 2) if value >= VOCABULARY else value
    if _LAYERS.fullmatch(name):
        return len(chosen) if value == layers else min(value, 2)
    for pattern, size in _SIZES:
        if re.fullmatch(pattern, name):
            return min(value, size)
    return value
