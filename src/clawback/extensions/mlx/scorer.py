"""Log-probabilities from MLX's hidden states: the torch scorer with another source of states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import torch
from torch import Tensor, nn

from clawback.extensions.mlx.body import MlxBody, Values, array
from clawback.scoring import Scorer
from clawback.templates import Encoded


class _States(torch.autograd.Function):
    """[N, H] states as a function of A's and B's."""

    @staticmethod
    def forward(ctx: Any, body: MlxBody, ids: Values, places: Values, on: bool, *weights: Tensor) -> Tensor:  # fmt: skip
        arrays = [array(weight) for weight in weights]
        ctx.kept = body, ids, places, arrays
        return torch.from_numpy(body.states(ids, places, arrays, on))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        body, ids, places, arrays = ctx.kept
        wanted = [i for i in range(len(arrays)) if ctx.needs_input_grad[4 + i]]
        found = body.pull(ids, places, arrays, wanted, grads[0].float().numpy())
        given: list[Tensor | None] = [None] * len(arrays)
        for place, gradient in zip(wanted, found, strict=True):
            given[place] = torch.from_numpy(gradient)
        return (None, None, None, None, *given)


class MlxScorer(Scorer):
    """Everything but ``states`` is the torch scorer's: heads, pieces, exact divergences, entropies."""

    def __init__(self, model: nn.Module, body: MlxBody, *, temperature: float = 1.0) -> None:
        self._mlx = body
        super().__init__(model, temperature=temperature)

    def _probe(self) -> None:
        """Nothing to find out: ``body.take`` compared the states, and rows are padded."""
        self.packed, self.fused_head = False, True

    def states(self, encoded: Sequence[Encoded], *, share: bool = True) -> Tensor:  # noqa: ARG002 — nothing is shared
        lengths = [len(one.prompt) + len(one.response) - 1 for one in encoded]
        ids = np.zeros((len(encoded), max(lengths)), dtype=np.int32)
        wanted = np.zeros(ids.shape, dtype=bool)
        for row, (one, length) in enumerate(zip(encoded, lengths, strict=True)):
            ids[row, :length] = [*one.prompt, *one.response[:-1]]
            wanted[row, len(one.prompt) - 1 : length] = True
        places = np.flatnonzero(wanted).astype(np.int32)
        states: Tensor = _States.apply(self._mlx, ids, places, adapted(self.model), *weights(self.model))  # type: ignore[no-untyped-call]
        return states.to(self._dtype)


def weights(model: nn.Module) -> list[Tensor]:
    """A, B, A, B, … of a PEFT model, in the order in which a body carries them."""
    named = dict(model.named_parameters())
    return [
        named[f"{name}.{part}.default.weight"] for name in carriers(model) for part in ("lora_A", "lora_B")
    ]


def carriers(model: nn.Module) -> dict[str, float]:
    """The modules of a PEFT model that have a plain linear LoRA, with its scale."""
    from peft.tuners.lora.layer import LoraLayer

    layers: dict[str, Any] = {
        name: part for name, part in model.named_modules() if isinstance(part, LoraLayer)
    }
    return {name: float(layers[name].scaling["default"]) for name in sorted(layers)}


def adapted(model: nn.Module) -> bool:
    """Whether there is an adapter and it is switched on."""
    from peft.tuners.lora.layer import LoraLayer

    first: Any = next((part for part in model.modules() if isinstance(part, LoraLayer)), None)
    return first is not None and not first.disable_adapters


def arrays(model: nn.Module) -> list[tuple[mx.array, mx.array]] | None:
    """A and B as they stand, for answers that are drawn; None for the base."""
    if not adapted(model):
        return None
    flat = [array(weight) for weight in weights(model)]
    return list(zip(flat[::2], flat[1::2], strict=True))
