"""Sampling with MLX, as in ``engine/torch/sampling/generate.py``: one random number per token, drawn beforehand.

With the same seed the answers are those of the torch engine, except where a rounding difference changes a
token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import torch
from torch import Tensor

from clawback.engine.mlx.body import Body
from clawback.engine.torch.sampling.choose import draw
from clawback.engine.torch.sampling.generate import Chance, Sampled, _finished
from clawback.engine.torch.sampling.ways import MOST_ROWS, by_length
from clawback.engine.types import Sampling


def sample(
    body: Body,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    samples: int,
    sampling: Sampling,
    stop: Sequence[int],
    seed: int | torch.Generator | Chance,
    rows: int | None = None,
) -> list[list[Sampled]]:
    """``samples`` answers to each of ``prompts``. The body has the adapter that it answers with (``Body.use``)."""
    if not all(prompts):
        raise ValueError("a prompt needs at least one token")
    if not isinstance(seed, Chance):
        seed = Chance.drawn(len(prompts), samples, max_tokens, sampling.truncates, seed)
    chance, again = seed.first, seed.again
    answers: list[list[Sampled]] = [[] for _ in prompts]
    for batch in by_length(prompts, max(1, (rows or MOST_ROWS) // samples)):
        second = None if again is None else again[batch].flatten(0, 1)
        some = [list(prompts[i]) for i in batch]
        flat = _batch(body, some, samples, chance[batch].flatten(0, 1), second, sampling, frozenset(stop))
        for place, i in enumerate(batch):
            answers[i] = flat[place * samples : (place + 1) * samples]
    return answers


@torch.no_grad()
def _batch(
    body: Body,
    prompts: list[list[int]],
    samples: int,
    chance: Tensor,
    again: Tensor | None,
    sampling: Sampling,
    stop: frozenset[int],
) -> list[Sampled]:
    """``chance`` [prompts × samples, max_tokens] decides each token; ``again`` is for a second try."""
    total, most = chance.shape
    caches = _read(body, prompts, samples)
    tokens, logprobs = torch.zeros(total, most, dtype=torch.long), torch.zeros(total, most)
    lengths, ended = [most] * total, [False] * total
    alive = torch.arange(total)
    token = torch.tensor([ids[-1] for ids in prompts]).repeat_interleave(samples)
    for step in range(most):
        logits = body.model(mx.array(token[:, None].numpy()), cache=caches)[:, -1].astype(mx.float32)
        second = None if again is None else again[alive, step]
        token, log_p = draw(torch.from_numpy(np.array(logits)), chance[alive, step], second, sampling)
        tokens[alive, step], logprobs[alive, step] = token, log_p
        done = [t in stop for t in token.tolist()]
        if any(done):
            for row, over in zip(alive.tolist(), done, strict=True):
                if over:
                    lengths[row], ended[row] = step + 1, True
            keep = [i for i, over in enumerate(done) if not over]
            alive, token = alive[keep], token[keep]
            for cache in caches if keep else ():
                cache.filter(mx.array(keep))
        if not len(alive):
            break
    return _finished(tokens, logprobs, lengths, ended)


def _read(body: Body, prompts: list[list[int]], samples: int) -> list[Any]:
    """A cache a layer with all of each prompt but its last token, a row an answer. Prompts are read once and their rows repeated."""
    from mlx_lm.models.cache import BatchKVCache

    width = max(map(len, prompts)) - 1
    padding = [width + 1 - len(ids) for ids in prompts]
    caches = [BatchKVCache(padding) for _ in body.model.layers]
    if width:
        ids = [[0] * spare + ids[:-1] for spare, ids in zip(padding, prompts, strict=True)]
        mx.eval(body.model.model(mx.array(ids), cache=caches))
    if samples > 1:
        rows = mx.array(np.repeat(np.arange(len(prompts)), samples))
        for cache in caches:
            cache.filter(rows)
    return caches
