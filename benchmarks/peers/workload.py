"""The work that every system is given: a random model of a stated size, and rated turns of stated lengths.

The text is of invented words of which each is one token, so that a turn has exactly the tokens that it should have,
in every system: they all get text, and tokenize it themselves with the tokenizer in the model's folder.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

PAD, END, USER, ASSISTANT, SYSTEM = "<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TOKENS = 2048
"""Tokens of the tokenizer; a model may have more, as the padded vocabularies of real ones do."""


@dataclass(frozen=True)
class Workload:
    """A model's size, and a run: ``turns`` rated turns, taken ``batch`` a step, ``passes`` times."""

    name: str
    about: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    turns: int
    tokens: int
    """In all turns, templates included."""
    response_tokens: int
    """In all turns: what is trained on, the end token of each answer included."""
    passes: int = 2
    batch: int = 8
    rank: int = 16
    context: int = 2048

    @property
    def steps(self) -> int:
        return self.turns * self.passes // self.batch

    def scaled(self, turns: int, passes: int) -> Workload:
        """The same, with turns of the same mean length."""
        share = turns / self.turns
        return replace(
            self,
            turns=turns,
            passes=passes,
            tokens=round(self.tokens * share),
            response_tokens=round(self.response_tokens * share),
        )

    def lengths(self) -> list[tuple[int, int]]:
        """(prompt, response) tokens of each turn: log-normal, as conversations are, with exactly the stated sums."""
        rng = random.Random(self.name)
        prompts = _shares(self.tokens - self.response_tokens, self.turns, rng)
        responses = _shares(self.response_tokens, self.turns, rng)
        return list(zip(prompts, responses, strict=True))


REAL_VOCABULARY = Workload(
    name="real-vocabulary",
    about="hidden 512, 8 layers, vocabulary 151,936 tied: 101 M weights, of which 78 M are the vocabulary",
    hidden=512,
    layers=8,
    heads=8,
    kv_heads=4,
    intermediate=1408,
    vocabulary=151_936,
    turns=16,
    tokens=2 * 1828,
    response_tokens=2 * 575,
)
EMBEDDED = Workload(
    name="embedded-size",
    about="hidden 192, 4 layers, vocabulary 2,048 tied: 2 M weights, as the model that comes with Clawback",
    hidden=192,
    layers=4,
    heads=4,
    kv_heads=2,
    intermediate=512,
    vocabulary=2048,
    turns=64,
    tokens=13_794,
    response_tokens=4_485,
)
WORKLOADS = {workload.name: workload for workload in (REAL_VOCABULARY, EMBEDDED)}


def make(workload: Workload, folder: Path, samples: Path) -> None:
    """Write the model's folder (once) and the file of samples, and check that the tokens are as stated."""
    tokenizer = _tokenizer(folder)
    if not (folder / "model.safetensors").exists():
        _model(workload, folder)
    rng = random.Random(workload.turns)
    words = _words()
    rows: list[dict[str, Any]] = []
    for number, (prompt, response) in enumerate(workload.lengths()):
        # <|user|>…<|end|><|assistant|> is three tokens of the prompt, <|end|> one of the response.
        rows.append(
            {
                "prompt": " ".join(rng.choices(words, k=prompt - 3)),
                "response": " ".join(rng.choices(words, k=response - 1)),
                "rating": 1 if number % 2 else -1,
            }
        )
    for row, lengths in zip(rows, workload.lengths(), strict=True):
        messages = [
            {"role": "user", "content": row["prompt"]},
            {"role": "assistant", "content": row["response"]},
        ]
        head = tokenizer.apply_chat_template(messages[:1], add_generation_prompt=True, tokenize=False)
        whole = tokenizer.apply_chat_template(messages, tokenize=False)
        found = [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (head, whole)]
        if found != [lengths[0], sum(lengths)]:
            raise RuntimeError(f"A turn of {found} tokens where {lengths} were meant.")
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def _shares(total: int, parts: int, rng: random.Random) -> list[int]:
    weights = [rng.lognormvariate(0, 0.6) for _ in range(parts)]
    found = [max(8, round(total * weight / sum(weights))) for weight in weights]
    while difference := total - sum(found):
        found[rng.randrange(parts)] += 1 if difference > 0 else -1
    if min(found) < 6:
        raise RuntimeError("A turn is too short to be one.")
    return found


def _words() -> list[str]:
    """400 invented words of two syllables."""
    consonants, vowels = "bdfgklmnprstvz", "aeiou"
    syllables = [c + v for c in consonants for v in vowels]
    rng = random.Random(0)
    return sorted({rng.choice(syllables) + rng.choice(syllables) for _ in range(440)})[:400]


def _tokenizer(folder: Path) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if not (folder / "tokenizer.json").exists():
        words = _words()
        raw = Tokenizer(models.BPE())
        raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
        raw.decoder = decoders.ByteLevel()  # type: ignore[assignment]
        trainer = trainers.BpeTrainer(
            vocab_size=TOKENS,
            special_tokens=[AddedToken(t, special=True) for t in (PAD, END, USER, ASSISTANT, SYSTEM)],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        # Each word often, at the start of a text and inside one, so that both ways of writing it become one token.
        raw.train_from_iterator([f"{word} {word}" for word in words for _ in range(20)], trainer)
        PreTrainedTokenizerFast(
            tokenizer_object=raw,
            pad_token=PAD,
            eos_token=END,
            chat_template=TEMPLATE,
            clean_up_tokenization_spaces=False,
        ).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def _model(workload: Workload, folder: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=workload.hidden,
            num_hidden_layers=workload.layers,
            num_attention_heads=workload.heads,
            num_key_value_heads=workload.kv_heads,
            intermediate_size=workload.intermediate,
            vocab_size=workload.vocabulary,
            tie_word_embeddings=True,
            max_position_embeddings=workload.context,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=1,
        )
    )
    model.save_pretrained(folder)
