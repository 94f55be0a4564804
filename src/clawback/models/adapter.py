"""LoRA adapters: which layers get one, and how they are read from and written to a folder safely.

A folder is what PEFT reads and writes (``adapter_model.safetensors``, ``adapter_config.json``) with
``clawback.json`` beside it, which identifies the base that it was made for by fingerprint. Before anything of
a folder is used, its tensors are checked against the base: names, shapes, finite values.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from clawback.errors import ModelError
from clawback.files import sync
from clawback.models import delta, lora_config
from clawback.models.identity import ROUTERS, STAMP, check_base, in_layer, stamp
from clawback.models.linear import fuse
from clawback.models.types import ModelInfo

if TYPE_CHECKING:
    from clawback.records import JsonObject

# PEFT asks every model for an attribute that transformers is about to rename: nothing that a user could mend.
warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*", category=FutureWarning)
# It looks for the patterns of fused experts among modules, and finds none, although it uses them.
warnings.filterwarnings(
    "ignore", message=".*_pattern keys did not match any targeted module.*", category=RuntimeWarning
)

WEIGHTS = "adapter_model.safetensors"
CONFIG = lora_config.CONFIG
NAME = "default"
"""The name under which PEFT holds the adapter."""

_PAST_THEIR_MODULE = ("out_proj", "dt_proj")
"""Layers of a state space whose weights fast kernels read directly, so that a LoRA there would not be seen."""


def targets(model: nn.Module) -> tuple[list[str], list[str]]:
    """(modules, parameters) that get a LoRA: every linear map of the decoder's layers.

    Embeddings and the LM head are left out: their LoRA would cost more than all others together. So is the router of a
    mixture of experts: a nudge there sends tokens elsewhere altogether. Experts that transformers fuses into one
    3-D parameter are named as parameters. Names are suffixes, as PEFT and vLLM want them, where that is unambiguous.
    """
    from transformers.pytorch_utils import Conv1D

    inner: Any = model
    head = inner.get_output_embeddings()
    linear = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, (nn.Linear, Conv1D)) and module is not head and not _of_a_family(module)
    }
    unseen = {
        f"{name}.{leaf}"
        for name, module in model.named_modules()
        if _state_space(module)
        for leaf in _PAST_THEIR_MODULE
    }
    wanted = {name for name in linear if in_layer(name) and _leaf(name) not in ROUTERS and name not in unseen}
    fused = {name for name, p in model.named_parameters() if p.ndim == 3 and ".experts." in name}
    if fused:
        leaves = {_leaf(name) for name in wanted}
        wanted -= {name for name in wanted if _leaf(name) in _converted(model, leaves)}
    modules = _short_names(model, sorted(wanted))
    parameters = sorted({".".join(name.split(".")[-3:]) for name in fused})
    if not modules and not parameters:
        raise ModelError(f"{type(model).__name__} has no linear layers that a LoRA could be put on.")
    return modules, parameters


def _of_a_family(module: nn.Module) -> bool:
    """Whether this linear layer computes something of its family's own (grouped products), which a LoRA beside it would not."""
    kind = type(module)
    return kind.__module__.startswith("transformers.models.") and "forward" in vars(kind)


def _state_space(module: nn.Module) -> bool:
    """Whether this is the mixer of a Mamba layer, of any kind: it has the decay of its states and what passes them by as parameters."""
    names = {name for name, _ in module.named_parameters(recurse=False)}
    return {"A_log", "D"} <= names


def _leaf(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _short_names(model: nn.Module, names: list[str]) -> list[str]:
    """Last parts of whole names, where they mean the same modules of the model; else the names as they are."""
    leaves = sorted({_leaf(name) for name in names})
    matched = {name.replace(".base_layer", "") for name, _ in model.named_modules() if _leaf(name) in leaves}
    plain = {name.removeprefix("base_model.model.") for name in matched}
    return leaves if plain == set(names) else names


def _converted(model: nn.Module, leaves: Iterable[str]) -> set[str]:
    """Names that PEFT takes for those of fused experts (``gate_proj`` for ``gate_up_proj``), wherever else in the model they are.

    PEFT cannot express a LoRA on a dense layer's or a shared expert's ``gate_proj`` beside one on the experts'
    ``gate_up_proj``, so the former gets none.
    """
    from peft import LoraConfig
    from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers

    found = set()
    for leaf in leaves:
        config = LoraConfig(target_modules=[leaf])
        try:
            convert_peft_config_for_transformers(config, model=model, conversions=None)
        except ValueError:  # it is one of several that are fused into one
            found.add(leaf)
        else:
            if leaf not in (config.target_modules or ()):
                found.add(leaf)
    return found


def attach(model: nn.Module, info: ModelInfo, *, rank: int, alpha: int, seed: int) -> nn.Module:
    """Put a fresh LoRA on a base model: B is zero, so that nothing changes until it is trained.

    A is drawn from ``seed`` alone, on the CPU, whatever the process drew before. Weights of the LoRA are float32 on
    any base, so that small updates are not rounded away.
    """
    from peft import LoraConfig, get_peft_model

    modules, parameters = targets(model)
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=rank,
        lora_alpha=alpha,
        lora_dropout=0.0,
        bias="none",
        target_modules=modules,
        target_parameters=parameters or None,
        base_model_name_or_path=getattr(model, "name_or_path", info.base),
    )
    wrapped: nn.Module = get_peft_model(model, config)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in sorted(wrapped.named_parameters()):
        if "lora_A" in name:
            bound = parameter.shape[-1] ** -0.5  # PEFT's own: kaiming_uniform with a = √5
            fresh = torch.rand(parameter.shape, generator=generator) * (2 * bound) - bound
            parameter.data = fresh.to(parameter.device)
        elif "lora_B" in name:
            parameter.data = torch.zeros_like(parameter, dtype=torch.float32)
    fuse(wrapped)
    wrapped.eval()
    return wrapped


def read(folder: Path) -> tuple[JsonObject, dict[str, Tensor]]:
    """Configuration and tensors of an adapter folder, PEFT's or mlx-lm's. Nothing but JSON and safetensors is opened.

    Raises ``ModelError`` for what is missing, damaged, not a plain LoRA, or not finite.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not (folder / WEIGHTS).is_file():
        from clawback.models import mlx_adapter

        if mlx_adapter.there(folder):
            config, tensors = mlx_adapter.read(folder)
            lora_config.check(folder, config, tensors)
            _check_finite(folder, tensors)
            return config, tensors
    if not (folder / WEIGHTS).is_file():
        if any(folder.glob("adapter_model.*")):
            raise ModelError(
                f"The adapter {folder} holds pickled weights, which may run code when loaded. It was not opened."
            )
        raise ModelError(f"There is no adapter in {folder}: {WEIGHTS} is missing.")
    try:
        config = json.loads((folder / CONFIG).read_text("utf-8"))
        tensors = load_file(folder / WEIGHTS)
    except (OSError, ValueError, RecursionError, SafetensorError) as error:
        raise ModelError(
            f"The adapter {folder} is damaged: {error}. Roll back to another version."
        ) from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise ModelError(f"The adapter {folder} is not a LoRA (peft_type LORA in {CONFIG}).")
    lora_config.check(folder, config, tensors)
    _check_finite(folder, tensors)
    return lora_config.plain(folder, config, tensors)


def _check_finite(folder: Path, tensors: dict[str, Tensor]) -> None:
    broken = sorted(name for name, tensor in tensors.items() if not tensor.isfinite().all())
    if broken:
        raise ModelError(
            f"The adapter {folder} holds values that are not finite, in {broken[0]}. Roll back to another version."
        )


def put(model: nn.Module, info: ModelInfo, folder: Path, name: str = NAME) -> nn.Module:
    """Put the adapter of a folder on its base model, beside those that are on it already under other names.

    Raises ``ModelError`` where it was made for another base (both are named), or does not fit.
    """
    if delta.there(folder):
        return delta.put(model, info, folder, name)
    config, tensors = read(folder)
    check_base(folder, info)
    _check_targets(model, folder, tensors)
    wrapped = _shell(model, info, config, name)
    expected = _state(wrapped, name)
    if set(expected) != set(tensors) or any(expected[k].shape != tensors[k].shape for k in tensors):
        differing = sorted(set(expected) ^ set(tensors)) or [
            k for k in tensors if expected[k].shape != tensors[k].shape
        ]
        remove(wrapped, name)
        raise ModelError(
            f"The adapter {folder} was made for {config.get('base_model_name_or_path') or 'another model'} and does "
            f"not fit {info.base} ({differing[0]}). Load it on the base it was made for."
        )
    # Not by PEFT's own loader: for some families it renames keys as transformers does with a checkpoint's, and drops what it then does not find.
    with torch.no_grad():
        for key, tensor in tensors.items():
            expected[key].copy_(tensor)
    fuse(wrapped)
    wrapped.eval()
    return wrapped


def _check_targets(model: nn.Module, folder: Path, tensors: dict[str, Tensor]) -> None:
    """Raises ``ModelError`` for a LoRA on the embeddings or the LM head, which scoring and sampling read past PEFT."""
    inner: Any = model
    inner = inner.get_base_model() if hasattr(inner, "get_base_model") else inner
    ends = (inner.get_input_embeddings(), inner.get_output_embeddings())
    left_out = {name for name, module in inner.named_modules() if any(module is end for end in ends)}
    for name in sorted({lora_config.module_of(key) for key in tensors} & left_out):
        raise lora_config.unsupported(folder, "target_modules", name)


def write(model: nn.Module, info: ModelInfo, folder: Path) -> None:
    """Write the active adapter into a folder that exists, and fsync it. The bytes depend on the weights alone."""
    from safetensors.torch import save_file

    if delta.carried(model):
        delta.write(model, info, folder)
        return
    inner: Any = model
    config = inner.peft_config[NAME].to_dict()
    config["inference_mode"] = True
    config = {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}
    tensors = {name: t.detach().cpu().contiguous() for name, t in sorted(_state(model).items())}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True, default=str) + "\n", "utf-8")
    (folder / STAMP).write_text(stamp(info), "utf-8")
    for path in (folder / WEIGHTS, folder / CONFIG, folder / STAMP, folder):
        sync(path)


def receive(folder: Path, info: ModelInfo) -> None:
    """Check an adapter that came from elsewhere, mark it as one of this base, and fsync it. Raises ``ModelError``."""
    read(folder)
    (folder / STAMP).write_text(stamp(info), "utf-8")
    for path in (*folder.iterdir(), folder):
        sync(path)


@contextmanager
def merged(model: nn.Module) -> Iterator[None]:
    """The adapter added into the weights, within; afterwards the very tensors of the base are back, not a rounding of them.

    A small model samples half as fast again. It takes a second copy of the layers' weights while it lasts. Where some
    part of the adapter is no plain linear LoRA, nothing is merged.
    """
    from peft.tuners.lora.layer import Linear, LoraLayer

    layers: list[Any] = [part for part in model.modules() if isinstance(part, LoraLayer)]
    if not all(isinstance(layer, Linear) and not layer.disable_adapters for layer in layers):
        yield
        return
    before = [layer.get_base_layer().weight.data for layer in layers]
    try:
        for layer in layers:
            layer.merge(safe_merge=True)  # "safe": into a new tensor
        yield
    finally:
        for layer, weight in zip(layers, before, strict=True):
            layer.get_base_layer().weight.data = weight
            layer.merged_adapters.clear()


def strip(model: nn.Module) -> nn.Module:
    """The base model as it was before an adapter was put on it."""
    delta.strip(model)
    inner: Any = model
    if not hasattr(inner, "peft_config"):
        return model
    return _unwrapped(inner)


def _unwrapped(inner: Any) -> nn.Module:
    base: nn.Module = inner.unload()
    for name in ("peft_config", "_hf_peft_config_loaded"):
        vars(base).pop(name, None)  # set on the model itself; some are on its class, too, and stay there
    return base


def remove(model: nn.Module, name: str) -> nn.Module:
    """Take one adapter off; with the last one goes all that was put around the base model."""
    delta.remove(model, name)
    inner: Any = model
    if name not in getattr(inner, "peft_config", {}):
        return model
    if set(inner.peft_config) == {name}:
        return _unwrapped(inner)
    inner.delete_adapter(name)
    return model


def _state(model: nn.Module, name: str = NAME) -> dict[str, Tensor]:
    from peft import get_peft_model_state_dict

    return dict(get_peft_model_state_dict(model, adapter_name=name, save_embedding_layers=False))


def _shell(model: nn.Module, info: ModelInfo, config: JsonObject, name: str) -> nn.Module:
    """A LoRA of the shape that the folder says, without its values. Only fields that a plain LoRA has are taken over."""
    from peft import LoraConfig, get_peft_model

    plain = LoraConfig(
        task_type="CAUSAL_LM",
        r=config["r"],
        lora_alpha=config["lora_alpha"],
        lora_dropout=0.0,
        bias="none",
        use_rslora=bool(config.get("use_rslora", False)),
        fan_in_fan_out=bool(config.get("fan_in_fan_out", False)),
        rank_pattern=config.get("rank_pattern") or {},
        alpha_pattern=config.get("alpha_pattern") or {},
        target_modules=_short_names(model, config.get("target_modules") or []),
        target_parameters=config.get("target_parameters") or None,
        base_model_name_or_path=getattr(model, "name_or_path", info.base),
    )
    try:
        inner: Any = model
        if hasattr(model, "peft_config"):
            inner.add_adapter(name, plain)
            wrapped: nn.Module = model
        else:
            wrapped = get_peft_model(inner, plain, adapter_name=name)
    except (ValueError, TypeError, KeyError) as error:
        raise ModelError(
            f"The adapter was made for {config.get('base_model_name_or_path') or 'another model'} and does not fit "
            f"{info.base}: {str(error).splitlines()[0]}"
        ) from error
    for key, parameter in wrapped.named_parameters():
        if "lora_" in key:
            parameter.data = parameter.data.float()
    return wrapped
