"""Sampling by a model's own forward, for models that the lean decoder does not know: in the fastest way that one provably supports.

Rows of one batch here have equally many tokens, and pictures of the same size, so nothing is padded: a convolution or a recurrent state would take
padding for text, and what a model makes of pictures and positions is its own business.

* **padded**: rows of several lengths in one batch, padded on the left (``padded.py``). Never where a layer does more
  than attend to keys and values.
* **cached**: rows of one length in one batch, with whatever cache the model has; rows that end leave
  the batch if that cache can be selected from.
* **anew**: rows of one length, read anew for each token. This is the definition of what a model says.

"Provably": the first time that a model is drawn from, a short sequence goes through each way, and a way whose logits
differ from those of one pass without a cache is not used. A new family is at worst slow.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clawback.models import marks, read_as
from clawback.models.traits import (
    agree,
    attends_only,
    causal_of,
    check_causal,
    forward,
    full_logits,
    probe_ids,
    takes,
)
from clawback.sampling.padded import Padded
from clawback.sampling.scheduler import Rows

if TYPE_CHECKING:
    from clawback.sampling.choose import SamplingRequest
    from clawback.templates import Pixels


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


def cache_bytes(value: object) -> int:
    """Bytes of all tensors in a cache, of whatever kind it is."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, Mapping):
        return sum(map(cache_bytes, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(cache_bytes, value))
    return sum(map(cache_bytes, vars(value).values())) if hasattr(value, "__dict__") else 0


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
    """Several readings of some rows each, and ``blind`` rows for those without pictures, if there are any. For ``scheduler.Rows``."""

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


_WAYS: weakref.WeakKeyDictionary[Any, Way] = weakref.WeakKeyDictionary()


def way_of(model: object) -> Way:
    """Found once for each model in memory. Raises ``ModelError`` for a model that nothing can be drawn from."""
    causal = causal_of(model)
    if causal not in _WAYS:
        check_causal(causal)
        training = causal.training
        causal.eval()
        try:
            _WAYS[causal] = _proven(causal)
        finally:
            causal.train(training)
    return _WAYS[causal]


def _proven(causal: Any) -> Way:
    ids = probe_ids(causal)
    expected = full_logits(causal, ids)
    sizes = _attempt(lambda: _step_bytes(causal, ids, expected))
    cached = sizes is not None
    selects = cached and bool(_attempt(lambda: _selects(causal, ids, expected)))
    padded = attends_only(causal.config) and takes(causal, "past_key_values")
    padded = padded and bool(_attempt(lambda: _pads(causal, ids, expected)))
    return Way(padded, cached, selects, *(sizes or (0, 0)))


def _attempt(way: Callable[[], Any]) -> Any:
    """What it gives; None where the model cannot do it."""
    try:
        with torch.no_grad():
            return way()
    except Exception:  # a model that does not know a way raises anything
        return None


def _other(ids: Sequence[int]) -> list[int]:
    """Other tokens than these."""
    return [ids[-1 - i] for i in range(len(ids))]


def _step_bytes(causal: object, ids: Sequence[int], expected: Tensor) -> tuple[int, int] | None:
    """Bytes of the cache for a row, and for each of its tokens; None where stepping through is not the same as reading."""
    reading = Reading(lambda: causal, [ids[:6], _other(ids)[:6]], selects=False)
    logits, first = [reading.logits[0]], cache_bytes(reading.cache)
    for token in ids[6:9]:
        logits.append(reading.step([token, ids[0]])[0])
    if not agree(torch.stack(logits), expected[5:9]):
        return None
    each = max(0, cache_bytes(reading.cache) - first) // 6
    return max(0, first // 2 - 6 * each), each


def _selects(causal: object, ids: Sequence[int], expected: Tensor) -> bool:
    """Whether rows of the cache go on as themselves when they are copied, change places and leave."""
    reading = Reading(lambda: causal, [_other(ids)[:6], ids[:6]])
    reading.keep([0, 0, 1, 1])
    logits = [reading.logits[3]]
    reading.keep([3, 1, 0])
    logits.append(reading.step([ids[6], ids[0], ids[1]])[0])
    reading.keep([2, 0])
    logits.append(reading.step([ids[2], ids[7]])[1])
    return agree(torch.stack(logits), expected[5:8])


def _pads(causal: object, ids: Sequence[int], expected: Tensor) -> bool:
    """Whether a row is the same beside longer ones as by itself, while rows are copied, change places and leave."""
    rows, other = Padded(lambda: causal), _other(ids)[:7]
    logits = [rows.read_prompts([ids[:3], ids[:3], other, other])[0]]
    rows.keep([0, 1, 2])
    logits.append(rows.step([ids[3], ids[3], ids[0]])[1])
    rows.keep([0, 2])
    logits.append(rows.step([ids[4], ids[1]])[0])
    return agree(torch.stack(logits), expected[2:5])
