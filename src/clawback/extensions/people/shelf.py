"""Adapters of many people over one base model: on disk, in memory, and in the tables that a step computes with.

An adapter's folder is read and checked against the base (``pack``); recently used adapters stay in memory up
to a number of bytes; and the factors of the active ones lie side by side in tables, one slot each, from which
each row of a step takes its own (``shared_rows.py``). A slot that a row uses is never given to another adapter.
Slot 0 is the base model: nothing is added.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clawback.errors import ModelError
from clawback.models import ModelInfo, check_base, delta
from clawback.models import adapter as adapters

MOST_RANK = 64
SLOTS = 64
MEMORY = 512 * 2**20

_PLACES = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("self_attn.o_proj",),
    ("mlp.gate_proj", "mlp.up_proj"),
    ("mlp.down_proj",),
)
"""Layers of a block whose products the decoder makes as one, in its order."""


@dataclass(frozen=True, slots=True)
class DecoderProduct:
    """A product of the decoder: its layers' names, how wide what goes in is, and what comes out of each."""

    names: tuple[str, ...]
    width: int
    out: tuple[int, ...]


def places_of(model: Any) -> tuple[DecoderProduct, ...]:
    """All of a base model's, block by block."""
    made = []
    for number, layer in enumerate(model.model.layers):
        for names in _PLACES:
            parts = [layer.get_submodule(name) for name in names]
            full = tuple(f"model.layers.{number}.{name}" for name in names)
            made.append(
                DecoderProduct(full, parts[0].in_features, tuple(part.out_features for part in parts))
            )
    return tuple(made)


class PackedAdapter(NamedTuple):
    """An adapter as the tables take it: for each place ``A [parts · rank, in]`` and ``B [out, parts · rank]``, the scale in B."""

    rank: int
    pairs: tuple[tuple[Tensor, Tensor], ...]

    @property
    def size(self) -> int:
        return sum(t.numel() * t.element_size() for pair in self.pairs for t in pair)


def pack(folder: Path, info: ModelInfo, places: Sequence[DecoderProduct]) -> PackedAdapter:
    """Raises ``ModelError`` for what is damaged, made for another base, or no plain LoRA of these places."""
    if delta.there(folder):
        raise ModelError(f"The version {folder} changes all weights: it cannot answer beside others.")
    config, tensors = adapters.read(folder)
    check_base(folder, info)
    rank, alpha = config["r"], config["lora_alpha"]
    if rank > MOST_RANK:
        raise ModelError(f"The adapter {folder} has no rank up to {MOST_RANK}, as one for many needs.")
    if config.get("fan_in_fan_out") or config.get("target_parameters"):
        raise ModelError(f"The adapter {folder} is no plain LoRA: it cannot answer beside others.")
    scale = alpha / rank
    left = dict(tensors)
    pairs = []
    for place in places:
        a = torch.zeros(len(place.names) * rank, place.width)
        b = torch.zeros(sum(place.out), len(place.names) * rank)
        row = 0
        for part, (name, out) in enumerate(zip(place.names, place.out, strict=True)):
            key = f"base_model.model.{name}.lora_{{}}.weight"
            one, other = left.pop(key.format("A"), None), left.pop(key.format("B"), None)
            if one is not None and other is not None:
                if one.shape != (rank, place.width) or other.shape != (out, rank):
                    raise ModelError(f"The adapter {folder} does not fit {info.base} ({name}).")
                a[part * rank : (part + 1) * rank] = one
                b[row : row + out, part * rank : (part + 1) * rank] = other.float() * scale
            row += out
        pairs.append((a, b))
    if left:
        raise ModelError(
            f"The adapter {folder} changes {next(iter(left))}, which cannot differ from row to row."
        )
    return PackedAdapter(rank, tuple(pairs))


class Shelf:
    """``warm`` from any thread; all else on the thread that owns the model."""

    def __init__(
        self, model: Any, info: ModelInfo, dtype: torch.dtype, *, slots: int = SLOTS, memory: int = MEMORY
    ) -> None:
        self.info, self.dtype, self.slots, self.memory = info, dtype, slots, memory
        self.places = places_of(model)
        self.device = next(model.parameters()).device
        self.rank = 0
        self.tables: list[tuple[Tensor, Tensor]] = []
        """For each place ``A [1 + slots, parts · rank, in]`` and ``B [1 + slots, out, parts · rank]``."""
        self.counts: Counter[str] = Counter()
        """``disk``: read from a folder; ``device``: copied into a slot; ``hit``: was in one."""
        self._kept: OrderedDict[str, PackedAdapter] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()
        self._where: OrderedDict[str, int] = OrderedDict()
        """Adapter → its slot, least lately used first."""
        self._pins: Counter[int] = Counter()

    def warm(self, folder: Path) -> PackedAdapter:
        """Read it into memory, if it is not there. Raises ``ModelError``."""
        key = _key(folder)
        with self._lock:
            if (known := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return known
        made = pack(folder, self.info, self.places)
        made = PackedAdapter(made.rank, tuple((a.to(self.dtype), b.to(self.dtype)) for a, b in made.pairs))
        with self._lock:
            self.counts["disk"] += 1
            if key not in self._kept:
                self._kept[key] = made
                self._size += made.size
            while self._size > self.memory and len(self._kept) > 1:
                self._size -= self._kept.popitem(last=False)[1].size
        return made

    def hold(self, folder: Path | None) -> int | None:
        """The slot of an adapter, which is its own until ``release`` was called as often; None where all are in use. Raises ``ModelError``."""
        if folder is None:
            return 0
        key = _key(folder)
        if key in self._where:
            self.counts["hit"] += 1
        else:
            free = self._free()
            if free is None:
                return None
            self._put(free, self.warm(folder))
            self._where[key] = free
        self._where.move_to_end(key)
        slot = self._where[key]
        self._pins[slot] += 1
        return slot

    def release(self, slot: int) -> None:
        if slot:
            self._pins[slot] -= 1

    def _free(self) -> int | None:
        """A slot that nobody uses: an empty one, else that of the adapter whose last use is longest ago."""
        if len(self._where) < self.slots:
            return next(s for s in range(1, self.slots + 1) if s not in set(self._where.values()))
        idle = next((key for key, slot in self._where.items() if not self._pins[slot]), None)
        return None if idle is None else self._where.pop(idle)

    def _put(self, slot: int, packed: PackedAdapter) -> None:
        self.counts["device"] += 1
        if packed.rank > self.rank:
            self._widen(packed.rank)
        for (a, b), (new_a, new_b), place in zip(self.tables, packed.pairs, self.places, strict=True):
            parts = len(place.names)
            # Of a smaller rank than the table's the rest of each part is zero: it adds nothing.
            a[slot].zero_().view(parts, self.rank, -1)[:, : packed.rank] = new_a.view(parts, packed.rank, -1)
            b[slot].zero_().view(-1, parts, self.rank)[..., : packed.rank] = new_b.view(
                -1, parts, packed.rank
            )

    def _widen(self, rank: int) -> None:
        """Tables for adapters of a larger rank, with what was in the old ones."""
        old, before = self.tables, self.rank
        self.rank, self.tables = rank, []
        for number, place in enumerate(self.places):
            parts, out = len(place.names), sum(place.out)
            a = torch.zeros(1 + self.slots, parts * rank, place.width, dtype=self.dtype, device=self.device)
            b = torch.zeros(1 + self.slots, out, parts * rank, dtype=self.dtype, device=self.device)
            if before:
                was_a, was_b = old[number]
                a.view(-1, parts, rank, place.width)[:, :, :before] = was_a.view(
                    -1, parts, before, place.width
                )
                b.view(-1, out, parts, rank)[..., :before] = was_b.view(-1, out, parts, before)
            self.tables.append((a, b))


def _key(folder: Path) -> str:
    """A folder as it is now: one that was written anew is another adapter."""
    try:
        seen = (folder / adapters.WEIGHTS).stat()
    except OSError as error:
        raise ModelError(f"There is no adapter in {folder}: {error.strerror}.") from error
    return f"{folder}:{seen.st_mtime_ns}:{seen.st_size}:{seen.st_ino}"
