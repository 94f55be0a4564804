"""A model without a chat template that goes on with the dialogue for ever, as base models do: ``It swims.``, and then the next speaker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHAINS = {
    "one token": (":", " It", " swims", ".\n\n", "User"),
    "a token of its own": (":", " It", " swims", ".", "\n\n", "User"),
    "one line": (":", " It", " swims", ".", "\n", "User"),
    "bold": (":", " It", " swims", ".\n", "**User**"),
}
"""How the end of an answer and the label after it are cut into tokens. After the last token comes the first one again."""


def write(folder: Path, chain: tuple[str, ...]) -> Path:
    """Each token of the chain is followed by the next one, whatever came before: layers add nothing, and the head knows the successor."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from tests.engine import conftest

    tokenizer: Any = conftest.tokenizer()
    tokenizer.chat_template = None
    tokenizer.add_tokens(list(chain))
    ids = tokenizer.convert_tokens_to_ids(list(chain))
    size = 8 * (len(tokenizer) // 8 + 1)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=size,
            hidden_size=size,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=4,
            max_position_embeddings=512,
            tie_word_embeddings=False,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    with torch.no_grad():
        layer = model.model.layers[0]
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        model.lm_head.weight.zero_()
        for token, following in zip(ids, [*ids[1:], ids[0]], strict=True):
            model.lm_head.weight[following, token] = 1.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
