"""Sampling with MLX, as in ``sampling/batched_sampler.py``: one random number per token, drawn beforehand.

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

from clawback.extensions.mlx.body import MlxBody
from clawback.sampling import PLAIN, DrawSettings, Sampled, SamplingRequest, draw_answers, requests_for


def sample(
    body: MlxBody,
    prompts: Sequence[Sequence[int]],
    settings: DrawSettings,
) -> list[list[Sampled]]:
    """Answers to each of ``prompts``. The body has the adapter that it answers with (``Body.use``)."""
    requests = requests_for(prompts, settings.chance(prompts), sampling=settings.sampling or PLAIN)
    return draw_answers(MlxBatch(body), requests, settings.stop or (), settings.rows)


class MlxBatch:
    """Rows of one batch, for ``scheduler.Rows``: others begin when all of them have ended."""

    open = False

    def __init__(self, body: MlxBody) -> None:
        self.body = body
        self.caches: list[Any] = []

    def read(self, requests: Sequence[SamplingRequest]) -> Tensor:
        prompts = [tuple(request.prompt) for request in requests]
        different = list(dict.fromkeys(prompts))
        self.caches = _read(self.body, [list(ids) for ids in different])
        if len(different) < len(prompts):
            self.keep([different.index(ids) for ids in prompts])
        return self.step([ids[-1] for ids in prompts])

    def step(self, last: Sequence[int]) -> Tensor:
        ids = mx.array(np.array(last, dtype=np.int32)[:, None])
        logits = self.body.model(ids, cache=self.caches)[:, -1].astype(mx.float32)
        return torch.from_numpy(np.array(logits))

    def keep(self, places: Sequence[int]) -> None:
        for cache in self.caches if len(places) else ():
            cache.filter(mx.array(list(places)))

    def drop(self) -> None:
        self.caches = []


def _read(body: MlxBody, prompts: list[list[int]]) -> list[Any]:
    """A cache a layer with all of each prompt but its last token."""
    from mlx_lm.models.cache import BatchKVCache

    width = max(map(len, prompts)) - 1
    padding = [width + 1 - len(ids) for ids in prompts]
    caches = [BatchKVCache(padding) for _ in body.model.layers]
    if width:
        ids = [[0] * spare + ids[:-1] for spare, ids in zip(padding, prompts, strict=True)]
        mx.eval(body.model.model(mx.array(ids), cache=caches))
    return caches
