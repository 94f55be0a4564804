"""Matrix products by the faster of the two libraries that PyTorch has for them on a CPU.

PyTorch multiplies float32 with MKL, which on AMD leaves AVX-512 unused: 110 GFLOP/s per core where oneDNN,
which PyTorch ships too and uses for bfloat16, reaches 240 on the same machine with the same precision.
``product`` uses oneDNN, and ``FrozenLinear`` uses it for the layers of a model.

The choice depends on the kind of processor and never on a measurement, so that the same run gives the same
bits.
"""

from __future__ import annotations

from functools import cache
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
