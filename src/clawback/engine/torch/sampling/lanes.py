"""The active answers of one version: reading their prompts and continuing them, one token at a time.

There are two implementations with one interface: the lean decoder where it supports the model, at twice the
speed and more; otherwise the model's own forward, with rows padded on the left. Rows are in order of arrival;
where some end, those at the end take their places (``continuous.closed_ranks``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import psutil
import torch
from torch import Tensor

from clawback.engine.torch.sampling.cache import new_cache
from clawback.engine.torch.sampling.continuous import READ_TOKENS
from clawback.engine.torch.sampling.decoder import Cache, Decoder
from clawback.engine.torch.sampling.decoder_choice import drawing_dtype, fits
from clawback.engine.torch.sampling.generate import _forward, _left_padded

if TYPE_CHECKING:
    from clawback.engine.torch.models.policy import Policy

_COLUMNS = 32
_EXPECTED = 16
"""Rows that weights are put in order for."""


class Rows(Protocol):
    """The rows of one version. The model speaks for that version while a method is called."""

    @property
    def open(self) -> bool:
        """Whether more rows may join while others are under way."""
        ...

    def read(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """New rows: the logits ``[prompts, vocabulary]`` of what follows each."""
        ...

    def step(self, last: Sequence[int]) -> Tensor:
        """Each row goes on with its last token: logits ``[rows, vocabulary]``."""
        ...

    def keep(self, places: Sequence[int]) -> None:
        """Which old row each new row is; without any, everything is let go."""
        ...


def rows_of(policy: Policy) -> Rows:
    """For the version that the model speaks for now."""
    return Lean(policy) if lean(policy) else Plain(lambda: policy.model, policy.device)


def lean(policy: Policy) -> bool:
    model: Any = policy.model
    if not fits(model, policy.info.context):
        return False
    dtype = drawing_dtype(model)
    copied = dtype != next(model.parameters()).dtype
    size = policy.info.total_parameters * dtype.itemsize
    return not copied or 3 * size < psutil.virtual_memory().available


class Lean:
    """By the lean decoder, whose weights are those of the version at this moment."""

    open = True

    def __init__(self, policy: Policy) -> None:
        self.decoder = Decoder(policy.model, drawing_dtype(policy.model), rows=_EXPECTED)
        self.cache: Cache | None = None
        self.position: list[int] = []
        """Where the last token of each row stands."""

    def read(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        first, longest = len(self.position), max(map(len, prompts))
        if self.cache is None:
            self.cache = Cache(self.decoder, _even(len(prompts)), longest + 4 * _COLUMNS)
        self.cache.widen(_even(first + len(prompts)))
        parts, done = [], 0
        while done < len(prompts):
            some = [prompts[done]]
            for prompt in prompts[done + 1 :]:
                if (len(some) + 1) * max(len(prompt), *map(len, some)) > READ_TOKENS:
                    break
                some.append(prompt)
            slots = torch.arange(first + done, first + done + len(some), device=self.decoder.device)
            self._about(first + done, len(some), len(some))
            parts.append(self.decoder.read(some, self.cache, slots, wide(max(map(len, some)))))
            done += len(some)
        self.position += [len(prompt) - 1 for prompt in prompts]
        return torch.cat(parts)

    def step(self, last: Sequence[int]) -> Tensor:
        assert self.cache is not None
        self.position = [place + 1 for place in self.position]
        # oneDNN compiles its products for each new shape: few are asked for. Slots that nobody reads are overwritten.
        spare = [0] * (_even(len(last)) - len(last))
        device, columns = self.decoder.device, max(self.position) + 1
        self._about(0, len(last), len(last) + len(spare))
        logits = self.decoder.step(
            torch.tensor([*last, *spare], device=device),
            torch.tensor([*self.position, *spare], device=device),
            self.cache,
            columns + -columns % _COLUMNS,
        )
        return logits[: len(last)]

    def _about(self, first: int, rows: int, padded: int) -> None:
        """These rows go through the model next, and others that nobody reads."""

    def keep(self, places: Sequence[int]) -> None:
        if not places or self.cache is None:
            self.position, self.cache = [], None
            return
        moved = [(old, new) for new, old in enumerate(places) if old != new]
        if moved:
            sources, targets = torch.tensor(moved, device=self.decoder.device).T
            self.cache.move(sources, targets, max(self.position) + 1)
        self.position = [self.position[old] for old in places]


def _even(rows: int) -> int:
    """1, 2, 4, then multiples of 8."""
    return rows if rows <= 2 else 4 if rows <= 4 else rows + -rows % 8


def wide(tokens: int) -> int:
    """Round a width up to four values per octave: each new width costs oneDNN a compilation and some megabytes that it keeps."""
    step = max(8, 1 << max(0, tokens.bit_length() - 3))
    return tokens + -tokens % step


class Plain:
    """By the model's own forward. ``mask [rows, width]``: which columns of the cache each row uses."""

    def __init__(self, model: Callable[[], Any], device: torch.device) -> None:
        self.model, self.device = model, device
        self.mask: Tensor | None = None
        self.cache: Any = None
        self.ours = False
        """Whether the cache is of the kind that rows can join."""

    @property
    def open(self) -> bool:
        return self.ours

    def read(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        ids, mask = _left_padded(prompts, self.device)
        cache, ours = new_cache(self.model())
        position = (mask.cumsum(1) - 1).clamp(min=0)
        logits = _forward(self.model(), ids, mask, position, cache)
        if self.mask is None:
            self.cache, self.ours, self.mask = cache, ours, mask
        else:
            before, mask = _level(self.mask, mask)
            for old, new in zip(self.cache.layers, cache.layers, strict=True):
                old.join(new, before.shape[1])
            self.mask = torch.cat([before, mask])
        return logits

    def step(self, last: Sequence[int]) -> Tensor:
        assert self.mask is not None
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(last), 1)], 1)
        position = self.mask.sum(1, keepdim=True) - 1
        ids = torch.tensor(last, device=self.device)[:, None]
        seen = self.mask[:, None, None, :].bool() if self.ours else self.mask
        return _forward(self.model(), ids, seen, position, self.cache)

    def keep(self, places: Sequence[int]) -> None:
        if not places or self.mask is None:
            self.mask, self.cache = None, None
            return
        rows = torch.tensor(places, device=self.mask.device)
        self.mask = self.mask[rows]
        self.cache.batch_select_indices(rows)


def _level(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Two masks made equally wide by columns of zeros on the left."""
    width = max(a.shape[1], b.shape[1])
    pad = torch.nn.functional.pad
    return pad(a, (width - a.shape[1], 0)), pad(b, (width - b.shape[1], 0))
