"""Merges a version into a copy of a GGUF file of its base, so that whatever loads GGUF files loads the version.

Which tensor of the file is which weight of the model, and in which order its rows are, is what transformers' own reader
of GGUF files knows. It is asked, and not repeated here: what it does to a tensor of row numbers says where each number
goes. Before anything is written, tensors of the file are compared with the same weights of the base, so that a file of
another model, or one in an order that is not known, is refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from clawback import installed
from clawback.errors import MissingExtra, ModelError
from clawback.extensions.publishers import gguf_codes, gguf_writer
from clawback.models import UnloadedModel, adapter, delta, gguf_file, identity, look, module_of
from clawback.models.gguf_file import GgufFile

if TYPE_CHECKING:
    from clawback.extensions.publishers.gguf_codes import Array
    from clawback.extensions.publishers.gguf_writer import Written

ALIKE = 0.8
"""Cosine between a tensor of the file and the base's own weight, at least; two bits a weight leave 0.95, another order of rows about 0."""

Deltas = Mapping[str, Callable[[], Tensor]]
"""By the names of the model's parameters: what a version adds to each."""


def merge(file: Path, base: str, revision: str | None, folder: Path, out: Path) -> Written:
    """Write a copy of ``file`` with the version in ``folder`` added to its weights.

    Args:
        base: what the version was made for, as ``models.look`` takes it.

    Raises:
        ModelError: no whole model, a file of another model, or a weight that has no place in it.
        MissingExtra: the ``gguf`` package is not installed.
    """
    try:
        import gguf  # noqa: F401
    except ImportError as error:
        raise MissingExtra(f"Writing GGUF needs another part: {installed.add('gguf')}.") from error
    header = gguf_file.read(file)
    if header.problem:
        raise ModelError(header.problem)
    found = look(base, revision)
    model = _skeleton(found)
    deltas = deltas_of(model, folder)
    atlas = _Atlas.of(header, model, deltas, found.folder)
    changes = {name: partial(_changed, atlas, deltas) for name in atlas.changed(deltas)}
    return gguf_writer.write(header, changes, out)


def _skeleton(source: UnloadedModel) -> nn.Module:
    """The model without values: names and shapes."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(source.source, **source.options)
    with torch.device("meta"):
        model: nn.Module = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    return model


def _changed(atlas: _Atlas, deltas: Deltas, tensor: gguf_file.Tensor, data: Array) -> tuple[Array, int]:
    from gguf import GGMLQuantizationType

    change = atlas.in_file(tensor, deltas[atlas.names[tensor.name]]().numpy())
    seed = zlib.crc32(tensor.name.encode())
    changed, kind = gguf_codes.added(data, GGMLQuantizationType(tensor.kind), change, seed)
    return changed, int(kind)


# ------------------------------------------------------------------------------------------------- what is added


def deltas_of(model: nn.Module, folder: Path) -> Deltas:
    """What a version adds, computed when it is asked for. ``model`` needs names and shapes alone."""
    if delta.there(folder):
        return {name: partial(_float, tensor) for name, tensor in delta.read(folder).items()}
    config, tensors = adapter.read(folder)
    if config.get("target_parameters"):
        raise ModelError(
            "Adapters of fused experts cannot be merged into a GGUF file. "
            "`clawback versions publish merged --output FOLDER` writes a model that llama.cpp's convert_hf_to_gguf.py reads."
        )
    scale = float(config["lora_alpha"]) / float(config["r"])
    pairs: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        pairs.setdefault(module_of(key), {})["B" if ".lora_B." in key else "A"] = tensor
    return {
        f"{module}.weight": partial(_product, pair["A"], pair["B"], scale, _transposed(model, module))
        for module, pair in pairs.items()
    }


def _transposed(model: nn.Module, module: str) -> bool:
    from transformers.pytorch_utils import Conv1D

    try:
        return isinstance(model.get_submodule(module), Conv1D)
    except AttributeError as error:
        raise ModelError(f"The model has no {module}, which the version changes.") from error


def _product(a: Tensor, b: Tensor, scale: float, transposed: bool) -> Tensor:
    """a [rank, in], b [out, rank] → [out, in], or [in, out]."""
    product = (b.float() * scale) @ a.float()
    return product.T.contiguous() if transposed else product


def _float(tensor: Tensor) -> Tensor:
    return tensor.float()


# ------------------------------------------------------------------------------------- where it belongs in the file


class _Atlas:
    """Which tensor of a file holds which parameter, and in which order."""

    def __init__(self, names: Mapping[str, str], processor: Any) -> None:
        self.names, self.processor = names, processor

    @classmethod
    def of(cls, header: GgufFile, model: nn.Module, deltas: Deltas, folder: Path) -> _Atlas:
        """Raises ``ModelError`` where a changed parameter has no tensor, or the file is not one of this model."""
        unlike = ""
        for processor in _processors(header.architecture, model):
            atlas = cls(_names(header, _Flat(model), processor), processor)
            if atlas.missing(
                deltas
            ):  # some families are named from an inner module on, which takes much longer
                atlas = cls(_names(header, model, processor), processor)
            if missing := atlas.missing(deltas):
                raise ModelError(f"{header.path} has no place for {missing[0]} of this version.")
            unlike = atlas._unlike(header, deltas, folder)
            if not unlike:
                return atlas
        raise ModelError(
            f"{header.path} is not a file of the version's base: its {unlike} holds other weights, or in another order."
        )

    def changed(self, deltas: Deltas) -> list[str]:
        """Tensors of the file that a version changes."""
        return [name for name, parameter in self.names.items() if parameter in deltas]

    def missing(self, deltas: Deltas) -> list[str]:
        """Parameters of a version that no tensor of the file holds."""
        return sorted(set(deltas) - {self.names[name] for name in self.changed(deltas)})

    def in_model(self, tensor: gguf_file.Tensor, values: Array) -> Array:
        """Values of a tensor of the file, in the order of the model."""
        result = self.processor.process(
            weights=values, name=tensor.name, tensor_key_mapping=self.names, parsed_parameters={"tensors": {}}
        )
        return np.asarray(result.weights)

    def in_file(self, tensor: gguf_file.Tensor, values: Array) -> Array:
        """Values of a parameter as rows in the order of the file."""
        shape = tensor.shape[::-1]
        numbers = np.arange(tensor.elements, dtype=np.int64).reshape(shape)
        places = self.in_model(tensor, numbers)
        if places is numbers and values.shape == shape:
            return values.reshape(-1, tensor.shape[0])
        if len(shape) == 1:  # norms may be stored with one added
            places = places - self.in_model(tensor, np.zeros(shape, np.int64))
        change = np.full(tensor.elements, np.nan, np.float32)
        if places.shape == values.shape:
            change[places.reshape(-1)] = values.reshape(-1)
        if np.isnan(change).any():
            raise ModelError(f"How {tensor.name} of the file is made from the model's weight is not known.")
        return change.reshape(-1, tensor.shape[0])

    def _unlike(self, header: GgufFile, deltas: Deltas, folder: Path) -> str:
        """The first of the changed tensors, one of each kind, that is not like the base's own weight; "" where all are."""
        own = _Weights(folder)
        kinds: set[str] = set()
        tensors = {tensor.name: tensor for tensor in header.tensors}
        for name in self.changed(deltas):
            kind = name.split(".", 2)[-1]
            expected = own.read(self.names[name]) if kind not in kinds else None
            if expected is None:
                continue
            kinds.add(kind)
            values = self.in_model(tensors[name], _values(header, tensors[name])).reshape(-1)
            other = expected.reshape(-1)
            if values.shape != other.shape:
                return name
            length = float(np.linalg.norm(values)) * float(np.linalg.norm(other))
            if float(values @ other) < ALIKE * length:
                return name
        return ""


def _processors(architecture: str, model: nn.Module) -> list[Any]:
    """How transformers reads tensors of this architecture; where it does not know it, the two orders of rows that there are."""
    from transformers import modeling_gguf_pytorch_utils as reader

    config: Any = model.config
    known = reader.TENSOR_PROCESSORS.get(architecture)
    supported = architecture in reader.GGUF_SUPPORTED_ARCHITECTURES
    kinds: list[Any] = [known] if known else [reader.TensorProcessor]
    if not known and not supported:
        kinds.append(reader.LlamaTensorProcessor)
    return [kind(config=config.get_text_config().to_dict()) for kind in kinds]


class _Flat:
    """A model without its inner modules."""

    def __init__(self, model: nn.Module) -> None:
        self.config: Any = model.config
        self.state_dict = model.state_dict

    def named_children(self) -> list[tuple[str, nn.Module]]:
        return []


def _names(header: GgufFile, model: nn.Module | _Flat, processor: Any) -> dict[str, str]:
    """Tensor of the file → parameter of the model."""
    from transformers.modeling_gguf_pytorch_utils import get_gguf_hf_weights_map

    config: Any = model.config
    layers = int(config.get_text_config().num_hidden_layers)
    try:
        names = get_gguf_hf_weights_map(model, processor, header.architecture, layers)
    except NotImplementedError as error:
        raise ModelError(
            f"The installed gguf package does not know the architecture {header.architecture!r}. Run: {installed.add_package('-U gguf')}"
        ) from error
    held = {tensor.name for tensor in header.tensors}
    return {name: parameter for name, parameter in names.items() if name in held}


class _Weights:
    """The base's own weights, read one at a time."""

    def __init__(self, folder: Path) -> None:
        from safetensors import safe_open

        opened: Any = safe_open
        self.files: list[Any] = [opened(path, "pt") for path in identity.weight_files(folder)]

    def read(self, name: str) -> Array | None:
        for file in self.files:
            if name in file.keys():  # noqa: SIM118 (no mapping)
                values: Array = file.get_tensor(name).float().numpy()
                return values
        return None


def _values(header: GgufFile, tensor: gguf_file.Tensor) -> Array:
    from gguf import GGMLQuantizationType

    data = gguf_writer.read_tensor(header, tensor)
    return gguf_codes.dequantised(data, GGMLQuantizationType(tensor.kind)).reshape(tensor.shape[::-1])
