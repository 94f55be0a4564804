"""A copy of a GGUF file in which some tensors are others: header, tokenizer and every other tensor byte for byte.

Only where a changed tensor needs another type do sizes differ; then the header's entries of types and offsets, which
are of one width, are written anew, and nothing else of it.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from clawback.errors import ModelError
from clawback.files import sync
from clawback.models.gguf_file import GgufFile, Tensor

if TYPE_CHECKING:
    from clawback.extensions.publishers.gguf_codes import Array

    Change = Callable[[Tensor, Array], tuple[Array, int]]
    """A tensor and its bytes [rows, bytes of a row] → other bytes of as many rows, and their type."""

ROOM = 64 << 20
"""Bytes of the disk that stay free."""
_PIECE = 16 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a file."""

    path: Path
    changed: tuple[str, ...]
    widened: tuple[str, ...]
    """Of the changed ones, those that have another type than before."""
    size: int


def write(header: GgufFile, changes: Mapping[str, Change], out: Path) -> Written:
    """Write the copy beside ``out``, sync it, and rename it. Tensors are read and written one at a time.

    Raises ``ModelError`` where the disk is too small. Whatever fails, ``out`` is as it was before.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    _check_room(header.path.stat().st_size, out.parent)
    part = out.with_name(f".{out.name}.part")
    try:
        with header.path.open("rb") as source, part.open("w+b") as target:
            shutil.copyfileobj(_Slice(source, 0, header.weights), target, _PIECE)
            written = _tensors(header, changes, source, target)
        sync(part)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    widened = tuple(name for name, (before, now) in written.items() if before != now)
    return Written(out, tuple(written), widened, out.stat().st_size)


def read_tensor(header: GgufFile, tensor: Tensor) -> Array:
    """uint8 [rows, bytes of a row]."""
    with header.path.open("rb") as file:
        return _rows(tensor, _read(file, header.weights + tensor.offset, _bytes(tensor)))


def _tensors(
    header: GgufFile, changes: Mapping[str, Change], source: IO[bytes], target: IO[bytes]
) -> dict[str, tuple[int, int]]:
    """Copy and change tensors in the order of the file; name → (type before, type now) of the changed ones."""
    step = int(header.metadata.get("general.alignment") or 32)
    kinds: dict[str, tuple[int, int]] = {}
    ordered = sorted(header.tensors, key=lambda tensor: tensor.offset)
    at, end = 0, 0
    for tensor in ordered:
        length = _bytes(tensor)
        target.write(b"\0" * (-at % step))
        at += -at % step
        kind, offset = tensor.kind, at
        if tensor.name in changes:
            data = _rows(tensor, _read(source, header.weights + tensor.offset, length))
            changed, kind = changes[tensor.name](tensor, data)
            target.write(changed.data.cast("B"))
            at += changed.nbytes
            kinds[tensor.name] = (tensor.kind, kind)
        else:
            shutil.copyfileobj(_Slice(source, header.weights + tensor.offset, length), target, _PIECE)
            at += length
        if (kind, offset) != (tensor.kind, tensor.offset):
            target.seek(tensor.entry)
            target.write(struct.pack("<IQ", kind, offset))
            target.seek(0, 2)
        end = tensor.offset + length
    source.seek(header.weights + end)
    target.write(source.read(_PIECE))  # what pads the last one
    return kinds


def _bytes(tensor: Tensor) -> int:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    block, width = GGML_QUANT_SIZES[GGMLQuantizationType(tensor.kind)]
    return tensor.elements // block * width


def _rows(tensor: Tensor, data: bytes) -> Array:
    import numpy as np

    rows = tensor.elements // tensor.shape[0]
    return np.frombuffer(data, np.uint8).reshape(rows, -1)


def _read(source: IO[bytes], start: int, length: int) -> bytes:
    source.seek(start)
    return source.read(length)


def _check_room(size: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < size + ROOM:
        raise ModelError(
            f"The merged model takes {size / 1e9:.1f} GB of disk in {folder}, and {free / 1e9:.1f} GB are free. "
            "Make room, or name another folder."
        )


class _Slice:
    """A part of a file as a file of its own, to be read once."""

    def __init__(self, file: IO[bytes], start: int, length: int) -> None:
        self.file, self.left = file, length
        file.seek(start)

    def read(self, most: int = -1) -> bytes:
        data = self.file.read(min(self.left, most) if most >= 0 else self.left)
        self.left -= len(data)
        return data
