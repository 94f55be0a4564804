"""Small real models, one folder a family, each with a byte-level BPE tokenizer and a chat template."""

from __future__ import annotations

import pytest
import torch

# Models this small gain nothing from a second thread, and lose much to waiting for it on a busy machine.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test draws the same numbers on every machine and in any order."""
    torch.manual_seed(0)


TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TEXT = [
    "The otter sleeps on its back and holds a friend's paw.",
    "Tell me about otters, please. Sure! Otters live in rivers and along coasts.",
    "- a list\n- of short points\n- and nothing else",
    "I am sorry, but I cannot say how tall that tower is.",
]


def tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|end|>", "<|eos|>", "<|system|>", "<|user|>", "<|assistant|>"]
    core.train_from_iterator(
        TEXT,
        trainers.BpeTrainer(
            vocab_size=384,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<|pad|>",
        eos_token="<|eos|>",
        additional_special_tokens=special[1:2] + special[3:],
        chat_template=TEMPLATE,
    )


def config(family):
    import transformers as t

    common = {
        "vocab_size": 384,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 512,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 2,
        "initializer_range": 0.2,
    }
    moe = {"num_experts_per_tok": 2}
    return {
        "llama": lambda: t.LlamaConfig(**common, tie_word_embeddings=True),
        "thin": lambda: t.LlamaConfig(**common | {"num_hidden_layers": 1}, tie_word_embeddings=True),
        "deep": lambda: t.LlamaConfig(**common | {"num_hidden_layers": 9}, tie_word_embeddings=True),
        "qwen3": lambda: t.Qwen3Config(**common, head_dim=16),
        "qwen3_moe": lambda: t.Qwen3MoeConfig(
            **common, **moe, head_dim=8, num_experts=4, moe_intermediate_size=24, norm_topk_prob=True
        ),
        "mixtral": lambda: t.MixtralConfig(**common, **moe, num_local_experts=4),
        "gemma2": lambda: t.Gemma2Config(
            **common,
            head_dim=8,
            query_pre_attn_scalar=8,
            sliding_window=256,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=3.0,
        ),
        "granite": lambda: t.GraniteConfig(
            **common, logits_scaling=3.0, attention_multiplier=0.2, residual_multiplier=0.5
        ),
        "cohere": lambda: t.CohereConfig(**common, logit_scale=0.3),
        "gpt2": lambda: t.GPT2Config(
            vocab_size=384, n_embd=32, n_layer=2, n_head=4, n_positions=512, bos_token_id=2, eos_token_id=2
        ),
        "mamba": lambda: t.MambaConfig(
            vocab_size=384,
            hidden_size=32,
            num_hidden_layers=2,
            state_size=4,
            time_step_rank=4,
            pad_token_id=0,
        ),
    }[family]()


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """``folders("llama")`` → the folder of a small random Llama; made once."""
    from transformers import AutoModelForCausalLM

    made = {}

    def make(family):
        if family not in made:
            torch.manual_seed(0)
            folder = tmp_path_factory.mktemp(family)
            model = AutoModelForCausalLM.from_config(config(family))
            model.save_pretrained(folder)
            tokenizer().save_pretrained(folder)
            made[family] = folder
        return made[family]

    return make


@pytest.fixture(scope="session")
def tok():
    return tokenizer()
