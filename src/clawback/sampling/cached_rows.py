"""Rows that a model's own forward reads and continues, with the model's own cache, of whatever kind that is.

The rows of one reading have equally many tokens, so nothing is padded: a convolution or a recurrent state would take
padding for text. A model without a cache that can be gone on from reads each row anew for each token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from clawback.models import marks, read_as
from clawback.models.traits import forward

_CACHES = ("past_key_values", "cache_params", "state", "mems")
"""Names under which forward gives its cache, and takes it back."""


class Reading:
    """``logits [rows, vocabulary]``: what the model expects to follow each row."""

    def __init__(
        self,
        model: Callable[[], Any],
        ids: Sequence[Sequence[int]],
        *,
        inputs: Mapping[str, Tensor] | None = None,
        cached: bool = True,
        selects: bool = True,
    ) -> None:
        """``ids``: rows of as many tokens; ``inputs``: what is seen beside them. ``cached``: go on from the model's cache;
        ``selects``: rows of that cache can be copied and dropped."""
        self.model, self.cached, self.sees = model, cached, bool(inputs)
        self.selects = selects or not cached
        self.device = next(model().parameters()).device
        self.ids = torch.tensor([list(row) for row in ids], device=self.device)  # [rows, tokens]
        self.shown = list(range(len(ids)))
        """Which rows of the cache are asked for; the others have ended."""
        self.cache: dict[str, Any] = {}
        self.logits = self._read(self.ids, inputs or {})
        self.offsets = [
            (part, part.rope_deltas) for part in model().modules() if hasattr(part, "rope_deltas")
        ]
        """How far pictures have put positions off: models like Qwen-VL keep that to themselves, of what they read last."""

    def step(self, last: Sequence[int]) -> Tensor:
        """Each row goes on with its last token: logits ``[rows, vocabulary]``."""
        model = self.model()
        if self.sees:
            known = marks(model.config)
            last = [read_as(token, known) for token in last]
        tokens = self.ids.new_zeros(len(self.ids), 1)
        tokens[self.shown, 0] = torch.tensor(list(last), device=self.device)
        if self.cached:
            for part, offset in self.offsets:
                part.rope_deltas = offset
            logits = self._read(tokens, {})
        else:
            self.ids = torch.cat([self.ids, tokens], 1)
            logits = self._read(self.ids, {})
        self.logits = logits if self.shown == list(range(len(logits))) else logits[self.shown]
        return self.logits

    def keep(self, indices: Sequence[int]) -> None:
        """Which old row each new row is. A row may come several times where the cache ``selects``."""
        self.logits = self.logits[list(indices)]
        if not self.selects:
            assert len(set(indices)) == len(indices)
            self.shown = [self.shown[index] for index in indices]
            return
        rows = torch.tensor(list(indices), dtype=torch.long, device=self.device)
        self.ids = self.ids[rows]
        for cache in self.cache.values():
            cache.reorder_cache(rows)
        self.offsets = [
            (part, offset[rows] if isinstance(offset, Tensor) and offset.ndim else offset)
            for part, offset in self.offsets
        ]
        self.shown = list(range(len(indices)))

    def _read(self, ids: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
        out = forward(
            self.model(), input_ids=ids, use_cache=self.cached, logits_to_keep=1, **self.cache, **inputs
        )
        if self.cached:
            caches = ((name, getattr(out, name, None)) for name in _CACHES)
            self.cache = dict([next((name, value) for name, value in caches if value is not None)])
        logits: Tensor = out.logits[:, -1]
        return logits


def cache_bytes(value: Any) -> int:
    """Bytes of all tensors in a cache, of whatever kind it is."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, Mapping):
        return sum(map(cache_bytes, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(cache_bytes, value))
    return sum(map(cache_bytes, vars(value).values())) if hasattr(value, "__dict__") else 0
