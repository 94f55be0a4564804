"""Full-parameter versions: what training adds to the base's own weights, stored separately (a *delta*).

Every weight W of the decoder's layers and of its last norm is used as ``W + D``. D is float32 on any base, so
that small updates are not rounded away; W is never written to. So the base is the same model with D left out,
bit for bit, and a version is D in one file. Embeddings, LM head, routers and vision encoders stay as they
are, as with a LoRA.

A model can hold several deltas, under names, beside LoRA adapters; one of them is active at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from clawback.errors import ModelError
from clawback.files import sync
from clawback.models.identity import ROUTERS, STAMP, check_base, in_layer, stamp
from clawback.models.types import ModelInfo

WEIGHTS = "delta.safetensors"
NAME = "default"
_PREFIX = "delta_"
MARK = f".{_PREFIX}"
"""In the names of parameters that are deltas."""


class Delta(nn.Module):
    """What is added to one weight: a tensor for each name, and which of them is on."""

    def __init__(self) -> None:
        super().__init__()
        self.active: str | None = None

    def forward(self, weight: Tensor) -> Tensor:
        if self.active is None:
            return weight
        return (weight.float() + self.of(self.active)).to(weight.dtype)

    def of(self, name: str) -> nn.Parameter:
        found: nn.Parameter = getattr(self, _PREFIX + name)
        return found

    def names(self) -> set[str]:
        return {name.removeprefix(_PREFIX) for name, _ in self.named_parameters()}

    def add(self, name: str, values: Tensor, *, trained: bool) -> None:
        self.register_parameter(_PREFIX + name, nn.Parameter(values, requires_grad=trained))


def there(folder: Path) -> bool:
    """Whether a folder holds a delta rather than an adapter."""
    return (folder / WEIGHTS).is_file()


def carried(model: nn.Module) -> bool:
    """Whether there is a delta on this model, on or off."""
    return any(isinstance(part, Delta) for part in model.modules())


def active(model: nn.Module) -> str | None:
    """The name of the delta that is on."""
    return next((part.active for part in model.modules() if isinstance(part, Delta)), None)


def speak(model: nn.Module, name: str | None) -> None:
    """Have this delta on, or none."""
    for part in model.modules():
        if isinstance(part, Delta):
            part.active = name if name in part.names() else None


@contextmanager
def off(model: nn.Module) -> Iterator[None]:
    """The base's own weights, within."""
    before = active(model)
    speak(model, None)
    try:
        yield
    finally:
        speak(model, before)


def attach(model: nn.Module, name: str = NAME) -> None:
    """Put a fresh delta of zeros on a base model, on and trainable. Raises ``ModelError`` where its weights cannot take one."""
    wanted = weights(model)
    if not wanted or any(not weight.dtype.is_floating_point for _, _, weight in wanted.values()):
        raise ModelError(
            "Weights that are quantised cannot all be trained: set model.load_in_4bit to false, or [training] full to false."
        )
    for module, leaf, weight in wanted.values():
        fresh = torch.zeros_like(weight, dtype=torch.float32, requires_grad=False)
        _part(module, leaf).add(name, fresh, trained=True)
    speak(model, name)


def put(model: nn.Module, info: ModelInfo, folder: Path, name: str = NAME) -> nn.Module:
    """Put the delta of a folder on its base model, on. Raises ``ModelError`` for what is damaged or does not fit."""
    tensors = read(folder)
    stamped(folder, info)
    wanted = weights(model)
    odd = sorted(set(wanted) ^ set(tensors)) or sorted(
        path for path, (_, _, weight) in wanted.items() if weight.shape != tensors[path].shape
    )
    if odd:
        raise ModelError(
            f"The version {folder} does not fit {info.base} ({odd[0]}). Load it on its own base."
        )
    for path, (module, leaf, weight) in wanted.items():
        _part(module, leaf).add(name, tensors[path].float().to(weight.device), trained=False)
    speak(model, name)
    return model


def read(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder. Nothing but safetensors is opened. Raises ``ModelError``."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if (folder / "adapter_model.safetensors").exists():
        raise ModelError(
            f"{folder} holds both an adapter and a delta, so nobody knows which is meant. It was not loaded."
        )
    try:
        tensors: dict[str, Tensor] = load_file(folder / WEIGHTS)
    except (OSError, ValueError, RecursionError, SafetensorError) as error:
        raise ModelError(
            f"The version {folder} is damaged: {error}. Roll back to another version."
        ) from error
    broken = sorted(
        path for path, t in tensors.items() if not t.dtype.is_floating_point or not t.isfinite().all()
    )
    if broken:
        raise ModelError(
            f"The version {folder} holds values that are not finite, in {broken[0]}. Roll back to another version."
        )
    return tensors


def write(model: nn.Module, info: ModelInfo, folder: Path, name: str = NAME) -> None:
    """Write a delta into a folder that exists, and fsync it. The bytes depend on the weights alone."""
    from safetensors.torch import save_file

    tensors = {
        path: part.of(name).detach().cpu().contiguous()
        for path, (_, _, part) in sorted(_parts(model).items())
    }
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / STAMP).write_text(stamp(info, kind="delta"), "utf-8")
    for path in (folder / WEIGHTS, folder / STAMP, folder):
        sync(path)


def stamped(folder: Path, info: ModelInfo) -> None:
    """A delta means nothing on another base, so unlike an adapter it has to say which it was made for. Raises ``ModelError``."""
    if not (folder / STAMP).is_file():
        raise ModelError(f"The version {folder} does not say which base it was made for: {STAMP} is missing.")
    check_base(folder, info)


def remove(model: nn.Module, name: str) -> None:
    """Take one delta off; with the last one the base's own weights are the modules' again."""
    for module, leaf, part in _parts(model).values():
        if name in part.names():
            delattr(part, _PREFIX + name)
            part.active = None if part.active == name else part.active
        if not part.names():
            parametrize.remove_parametrizations(module, leaf, leave_parametrized=False)


def strip(model: nn.Module) -> None:
    """Take all deltas off."""
    for name in {name for _, _, part in _parts(model).values() for name in part.names()}:
        remove(model, name)


def fold(model: nn.Module) -> None:
    """Add the delta that is on into the weights, for good."""
    for module, leaf, _ in _parts(model).values():
        parametrize.remove_parametrizations(module, leaf, leave_parametrized=True)
        getattr(module, leaf).requires_grad_(False)


def weights(model: nn.Module) -> dict[str, tuple[nn.Module, str, Tensor]]:
    """(module, name in it, the base's own tensor) of each weight that is trained, by its path in the bare model."""
    inner: Any = model
    causal: nn.Module = inner.get_base_model() if hasattr(inner, "get_base_model") else inner
    found: dict[str, tuple[nn.Module, str, Tensor]] = {}
    for path, module in causal.named_modules():
        if isinstance(module, (Delta, parametrize.ParametrizationList)) or "lora_" in path:
            continue
        own = [(leaf, p) for leaf, p in module.named_parameters(recurse=False)]
        if parametrize.is_parametrized(module):
            own += [(leaf, kept.original) for leaf, kept in module.parametrizations.items()]
        plain = ".".join(part for part in path.split(".") if part != "base_layer")
        if plain.rsplit(".", 1)[-1] in ROUTERS or not (in_layer(plain) or _last_norm(plain)):
            continue
        found |= {f"{plain}.{leaf}": (module, leaf, weight) for leaf, weight in own}
    return found


def _last_norm(path: str) -> bool:
    return path in ("model.norm", "transformer.ln_f", "model.final_layernorm", "gpt_neox.final_layer_norm")


def _part(module: nn.Module, leaf: str) -> Delta:
    """Where a weight's deltas are, made where there was none."""
    if not parametrize.is_parametrized(module, leaf):
        parametrize.register_parametrization(module, leaf, Delta(), unsafe=True)
    kept: Any = module.parametrizations
    part: Delta = kept[leaf][0]
    return part


def _parts(model: nn.Module) -> dict[str, tuple[nn.Module, str, Delta]]:
    """(module, name in it, its deltas) of each weight that has some, by its path."""
    return {
        path: (module, leaf, _part(module, leaf))
        for path, (module, leaf, _) in weights(model).items()
        if parametrize.is_parametrized(module, leaf)
    }
