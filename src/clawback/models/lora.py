"""A linear layer with its LoRA as one fused operation.

PEFT computes ``W·x + s·B·(A·x)`` as three layers, a product and a sum, each leaving a tensor of the layer's
output behind, and in a 16-bit model converts the input to float32 on the way. Here the low-rank part is added
into the output of the frozen layer by the matrix product itself, and the backward pass is written out: the
frozen weight has no gradient. Weights, modules and files are the same; only ``forward`` is replaced.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clawback.models.linear import FrozenLinear, product


class _LoraLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, base: nn.Linear, a: Tensor, b: Tensor, scale: float) -> Tensor:
        """x [T, in], ``base``: a frozen layer with weight [out, in], a [rank, in], b [out, rank] → [T, out]; a and b float32, the rest alike."""
        weight, bias = base.weight, base.bias
        narrow_a, narrow_b = a.to(x.dtype), b.to(x.dtype)
        low = product(x, narrow_a)  # [T, rank]
        y = product(x, weight).addmm_(low, narrow_b.T, alpha=scale)
        if bias is not None:
            y += bias
        ctx.save_for_backward(x, weight, a, b, low)
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        flat, weight, a, b, low = ctx.saved_tensors
        grad = grads[0].reshape(-1, grads[0].shape[-1])  # [T, out]
        back = product(grad, b.to(grad.dtype).T).mul_(ctx.scale)  # [T, rank]
        # Few rows and a long sum: [rank, T] · [T, width].
        grad_a = product(back.T.contiguous(), flat.T).to(a.dtype)
        grad_b = product(low.T.contiguous(), grad.T).T.to(b.dtype).mul_(ctx.scale)
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = product(grad, weight.T).addmm_(back, a.to(grad.dtype))
        return grad_x, None, grad_a, grad_b, None


def fuse(model: nn.Module) -> int:
    """Give every plain LoRA layer of a PEFT model the fused forward; how many there were.

    Plain: one adapter without dropout, DoRA or bias, on an unquantised ``nn.Linear``. Others keep PEFT's.
    """
    from peft.tuners.lora import Linear

    count = 0
    for module in model.modules():
        if (
            type(module) is Linear
            and type(module.base_layer) in (nn.Linear, FrozenLinear)
            and not module.fan_in_fan_out
        ):
            module.forward = partial(_forward, module, type(module).forward)  # type: ignore[method-assign]
            count += 1
    return count


def _forward(layer: Any, otherwise: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    active = layer.active_adapters
    name = active[0] if active else None
    base = layer.base_layer
    if layer.disable_adapters and not layer.merged:
        return base(x)  # type: ignore[no-any-return]
    plain = (
        len(active) == 1
        and name in layer.lora_A
        and name not in layer.lora_variant
        and not (layer.merged or layer.lora_bias[name] or args or kwargs)
        and isinstance(layer.lora_dropout[name], nn.Identity)
        and x.dtype == base.weight.dtype
        and not torch.is_autocast_enabled(x.device.type)
    )
    if not plain:
        return otherwise(layer, x, *args, **kwargs)  # type: ignore[no-any-return]
    a, b = layer.lora_A[name].weight, layer.lora_B[name].weight
    scale = float(layer.scaling[name])
    flat = x.reshape(-1, x.shape[-1])
    result: Tensor = _LoraLinear.apply(flat, base, a, b, scale)  # type: ignore[no-untyped-call]
    return result.view(
        *x.shape[:-1], -1
    )  # out here: what a model may add to in place is no view from within a function
