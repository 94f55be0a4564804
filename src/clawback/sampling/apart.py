"""Rows by the model's own forward without padding: those with equally many tokens, and pictures of the same size, in one batch.

For models that take padding on the left for text, and for what looks at pictures: what a model makes of pictures and
positions is its own business, and nothing of it is known here. Rows that need neither may go by rows of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clawback.sampling.cached_rows import Reading

if TYPE_CHECKING:
    from clawback.models import Pixels
    from clawback.sampling.request import SamplingRequest
    from clawback.sampling.rows import Rows

MOST_SEEING = 16
"""Rows with pictures that are read at once."""


@dataclass(frozen=True, slots=True)
class Way:
    """How rows go through a model's own forward."""

    padded: bool = False
    cached: bool = False
    selects: bool = False
    """Rows of the cache can be copied and dropped."""
    row_bytes: int = 0
    """What the cache holds of a row, however long it is, and"""
    token_bytes: int = 0
    """of each of its tokens."""


_SEEING = Way(cached=True)
"""Of rows with pictures."""


class Apart:
    """Several readings of some rows each, and ``blind`` rows for those without pictures, if there are any. For ``rows.Rows``."""

    def __init__(self, model: Callable[[], Any], way: Way, blind: Rows | None = None) -> None:
        self.model, self.way, self.blind = model, way, blind
        self.rows: list[Reading | None] = []
        """In which reading each row is, in the order of its rows; None: in ``blind``."""

    @property
    def open(self) -> bool:
        return self.blind is None or self.blind.open or all(self.rows)

    def read(self, requests: Sequence[SamplingRequest]) -> Tensor:
        batches: dict[Any, list[int]] = {}
        for i, request in enumerate(requests):
            blind = self.blind is not None and request.pixels is None
            batches.setdefault(None if blind else _shape(request), []).append(i)
        rows: list[Reading | None] = [None] * len(requests)
        logits: list[Tensor] = [torch.empty(0)] * len(requests)
        for shape, places in batches.items():
            if shape is None:
                assert self.blind is not None
                parts: Iterator[Any] = iter([(places, None, self.blind.read([requests[i] for i in places]))])
            else:
                parts = self._readings(requests, places)
            for some, reading, values in parts:
                for i, value in zip(some, values, strict=True):
                    rows[i], logits[i] = reading, value
        self.rows += rows
        return torch.stack(logits)

    def _readings(
        self, requests: Sequence[SamplingRequest], places: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Reading, Tensor]]:
        """Of requests of one shape: (which of them, their reading, what follows each)."""
        most = MOST_SEEING if requests[places[0]].pixels else len(places)
        for first in range(0, len(places), most):
            some = places[first : first + most]
            prompts = [requests[i].prompt for i in some]
            pixels = [seen for i in some if (seen := requests[i].pixels) is not None]
            reading = self._reading(prompts, pixels)
            yield some, reading, reading.logits

    def _reading(self, prompts: Sequence[Sequence[int]], pixels: Sequence[Pixels]) -> Reading:
        """Each different prompt once, where rows of the cache can be copied."""
        way = _SEEING if pixels else self.way
        names: list[Any] = [tuple(ids) for ids in prompts] if way.selects else list(range(len(prompts)))
        different = list(dict.fromkeys(names))
        chosen = [names.index(name) for name in different]
        reading = Reading(
            self.model,
            [prompts[i] for i in chosen],
            inputs=_pixel_inputs(self.model(), len(prompts[0]), pixels) if pixels else None,
            cached=way.cached,
            selects=way.selects,
        )
        if len(different) < len(names):
            reading.keep([different.index(name) for name in names])
        return reading

    def step(self, last: Sequence[int]) -> Tensor:
        values: dict[int, Iterator[Tensor]] = {}
        for reading in dict.fromkeys(self.rows):
            own = [token for token, row in zip(last, self.rows, strict=True) if row is reading]
            values[id(reading)] = iter(self.blind.step(own) if reading is None else reading.step(own))  # type: ignore[union-attr]
        return torch.stack([next(values[id(row)]) for row in self.rows])

    def keep(self, places: Sequence[int]) -> None:
        rank = [sum(other is row for other in self.rows[:i]) for i, row in enumerate(self.rows)]
        for reading in dict.fromkeys(self.rows):
            own = [rank[old] for old in places if self.rows[old] is reading]
            if reading is None:
                assert self.blind is not None
                self.blind.keep(own)
            elif own and own != list(range(sum(row is reading for row in self.rows))):
                reading.keep(own)
        self.rows = [self.rows[old] for old in places]

    def drop(self) -> None:
        if self.blind is not None:
            self.blind.drop()
        self.rows = []


def _shape(request: SamplingRequest) -> tuple[Any, ...]:
    """What requests must have in common to be rows of one batch."""
    inputs = request.pixels.inputs if request.pixels else {}
    return (len(request.prompt), *sorted((name, tuple(value.shape)) for name, value in inputs.items()))


def _pixel_inputs(model: Any, tokens: int, pixels: Sequence[Pixels]) -> dict[str, Tensor]:
    """What is seen beside rows of so many tokens. Rows come one after the other in what processors make of several conversations."""
    weight = next(model.parameters())
    each = [one.model_inputs(tokens, weight.device, weight.dtype) for one in pixels]
    return {name: torch.cat([one[name] for one in each]) for name in each[0]}
