"""Linear layers: their matrix products by the faster library, and with a LoRA as one fused operation.

PyTorch multiplies float32 with MKL, which on AMD leaves AVX-512 unused: 110 GFLOP/s per core where oneDNN,
which PyTorch ships too and uses for bfloat16, reaches 240 on the same machine with the same precision.
``product`` uses oneDNN, and ``FrozenLinear`` uses it for the layers of a model.

The choice depends on the kind of processor and never on a measurement, so that the same run gives the same
bits.

PEFT computes ``W·x + s·B·(A·x)`` as three layers, a product and a sum, each leaving a tensor of the layer's
output behind, and in a 16-bit model converts the input to float32 on the way. Here the low-rank part is added
into the output of the frozen layer by the matrix product itself, and the backward pass is written out: the
frozen weight has no gradient. Weights, modules and files are the same; only ``forward`` is replaced.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@cache
def onednn() -> bool:
    """True where float32 products go through oneDNN: a processor with AVX-512 and a torch that has the operator."""
    return (
        torch.backends.mkldnn.is_available()
        and str(torch.backends.cpu.get_cpu_capability()).startswith("AVX512")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )


def wide(tokens: int) -> int:
    """Round a width up to four values per octave: each new width costs oneDNN a compilation and some megabytes that it keeps."""
    step = max(8, 1 << max(0, tokens.bit_length() - 3))
    return tokens + -tokens % step


def product(x: Tensor, weight: Tensor) -> Tensor:
    """[…, K], [N, K] → […, N]: ``x · weightᵀ``. The weight may be a transposed view. No gradient."""
    if (
        x.dtype == torch.float32
        and x.device.type == "cpu"
        and weight.dtype == x.dtype
        and x.numel()
        and onednn()
    ):
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
        return result
    return functional.linear(x, weight)


class _Frozen(torch.autograd.Function):
    """``x·Wᵀ``, with a gradient for x only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return product(x, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        return product(grads[0], weight.t()), None


class FrozenLinear(nn.Linear):
    """An ``nn.Linear`` that is not trained."""

    def forward(self, input: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias  # once: a weight with a delta is added up when it is asked for
        if weight.requires_grad:
            return functional.linear(input, weight, bias)
        if torch.is_grad_enabled() and input.requires_grad:
            out: Tensor = _Frozen.apply(input, weight)  # type: ignore[no-untyped-call]
        else:
            out = product(input, weight)
        return out if bias is None else out + bias


def quicken(model: nn.Module) -> None:
    """Make the frozen linear layers of a model on a CPU the quick ones, in place. Only their forward changes: weights,
    names and what is saved stay as they are. Quantised and other special layers are left alone, and the LM head is but for its input (``_contiguous_inputs``)."""
    if next(model.parameters()).device.type != "cpu":
        return
    inner: Any = model
    head = inner.get_output_embeddings()
    if isinstance(head, nn.Module):
        head.register_forward_pre_hook(_contiguous_inputs)
    for module in model.modules():
        if type(module) is nn.Linear and module is not head and not module.weight.requires_grad:
            module.__class__ = FrozenLinear


def _contiguous_inputs(_: nn.Module, inputs: tuple[object, ...]) -> tuple[object, ...]:
    """The same inputs, tensors in one piece. Of the last column of several rows (``logits_to_keep=1``) PyTorch 2.13 multiplies each row by a copy of the weights: in
    bfloat16 16 rows of Gemma 3 270M took 5 GB and two minutes in place of 0.07 s."""
    return tuple(value.contiguous() if isinstance(value, Tensor) else value for value in inputs)


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
