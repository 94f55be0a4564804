"""Linear layers whose own weight is frozen, alone or under a LoRA, at the price of their matrix products on a CPU.

Two things that the stock layers pay for and these do not:

* **The slower library.** PyTorch multiplies float32 on a CPU with MKL, which on AMD leaves AVX-512 unused: 110 GFLOP/s a core
  where oneDNN, which PyTorch ships too and uses for bfloat16, reaches 240 on the same machine with the same
  precision. ``product`` goes to oneDNN.
* **Passes over memory.** PEFT's LoRA casts its input to float32, scales, adds and casts back, each a pass over [tokens, width] that
  autograd keeps a copy of. Here it is one function: ``x·Wᵀ + s·(x·Aᵀ)·Bᵀ``, the second product added into the first,
  in the dtype of the model; A and B stay float32, and so do their gradients. Only x and x·Aᵀ are kept.

The choice depends on the kind of processor and never on a measurement, so that the same run gives the same bits.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@cache
def _onednn() -> bool:
    """True where float32 products go through oneDNN: a processor with AVX-512 and a torch that has the operator."""
    return (
        torch.backends.mkldnn.is_available()
        and str(torch.backends.cpu.get_cpu_capability()).startswith("AVX512")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def product(x: Tensor, weight: Tensor) -> Tensor:
    """[…, K], [N, K] → […, N]: ``x · weightᵀ``. The weight may be a transposed view. No gradient."""
    if (
        x.dtype == torch.float32
        and x.device.type == "cpu"
        and weight.dtype == x.dtype
        and x.numel()
        and _onednn()
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


class _Adapted(torch.autograd.Function):
    """``x·Wᵀ + s·(x·Aᵀ)·Bᵀ``, with gradients for x, A and B."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])  # [T, K]
        low = product(flat, a.to(x.dtype))  # [T, r]
        out = product(flat, weight).addmm_(low, b.to(x.dtype).t(), alpha=scale)  # [T, N]
        ctx.save_for_backward(flat, low, weight, a, b)
        ctx.scale, ctx.shape = scale, x.shape
        return out.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, Tensor, Tensor, None]:
        flat, low, weight, a, b = ctx.saved_tensors
        grad = grads[0].reshape(-1, grads[0].shape[-1])  # [T, N]
        down = product(grad, b.to(grad.dtype).t()).mul_(ctx.scale)  # [T, r]
        for_x = None
        if ctx.needs_input_grad[0]:
            for_x = product(grad, weight.t()).addmm_(down, a.to(grad.dtype)).view(ctx.shape)
        # As [r, T] · [T, N]: few rows and a long sum, which is the form that these libraries are quick at.
        for_a = product(down.t().contiguous(), flat.t()).to(a.dtype)  # [r, K]
        for_b = product(low.t().contiguous(), grad.t()).mul_(ctx.scale).t().to(b.dtype)  # [N, r]
        return for_x, None, for_a, for_b, None


class FrozenLinear(nn.Linear):
    """An ``nn.Linear`` that is not trained."""

    def forward(self, input: Tensor) -> Tensor:
        if self.weight.requires_grad:
            return functional.linear(input, self.weight, self.bias)
        if torch.is_grad_enabled() and input.requires_grad:
            out: Tensor = _Frozen.apply(input, self.weight)  # type: ignore[no-untyped-call]
        else:
            out = product(input, self.weight)
        return out if self.bias is None else out + self.bias


@cache
def _adapted() -> type[nn.Module]:
    """The class of a LoRA on a ``FrozenLinear``; made late, because PEFT takes a second to import."""
    from peft.tuners.lora.layer import Linear

    class AdaptedLinear(Linear):
        """PEFT's layer; what is not plain LoRA (merged, several at once, DoRA, dropout, …) is left to PEFT."""

        def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            base, active = self.base_layer, self.active_adapters
            if args or kwargs or self.merged or not isinstance(base, FrozenLinear):
                return super().forward(x, *args, **kwargs)
            if self.disable_adapters or not any(name in self.lora_A for name in active):
                return base(x)  # type: ignore[no-any-return]
            if not self._is_plain(active):
                return super().forward(x)
            name = active[0]
            a, b = self.lora_A[name].weight, self.lora_B[name].weight
            out: Tensor = _Adapted.apply(x, base.weight, a, b, float(self.scaling[name]))  # type: ignore[no-untyped-call]
            return out if base.bias is None else out + base.bias

        def _is_plain(self, active: list[str]) -> bool:
            name = active[0]
            return (
                len(active) == 1
                and name not in self.lora_variant
                and not self.lora_bias[name]
                and not self.fan_in_fan_out
                and (not self.training or isinstance(self.lora_dropout[name], nn.Identity))
            )

    return AdaptedLinear


def quicken(model: nn.Module) -> None:
    """Make the linear layers of a model on a CPU the quick ones, in place. Only their forward changes: weights, names
    and what is saved stay as they are. Quantised and other special layers are left alone, and so is the LM head."""
    if next(model.parameters()).device.type != "cpu":
        return
    inner: Any = model
    head = inner.get_output_embeddings()
    for module in model.modules():
        if type(module) is nn.Linear and module is not head and not module.weight.requires_grad:
            module.__class__ = FrozenLinear
    if hasattr(model, "peft_config"):
        from peft.tuners.lora.layer import Linear

        for module in model.modules():
            if type(module) is Linear and isinstance(module.base_layer, FrozenLinear):
                module.__class__ = _adapted()  # type: ignore[assignment]
