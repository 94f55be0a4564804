"""A batched sampler over any Hugging Face causal LM: token ids in, token ids and their log-probs out.

What it does that a general ``generate`` does not, and where the speed comes from:

1. **A cache with room.** Keys and values are written into buffers that grow by doubling, instead of being copied whole for
   each new token.
2. **Nothing is computed for finished rows.** A row that ends is overwritten by the last live one and the batch shrinks.
3. **One prompt, K answers.** A prompt is read once and its cache repeated.
4. **One random number a token**, drawn beforehand for each row: inverse-transform sampling. So what a row says depends on
   the seed and its place alone, not on when its neighbours end or how rows are batched (up to rounding in the model).

Log-probs are those of the model itself (temperature 1, whole vocabulary), as a trainer will recompute them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clawback.engine.types import Completion
from clawback.records import Message

MOST_ROWS = 256
"""Rows computed at once, where their cache fits into ``CACHE_BYTES``."""
CACHE_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Sampled:
    """One answer: its token ids (the end token among them, if it came), and the log-prob of each."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finished: bool


def generate(
    model: nn.Module,
    tokenizer: Any,
    conversations: Sequence[Sequence[Message]],
    *,
    samples: int = 1,
    temperature: float = 1.0,
    max_tokens: int = 160,
    seed: int = 0,
) -> list[list[Completion]]:
    """``samples`` answers to each conversation, as text and token by token. See ``sample``."""
    from clawback.engine.torch.chat import Chat

    chat = Chat(tokenizer)
    answers = sample(
        model,
        [chat.prompt(messages) for messages in conversations],
        samples=samples,
        max_tokens=max_tokens,
        temperature=temperature,
        stop=stop_ids(model, chat.end_id),
        seed=seed,
    )
    return [
        [
            Completion(tokenizer.decode(a.ids, skip_special_tokens=True), a.ids, a.logprobs, a.finished)
            for a in group
        ]
        for group in answers
    ]


def stop_ids(model: Any, end_id: int) -> tuple[int, ...]:
    """Every token that ends an answer: that of the chat template, and those that the model's own settings name."""
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    named = named if isinstance(named, (list, tuple)) else [named]
    return tuple(sorted({end_id, *(int(token) for token in named if token is not None)}))


@torch.no_grad()
def sample(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    *,
    samples: int = 1,
    max_tokens: int = 160,
    temperature: float = 1.0,
    stop: Sequence[int] = (),
    seed: int | torch.Generator = 0,
    rows: int | None = None,
) -> list[list[Sampled]]:
    """``samples`` answers to each of ``prompts`` (lists of token ids, none empty), in order.

    ``stop``: token ids that end an answer. ``temperature`` 0 takes the likeliest token. ``seed`` may be a CPU generator,
    whose state then moves on. ``rows``: how many answers are computed at once; None chooses. The model is left in the mode (train or eval) that it was in.
    """
    if not all(prompts):
        raise ValueError("a prompt needs at least one token")
    generator = seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)
    chance = torch.rand(len(prompts), samples, max_tokens, generator=generator)
    training = model.training
    model.eval()
    try:
        answers: list[list[Sampled]] = [[] for _ in prompts]
        rows = rows or _rows(model, max(map(len, prompts), default=0) + max_tokens)
        for batch in _batches(prompts, max(1, rows // samples)):
            flat = _sample_batch(
                model,
                [prompts[i] for i in batch],
                chance[batch].flatten(0, 1),
                temperature=temperature,
                stop=frozenset(stop),
            )
            for place, i in enumerate(batch):
                answers[i] = flat[place * samples : (place + 1) * samples]
        return answers
    finally:
        model.train(training)


def _rows(model: Any, tokens: int) -> int:
    """As many rows as may hold this many tokens in the cache."""
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    bytes_a_token = int(2 * config.num_hidden_layers * heads * size * next(model.parameters()).element_size())
    return max(1, min(MOST_ROWS, CACHE_BYTES // max(1, bytes_a_token * tokens)))


def _batches(prompts: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    """Places of prompts of similar length together, so that little padding is computed."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _sample_batch(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    chance: Tensor,
    *,
    temperature: float,
    stop: frozenset[int],
) -> list[Sampled]:
    """``chance [prompts × samples, max_tokens]``: the random number that decides each token."""
    from clawback.engine.torch.cache import new_cache

    device = next(model.parameters()).device
    total, max_tokens = chance.shape
    samples = total // len(prompts)
    chance = chance.to(device)

    ids, mask = _left_padded(prompts, device)  # [prompts, width]
    cache, plain = new_cache(model)
    position = mask.cumsum(1) - 1
    logits = _forward(model, ids, mask, position.clamp(min=0), cache)  # [prompts, vocabulary]
    cache.batch_repeat_interleave(samples)
    logits = logits.repeat_interleave(samples, 0)
    position = position[:, -1:].repeat_interleave(samples, 0)  # [rows, 1]
    width = ids.shape[1]
    mask = torch.cat([mask, mask.new_ones(len(prompts), max_tokens)], 1).repeat_interleave(samples, 0)
    padded = bool((mask == 0).any())

    tokens = torch.zeros(total, max_tokens, dtype=torch.long, device=device)
    logprobs = torch.zeros(total, max_tokens, device=device)
    lengths = [max_tokens] * total
    ended = [False] * total
    alive = torch.arange(total, device=device)  # [rows] whose answer each row of the batch writes
    for step in range(max_tokens):
        log_p = torch.log_softmax(logits.float(), -1)
        token = _choose(log_p, chance[alive, step], temperature)  # [rows]
        tokens[alive, step] = token
        logprobs[alive, step] = log_p.gather(1, token[:, None])[:, 0]
        done = [t in stop for t in token.tolist()]
        if any(done):
            for row, over in zip(alive.tolist(), done, strict=True):
                if over:
                    lengths[row], ended[row] = step + 1, True
            keep = torch.tensor(_closed_ranks(done), dtype=torch.long, device=device)
            alive, token, position, mask = alive[keep], token[keep], position[keep], mask[keep]
            cache.batch_select_indices(keep)
        if not len(alive) or step + 1 == max_tokens:
            break
        position = position + 1
        seen: Tensor | None = mask[:, : width + step + 1]
        if plain:  # a finished mask saves the model from making one
            seen = seen[:, None, None, :].bool() if padded and seen is not None else None
        logits = _forward(model, token[:, None], seen, position, cache)

    rows = zip(tokens.tolist(), logprobs.tolist(), lengths, ended, strict=True)
    return [Sampled(tuple(t[:n]), tuple(p[:n]), over) for t, p, n, over in rows]


def _choose(log_p: Tensor, chance: Tensor, temperature: float) -> Tensor:
    """``[rows]`` token ids from ``log_p [rows, vocabulary]`` and one number in [0, 1) each."""
    if temperature == 0:
        return log_p.argmax(-1)
    p = log_p.exp() if temperature == 1 else torch.softmax(log_p / temperature, -1)
    cumulative = p.cumsum(-1)
    token = torch.searchsorted(cumulative, (chance[:, None] * cumulative[:, -1:]), right=True)[:, 0]
    return token.clamp(max=log_p.shape[1] - 1)


def _closed_ranks(done: Sequence[bool]) -> list[int]:
    """Which old row each new row is: finished ones are replaced by live ones from the end, the others stay.

    >>> _closed_ranks([False, True, False, False])
    [0, 3, 2]
    """
    left = len(done) - sum(done)
    movers = iter([i for i in range(left, len(done)) if not done[i]])
    return [next(movers) if done[i] else i for i in range(left)]


def _left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids and mask, ``[prompts, longest]``, so that all prompts end in the same column."""
    width = max(len(p) for p in prompts)
    ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
    return ids, mask


def _forward(model: nn.Module, ids: Tensor, mask: Tensor | None, position: Tensor, cache: Any) -> Tensor:
    """Logits of the last column, ``[rows, vocabulary]``."""
    out = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=position,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    logits: Tensor = out.logits[:, -1]
    return logits
