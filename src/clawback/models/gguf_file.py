"""Reads the header of a GGUF file, without its weights and without any library.

The layout is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3,
little-endian.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

from clawback.errors import ModelError
from clawback.files import sample

MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_FIXED = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
"""Value types of one size, as ``struct`` writes them."""
_ALIGNMENT = 32
NO_LANGUAGE_MODEL = {
    "bert",
    "nomic-bert",
    "nomic-bert-moe",
    "jina-bert-v2",
    "clip",
    "t5",
    "t5encoder",
    "whisper",
}
"""Architectures of encoders, of vision and of speech: nothing that answers."""
FLOAT32, BFLOAT16 = 0, 30
"""GGML's numbers of weights in these two."""
_STORAGES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip
"""What ``general.file_type`` means (``llama_ftype`` of llama.h)."""


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    """As the file has it: the fastest dimension first."""
    kind: int
    """GGML's number of how it is stored."""
    offset: int
    """Bytes after the beginning of the weights."""
    entry: int = 0
    """Where the header says how it is stored and where: ``kind`` (4 bytes), then ``offset`` (8)."""

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The header of a GGUF file."""

    path: Path
    metadata: Mapping[str, Any]
    """Numbers and texts by their GGUF keys; an array is only its length, but for arrays of a few numbers."""
    tensors: tuple[Tensor, ...]
    weights: int
    """Where the weights begin, in bytes."""

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    @property
    def title(self) -> str:
        return str(self.metadata.get("general.name") or self.path.stem)

    @property
    def licence(self) -> str:
        """As the file names it, such as ``apache-2.0``; empty where it says nothing."""
        named = self.metadata.get("general.license.name") or self.metadata.get("general.license") or ""
        return str(named)

    @property
    def template(self) -> str:
        """The chat template (Jinja); empty where there is none."""
        return str(self.metadata.get("tokenizer.chat_template") or "")

    @property
    def storage(self) -> str:
        """How most weights are stored, such as ``Q4_K_M``; empty where the file does not say."""
        return _STORAGES.get(_number(self.metadata.get("general.file_type", -1)), "")

    @property
    def converted_dtype(self) -> Literal["float32", "float16", "bfloat16"]:
        """In what a conversion keeps the weights: as the file does, if that is no quantisation. Quantised blocks have float16 scales, so
        float16 loses least of them in 16 bits."""
        counts: Counter[int] = Counter()
        for tensor in self.tensors:
            counts[tensor.kind] += tensor.elements
        most = counts.most_common(1)[0][0] if counts else -1
        return "float32" if most == FLOAT32 else "bfloat16" if most == BFLOAT16 else "float16"

    @property
    def converted_bytes(self) -> int:
        """Size of the folder that a conversion makes, about."""
        return self.parameters * (4 if self.converted_dtype == "float32" else 2)

    @property
    def parameters(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def vocabulary(self) -> int:
        return _number(self.metadata.get("tokenizer.ggml.tokens")) or self.number("vocab_size")

    def number(self, key: str) -> int:
        """A size of the architecture (``context_length``), the largest where each layer has its own; 0 where it is not said."""
        return _number(self.metadata.get(f"{self.architecture}.{key}"))

    @property
    def problem(self) -> str:
        """Why this cannot become a base, in a sentence; empty where nothing speaks against it."""
        if self.metadata.get("general.type") == "adapter":
            return f"{self.path} is an adapter, not a model. Name the GGUF file of a whole model."
        if self.architecture in NO_LANGUAGE_MODEL:
            return f"{self.path} is no chat model: its architecture is {self.architecture}. Name a language model."
        if int(self.metadata.get("split.count") or 1) > 1:
            return (
                f"{self.path} is one part of several. Join them first: llama-gguf-split --merge FIRST WHOLE."
            )
        size = self.path.stat().st_size
        if not self.tensors or any(self.weights + tensor.offset >= size for tensor in self.tensors):
            return f"{self.path} is cut off: it ends before its weights do. Fetch it again."
        return ""

    def identity(self) -> str:
        """``sha256:…`` over the header and a sample of the weights: tells files apart in milliseconds, whatever their size."""
        with self.path.open("rb") as file:
            digest = hashlib.sha256(file.read(self.weights))
        sample(self.path, digest)
        return f"sha256:{digest.hexdigest()}"


def is_gguf(path: Path) -> bool:
    """Whether a file begins as GGUF files do, whatever it is called."""
    try:
        with path.open("rb") as file:
            return file.read(4) == MAGIC
    except OSError:
        return False


def read(path: Path) -> GgufFile:
    """Raises ``ModelError`` for a file that is not GGUF, is damaged, or ends within its header."""
    try:
        with path.open("rb") as file:
            if file.read(4) != MAGIC:
                raise ModelError(f"{path} is no GGUF file.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _parse(path, content)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (struct.error, UnicodeDecodeError, _Damaged) as error:
        raise ModelError(f"{path} is damaged or cut off within its header. Fetch it again.") from error


class _Damaged(Exception):
    """The header says something that cannot be."""


class _Cursor:
    """Reads values one after another. Every length is checked against what is there before it is believed."""

    def __init__(self, content: mmap.mmap, at: int) -> None:
        self.content, self.at = content, at

    def take(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.content, self.at)
        self.at += struct.calcsize(form)
        return value

    def skip(self, count: int) -> int:
        """Where the next ``count`` bytes begin."""
        start = self.at
        if count > len(self.content) - start:
            raise _Damaged
        self.at += count
        return start

    def text(self) -> str:
        length = self.take("<Q")
        start = self.skip(length)
        return self.content[start : start + length].decode("utf-8")

    def value(self) -> Any:
        kind = self.take("<I")
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            if kind not in _FIXED:
                raise _Damaged
            return self.take(_FIXED[kind])
        kind, count = self.take("<I"), self.take("<Q")
        if kind == _STRING:
            for _ in range(count):
                self.skip(self.take("<Q"))
            return count
        if kind not in _FIXED:
            raise _Damaged
        width = struct.calcsize(_FIXED[kind])
        start = self.skip(count * width)
        few = count <= 1024
        return list(struct.unpack_from(f"<{count}{_FIXED[kind][1]}", self.content, start)) if few else count


def _parse(path: Path, content: mmap.mmap) -> GgufFile:
    cursor = _Cursor(content, 4)
    version, count, pairs = cursor.take("<I"), cursor.take("<Q"), cursor.take("<Q")
    if version not in (2, 3):
        raise ModelError(
            f"{path} is GGUF of version {version}, which nothing here reads. Fetch a newer file."
        )
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        key = cursor.text()
        metadata[key] = cursor.value()
    tensors = []
    for _ in range(count):
        name, dimensions = cursor.text(), cursor.take("<I")
        if dimensions > 8:
            raise _Damaged
        shape = tuple(cursor.take("<Q") for _ in range(dimensions))
        entry = cursor.at
        tensors.append(Tensor(name, shape, cursor.take("<I"), cursor.take("<Q"), entry))
    step = int(metadata.get("general.alignment") or _ALIGNMENT)
    return GgufFile(path, metadata, tuple(tensors), -(-cursor.at // step) * step)


def _number(value: object) -> int:
    if isinstance(value, list):
        return max((int(one) for one in value), default=0)
    return int(value) if isinstance(value, (int, float)) else 0
