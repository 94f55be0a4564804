"""A tiny chat model for text games: random weights, taught nothing but a form of answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tokenizer(texts: Sequence[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    core.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=432,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=special[2:],
        chat_template=TEMPLATE,
    )


def make(
    folder: Path,
    conversations: Callable[[random.Random], list[dict[str, str]]],
    *,
    hidden: int = 64,
    layers: int = 2,
    steps: int = 400,
    seed: int = 0,
) -> Path:
    """A Llama of 0.14 million parameters in ``folder``, trained on what ``conversations`` makes: the assistant's words alone."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    if (folder / "config.json").exists():
        return folder
    rng = random.Random(seed)
    made = [conversations(rng) for _ in range(256)]
    words = tokenizer([m["content"] for one in made for m in one])
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(words),
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            intermediate_size=hidden * 5 // 2,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=1,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    begin, end = words.convert_tokens_to_ids(["<|assistant|>", "<|end|>"])
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * (1 - step / steps)
        texts = [words.apply_chat_template(conversations(rng), tokenize=False) for _ in range(16)]
        batch = words(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        ids = batch["input_ids"]
        labels = torch.full_like(ids, -100)
        for row, line in enumerate(ids.tolist()):
            writing = False
            for place, token in enumerate(line):
                if writing:
                    labels[row, place] = token
                writing = (writing and token != end) or token == begin
        loss = model(input_ids=ids, attention_mask=batch["attention_mask"], labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.generation_config.eos_token_id = end
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
