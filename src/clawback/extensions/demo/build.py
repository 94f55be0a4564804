"""Builds the embedded model from scratch: text, tokenizer, training, and a plain Hugging Face folder.

What it simplifies: one epoch over generated text with loss on the answers alone, dialogues of similar length
batched together, Muon (Jordan 2024) for the matrices and AdamW for the rest. The same seed on the same
machine gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.extensions.demo.corpus import Dialogue, dialogues

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = {
    "pad": "<|pad|>",
    "end": "<|end|>",
    "user": "<|user|>",
    "assistant": "<|assistant|>",
    "system": "<|system|>",
}
VOCABULARY = 2048
SHAPE: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 576,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
DIALOGUES = 60_000
TOKENS_A_STEP = 4096
MATRIX_RATE, OTHER_RATE, WARMUP = 0.02, 4e-3, 0.03

# Text is taken from strings and from lists of blocks; an unknown role (a tool's, say) speaks as the user.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|' + (message['role'] if message['role'] in ['system', 'user', 'assistant'] else 'user') + '|>' -}}
{%- if message['content'] is string -%}{{- message['content'] -}}
{%- elif message['content'] -%}
{%- for block in message['content'] if block['text'] is defined -%}{{- block['text'] -}}{%- endfor -%}
{%- endif -%}
{{- '<|end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"""


def make(
    out: Path,
    *,
    seed: int = 0,
    dialogue_count: int = DIALOGUES,
    threads: int | None = None,
    progress: bool = True,
) -> None:
    """Train and save to ``out`` (a folder that must not hold a model yet is not asked for: files are replaced).

    About six minutes on two free cores. ``threads`` is part of what makes the bytes: a sum in another order differs.
    """
    import torch

    if threads:
        torch.set_num_threads(threads)
    torch.manual_seed(seed)
    text = list(dialogues(dialogue_count, seed))
    tokenizer = make_tokenizer(text)
    model = make_model(tokenizer)
    loss = train(model, list(batches(tokenizer, text, seed)), progress)
    save(
        out, model, tokenizer, text, {"seed": seed, "dialogues": dialogue_count, "final_loss": round(loss, 4)}
    )


def make_tokenizer(text: list[Dialogue]) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with a chat template, trained on the text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator((m["content"] for d in text[:20_000] for m in d), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=SPECIAL["pad"],
        eos_token=SPECIAL["end"],
        additional_special_tokens=[SPECIAL["user"], SPECIAL["assistant"], SPECIAL["system"]],
        model_max_length=SHAPE["max_position_embeddings"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    from transformers import LlamaConfig, LlamaForCausalLM

    ids = {
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **ids, **SHAPE))


def batches(
    tokenizer: PreTrainedTokenizerFast, text: list[Dialogue], seed: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """``(ids, labels)`` of [batch, time]: dialogues of similar length together, batches in random order."""
    import random

    import torch

    rows = [encode(tokenizer, dialogue) for dialogue in text]
    rows.sort(key=lambda row: len(row[0]))
    groups: list[list[tuple[list[int], list[int]]]] = [[]]
    for row in rows:
        if groups[-1] and len(row[0]) * (len(groups[-1]) + 1) > TOKENS_A_STEP:
            groups.append([])
        groups[-1].append(row)
    random.Random(seed).shuffle(groups)
    for group in groups:
        width = max(len(ids) for ids, _ in group)
        pad = tokenizer.pad_token_id
        yield (
            torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in group]),
            torch.tensor([labels + [-100] * (width - len(labels)) for _, labels in group]),
        )


def encode(tokenizer: PreTrainedTokenizerFast, dialogue: Dialogue) -> tuple[list[int], list[int]]:
    """Token ids of a dialogue as the chat template writes it, and labels that count on the assistant's part alone."""
    ids: list[int] = []
    labels: list[int] = []
    end = tokenizer.eos_token_id
    for message in dialogue:
        said = tokenizer.encode(message["content"], add_special_tokens=False)
        part = [tokenizer.convert_tokens_to_ids(SPECIAL[message["role"]]), *said, end]
        counts = message["role"] == "assistant"
        ids += part
        labels += [-100, *part[1:]] if counts else [-100] * len(part)
    return ids, labels


def train(model: LlamaForCausalLM, steps: list[tuple[torch.Tensor, torch.Tensor]], progress: bool) -> float:
    """One pass over the batches; returns the mean loss of the last hundred, in nats a token."""
    import torch
    from tqdm import tqdm

    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    optimisers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=MATRIX_RATE, weight_decay=0.01, momentum=0.95),
        torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    rates = [group["lr"] for o in optimisers for group in o.param_groups]
    losses: list[float] = []
    model.train()
    for step, (ids, labels) in enumerate(tqdm(steps, desc="training", unit="step", disable=not progress)):
        scale = (
            min(1.0, (step + 1) / (WARMUP * len(steps) + 1))
            * 0.5
            * (1 + math.cos(math.pi * step / len(steps)))
        )
        for group, rate in zip((g for o in optimisers for g in o.param_groups), rates, strict=True):
            group["lr"] = rate * scale
        # The row padding is on the right and causal attention never looks there, so no mask is needed.
        hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]  # [batch, time - 1, hidden]
        wanted = labels[:, 1:]
        counted = wanted != -100
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden[counted]), wanted[counted])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()
        losses.append(loss.item())
    return sum(losses[-100:]) / len(losses[-100:])


def save(
    out: Path,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    text: list[Dialogue],
    details: dict[str, Any],
) -> None:
    """A plain Hugging Face folder in bfloat16, with a model card and ``provenance.json``."""
    import torch
    import transformers

    out.mkdir(parents=True, exist_ok=True)
    model.eval().to(torch.bfloat16)
    model.generation_config.update(do_sample=True, temperature=1.0, max_new_tokens=160)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    corpus_hash = hashlib.sha256(json.dumps(text, ensure_ascii=False).encode()).hexdigest()
    provenance = details | {
        "parameters": sum(p.numel() for p in model.parameters()),
        "corpus_sha256": corpus_hash,
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
    }
    (out / "provenance.json").write_text(json.dumps(provenance, indent=2) + "\n", "utf-8")
    (out / "README.md").write_text(CARD.format(**provenance), "utf-8")


CARD = """\
---
license: mit
language: en
pipeline_tag: text-generation
---
# Clawback's embedded model

A chat model of {parameters:,} parameters that Clawback makes from text it generates itself (`clawback model make`), for
its demo, tests and benchmarks. It answers questions about a hundred animals, cities, foods and simple tasks, in styles that
a person can tell apart. It knows nothing else and is no source of facts.

Made with seed {seed} from {dialogues:,} generated dialogues; final loss {final_loss} nats a token.
"""
