"""The products that a decoder's step is made of: a module's weights, joined, cast and put in the order in which they are multiplied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from clawback.models import delta, product


@dataclass(frozen=True, slots=True)
class Linear:
    weight: Tensor
    bias: Tensor | None
    ordered: PackedWeight | None = None
    """The same once more, for several rows."""

    def __call__(self, x: Tensor) -> Tensor:
        # oneDNN's way in costs 8 µs, more than it saves a single row.
        if self.ordered is not None and x.numel() > x.shape[-1]:
            return self.ordered(x)
        if self.bias is None and self.weight.dtype == torch.float32 and x.numel() > x.shape[-1]:
            return product(x, self.weight)
        return functional.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight in the order in which oneDNN's products want it: without that it is put in order for every product anew."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(flat, self.weight, self.bias, "none", [], "")
        return out.view(*x.shape[:-1], -1)


@dataclass(frozen=True, slots=True)
class Several:
    """Layers of the same input, whose outputs stand side by side."""

    parts: tuple[Linear, ...]

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], -1)


@dataclass(frozen=True, slots=True)
class Norm:
    weight: Tensor
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        """In float32 whatever comes in."""
        x = x.float()
        scale = x.square().mean(-1, keepdim=True).add_(self.epsilon).rsqrt_()
        return (x * scale).mul_(self.weight)


Product = Linear | PackedWeight | Several


@dataclass(frozen=True, slots=True)
class DecoderBlock:
    input_norm: Norm
    qkv: Product
    q_norm: Norm | None
    k_norm: Norm | None
    out: Product
    after: Norm
    gate_up: Product
    act: Any
    down: Product
    scaling: float


def adapted(causal: Any) -> bool:
    """Whether an adapter or a delta is active, so that the weights of the layers are not the module's own."""
    return delta.active(causal) is not None or any(
        not layer.disable_adapters and not layer.merged
        for layer in causal.modules()
        if hasattr(layer, "disable_adapters") and hasattr(layer, "merged")
    )


def can_pack() -> bool:
    """Whether oneDNN has products of bfloat16 on this processor."""
    ops = torch.ops.mkldnn
    return (
        torch.backends.mkldnn.is_available()
        and hasattr(ops, "_reorder_linear_weight")
        and hasattr(ops, "_is_mkldnn_bf16_supported")
        and bool(ops._is_mkldnn_bf16_supported())
    )


def norm(module: Any) -> Norm:
    return Norm(module.weight.detach().float(), float(module.variance_epsilon))


def cast(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if tensor is None else tensor.to(dtype)


def effective(module: Any) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a linear layer with its active adapters added in."""
    base = getattr(module, "base_layer", module)
    weight: Tensor = base.weight
    if base is not module and not module.disable_adapters and not module.merged:
        for name in module.active_adapters:
            if name in module.lora_A:
                weight = weight + module.get_delta_weight(name)
    return weight, base.bias
