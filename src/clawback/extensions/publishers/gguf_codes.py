"""Changes of quantised weights on their own grid: a block keeps its scales, and only the codes of its weights move.

A GGUF block holds scales and one small integer, the *code*, for each weight; a weight is ``offset + step · code``. The
types below store codes in one or two bit fields. Where the fields are is all that this file knows; offset and step come
from the ``gguf`` package, which dequantises a block with all codes 0 and with all codes 1.

A change is often smaller than a step. Rounding to the nearest code would then return the old code almost everywhere, and
the change would be lost as a whole. So the rounding is dithered (Roberts 1962): a change of a tenth of a step moves one
code in ten, and the mean over many weights, which is what a matrix product sees, is the change itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

CLIPPED = 0.1
"""Share of a tensor's change (by its squares) that may fall off the ends of the grids before a wider type is used."""
_ROWS = 1 << 20
"""Weights that are worked on at a time."""


@dataclass(frozen=True)
class CodeField:
    """Bits of a block's codes: for each weight of the block the byte, and the shift in it."""

    byte: Array
    shift: Array
    bits: int

    def read(self, blocks: Array) -> Array:
        return (blocks[:, self.byte] >> self.shift) & np.uint8((1 << self.bits) - 1)

    def write(self, blocks: Array, values: Array) -> None:
        mask = np.uint8((1 << self.bits) - 1)
        for shift in np.unique(self.shift):  # within one shift every weight has a byte of its own
            members = self.shift == shift
            columns = self.byte[members]
            kept = blocks[:, columns] & np.uint8(~(int(mask) << int(shift)) & 0xFF)
            blocks[:, columns] = kept | ((values[:, members] & mask) << shift)


@dataclass(frozen=True)
class CodeLayout:
    """Where the codes of a block are."""

    fields: tuple[CodeField, ...]
    """Low bits first."""
    signed: bool = False
    """Codes are two's complement bytes."""

    @property
    def largest(self) -> int:
        return (1 << sum(field.bits for field in self.fields)) - 1

    def codes(self, blocks: Array) -> Array:
        """[blocks, bytes] → [blocks, weights], from 0 up."""
        found, shift = np.zeros((len(blocks), len(self.fields[0].byte)), np.uint8), 0
        for field in self.fields:
            found |= field.read(blocks) << np.uint8(shift)
            shift += field.bits
        return found ^ np.uint8(0x80) if self.signed else found

    def store(self, blocks: Array, codes: Array) -> Array:
        """A copy of the blocks with other codes."""
        changed, shift = blocks.copy(), 0
        values = codes ^ np.uint8(0x80) if self.signed else codes
        for field in self.fields:
            field.write(changed, values >> np.uint8(shift))
            shift += field.bits
        return changed


def _halves(first: int, count: int = 32) -> CodeField:
    """Low nibbles of ``count / 2`` bytes, then their high nibbles."""
    index = np.arange(count)
    return CodeField(first + index % (count // 2), (4 * (index // (count // 2))).astype(np.uint8), 4)


def _bands(first: int, wide: int, bits: int) -> CodeField:
    """256 weights in bands of ``wide``: as many bands share a run of bytes as fields fit into a byte."""
    index, per_byte = np.arange(256), 8 // bits
    run = index // (wide * per_byte)
    return CodeField(
        first + run * wide + index % wide, (bits * (index // wide % per_byte)).astype(np.uint8), bits
    )


def _bit_of(first: int) -> CodeField:
    """Bit i of 32 bits in a row."""
    index = np.arange(32)
    return CodeField(first + index // 8, (index % 8).astype(np.uint8), 1)


@cache
def layouts() -> dict[Any, CodeLayout]:
    """Types whose weights are ``offset + step · code``."""
    from gguf import GGMLQuantizationType as Kind

    byte = CodeField(2 + np.arange(32), np.zeros(32, np.uint8), 8)
    return {
        Kind.Q4_0: CodeLayout((_halves(2),)),
        Kind.Q4_1: CodeLayout((_halves(4),)),
        Kind.Q5_0: CodeLayout((_halves(6), _bit_of(2))),
        Kind.Q5_1: CodeLayout((_halves(8), _bit_of(4))),
        Kind.Q8_0: CodeLayout((byte,), signed=True),
        Kind.Q2_K: CodeLayout((_bands(16, 32, 2),)),
        Kind.Q3_K: CodeLayout((_bands(32, 32, 2), _bands(0, 32, 1))),
        Kind.Q4_K: CodeLayout((_bands(16, 32, 4),)),
        Kind.Q5_K: CodeLayout((_bands(48, 32, 4), _bands(16, 32, 1))),
        Kind.Q6_K: CodeLayout((_bands(0, 64, 4), _bands(128, 32, 2))),
    }


def dequantised(data: Array, kind: Any) -> Array:
    """[rows, bytes] of a type → float32 [rows, weights]."""
    from gguf.quants import dequantize

    flat = np.ascontiguousarray(data).reshape(1, -1)  # as one row: the package goes by rows in Python
    return np.asarray(dequantize(flat, kind), dtype=np.float32).reshape(len(data), -1)


def added(data: Array, kind: object, change: Array, seed: int) -> tuple[Array, Any]:
    """A quantised tensor with a change added: (its bytes, their type), which is the same type where it holds the change.

    Args:
        data: uint8 [rows, bytes].
        change: float32 [rows, weights].
        seed: of the dither.
    """
    from gguf import GGMLQuantizationType as Kind

    if kind in layouts():
        moved, lost = _on_grid(data, kind, change, seed)
        if lost <= CLIPPED:
            return moved, kind
    floats = kind in (Kind.F32, Kind.F16, Kind.BF16)
    wide = kind if floats else Kind.Q8_0 if change.shape[-1] % 32 == 0 else Kind.F16
    parts = [_rounded(dequantised(data[rows], kind) + change[rows], wide) for rows in _pieces(*change.shape)]
    return np.concatenate(parts), wide


def _on_grid(data: Array, kind: object, change: Array, seed: int) -> tuple[Array, float]:
    """Blocks with moved codes, and the share of the change that fell off the ends of their grids."""
    generator, parts, lost = np.random.Generator(np.random.SFC64(seed)), [], 0.0
    for rows in _pieces(*change.shape):
        moved, beyond = _moved(data[rows], kind, change[rows], generator)
        parts.append(moved)
        lost += beyond
    return np.concatenate(parts), lost / max(float(np.square(change, dtype=np.float64).sum()), 1e-30)


def _moved(data: Array, kind: Any, change: Array, generator: np.random.Generator) -> tuple[Array, float]:
    from gguf import GGML_QUANT_SIZES

    layout = layouts()[kind]
    weights, width = GGML_QUANT_SIZES[kind]
    blocks = np.ascontiguousarray(data).reshape(-1, width)
    codes = layout.codes(blocks)
    offset = dequantised(layout.store(blocks, np.zeros_like(codes)), kind)
    step = dequantised(layout.store(blocks, np.ones_like(codes)), kind) - offset
    wanted = change.reshape(-1, weights) / np.where(step == 0, np.inf, step)
    dither = generator.random(wanted.shape, np.float32)
    stored = np.clip(codes + np.floor(wanted + dither), 0, layout.largest)
    reached = (np.clip(codes + wanted, 0, layout.largest) - codes) * step
    lost = float(np.square(reached - change.reshape(-1, weights), dtype=np.float64).sum())
    return layout.store(blocks, stored.astype(np.uint8)).reshape(data.shape), lost


def _rounded(values: Array, kind: Any) -> Array:
    """float32 [rows, weights] → uint8 [rows, bytes]."""
    from gguf.quants import quantize

    flat = np.ascontiguousarray(values, np.float32).reshape(1, -1)
    return np.ascontiguousarray(quantize(flat, kind)).view(np.uint8).reshape(len(values), -1)


def _pieces(rows: int, weights: int) -> list[slice]:
    count = max(1, _ROWS // max(weights, 1))
    return [slice(start, start + count) for start in range(0, rows, count)]
