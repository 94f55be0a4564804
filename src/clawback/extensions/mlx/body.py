"""A model's weights in MLX, with LoRA on its linear maps: token ids in, hidden states out, and the backward pass.

The architectures are mlx-lm's. The weights come from the transformers model that was loaded and checked, so
that every source of models (folder, hub, GGUF) is read by one piece of code; each tensor is freed there as
soon as MLX holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import torch
from mlx import nn
from numpy.typing import NDArray
from torch import Tensor

from clawback.errors import ModelError

if TYPE_CHECKING:
    from clawback.records import JsonObject

Values = NDArray[Any]

_FRONT = "base_model.model."
"""What PEFT puts before the name of a module."""
_AGREE = 1e-3
"""Largest difference of a hidden state, relative to the largest state, at which two implementations are the same in float32."""


class Lora(nn.Module):  # type: ignore[misc]
    """A linear map and what an adapter adds to it: ``x·Wᵀ + s·(x·Aᵀ)·Bᵀ``; without A the map alone."""

    def __init__(self, inner: Any, scale: float) -> None:
        super().__init__()
        self.inner, self.scale = inner, scale
        self.a: mx.array | None = None
        self.b: mx.array | None = None

    def __call__(self, x: mx.array) -> mx.array:
        y = self.inner(x)
        if self.a is None or self.b is None:
            return y
        low = (x.astype(mx.float32) @ self.a.T) @ self.b.T
        return y + (self.scale * low).astype(y.dtype)


class MlxBody:
    """One model in MLX. ``carry`` names the maps that have an adapter; A and B are given with every call."""

    def __init__(self, model: Any) -> None:
        self.model = model
        if not hasattr(model, "model") or not hasattr(model, "layers"):
            raise ModelError(
                f"mlx-lm builds {type(model).__module__} in a way that Clawback does not know. Use the torch engine."
            )
        self.carried: dict[str, Lora] = {}

    # ------------------------------------------------------------------------------------------- the adapter

    def carry(self, scales: Mapping[str, float]) -> None:
        """Put a LoRA on these modules (PEFT's names), and take it off all others. Raises ``ModelError`` for a name that the model lacks."""
        for name, lora in self.carried.items():
            self._replace(name, lora.inner)
        self.carried = {}
        for name, scale in scales.items():
            lora = Lora(self._find(name), scale)
            self._replace(name, lora)
            self.carried[name] = lora

    def use(self, arrays: Sequence[tuple[mx.array, mx.array]] | None) -> None:
        """A and B of each carried module in order; None: the base model."""
        for place, lora in enumerate(self.carried.values()):
            lora.a, lora.b = (None, None) if arrays is None else arrays[place]

    def _find(self, name: str) -> Any:
        found = self.model
        try:
            for part in name.removeprefix(_FRONT).split("."):
                found = found[int(part)] if part.isdigit() else found[part]
        except (KeyError, IndexError, TypeError) as error:
            raise ModelError(
                f"MLX's model has no {name}, which the adapter changes. Use the torch engine."
            ) from error
        return found

    def _replace(self, name: str, module: Any) -> None:
        front, _, leaf = name.removeprefix(_FRONT).rpartition(".")
        self._find(front)[leaf] = module

    # --------------------------------------------------------------------------------------- there and back

    def states(self, ids: Values, places: Values, arrays: Sequence[mx.array], on: bool) -> Values:
        """[N, H] float32 hidden states at ``places`` of the flattened [rows, time] ``ids``. ``arrays``: A, B, A, B, …"""
        self.use(_pairs(arrays) if on else None)
        return np.array(self._run(mx.array(ids), mx.array(places)))

    def pull(
        self, ids: Values, places: Values, arrays: Sequence[mx.array], wanted: Sequence[int], gradient: Values
    ) -> list[Values]:  # fmt: skip
        """Gradients of the ``wanted`` arrays, given that of the states [N, H]. The states are computed again: nothing was kept."""
        there, at = mx.array(ids), mx.array(places)

        def forward(*chosen: mx.array) -> list[mx.array]:
            every = list(arrays)
            for place, array in zip(wanted, chosen, strict=True):
                every[place] = array
            self.use(_pairs(every))
            return [self._run(there, at)]

        _, found = mx.vjp(forward, [arrays[i] for i in wanted], [mx.array(gradient)])
        mx.eval(found)
        self.use(None)
        return [np.array(one) for one in found]

    def _run(self, ids: mx.array, places: mx.array) -> mx.array:
        hidden = self.model.model(ids)  # [rows, time, H]
        return hidden.reshape(-1, hidden.shape[-1])[places].astype(mx.float32)


def _pairs(arrays: Sequence[mx.array]) -> list[tuple[mx.array, mx.array]]:
    return list(zip(arrays[::2], arrays[1::2], strict=True))


def array(tensor: Tensor) -> mx.array:
    """A copy in MLX, in the same dtype."""
    flat = tensor.detach().cpu().contiguous()
    if flat.dtype == torch.bfloat16:  # NumPy has none
        return mx.array(flat.view(torch.int16).numpy()).view(mx.bfloat16)
    return mx.array(flat.numpy())


def take(model: Any) -> MlxBody:
    """The weights of a transformers model into MLX, and out of torch: what is left there has their shapes, and no content but the LM head's.

    Raises ``ModelError`` where mlx-lm does not know the architecture, or computes something else.
    """
    config = _config(model)
    try:
        from mlx_lm.utils import _get_classes

        kind, settings = _get_classes(config=config)
        made = kind(settings.from_dict(config))
        weights = {name: array(tensor) for name, tensor in model.state_dict().items()}
        made.load_weights(list(getattr(made, "sanitize", dict)(weights).items()))
        made.eval()
        mx.eval(made.parameters())
    except (ImportError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(
            f"mlx-lm cannot hold this model ({config.get('model_type')}): {error}. Use the torch engine."
        ) from error
    body = MlxBody(made)
    _check(model, body)
    _empty(model)
    return body


def _config(model: Any) -> JsonObject:
    """As mlx-lm reads it: transformers 5 keeps what rotates positions under another name."""
    config: JsonObject = model.config.to_dict()
    rope = dict(config.get("rope_parameters") or {})
    if "rope_theta" in rope:
        config["rope_theta"] = rope.pop("rope_theta")
        plain = rope.get("rope_type", "default") == "default"
        config["rope_scaling"] = None if plain else rope
    config.pop("model_file", None)  # would name code of the model's repository
    return config


@torch.no_grad()
def _check(model: Any, body: MlxBody) -> None:
    """A few tokens through both: an architecture that differs by a detail must not be trained as if it did not."""
    count = model.config.get_text_config().vocab_size
    ids = torch.randint(0, count, (2, 9), generator=torch.Generator().manual_seed(0))
    theirs = getattr(model, model.base_model_prefix)(input_ids=ids).last_hidden_state.float()
    ours = torch.from_numpy(body.states(ids.numpy(), np.arange(18), [], on=False)).view_as(theirs)
    off, size = float((ours - theirs).abs().max()), float(theirs.abs().max())
    exact = next(model.parameters()).dtype == torch.float32
    if not off <= (_AGREE if exact else 0.1) * size:
        raise ModelError(
            f"MLX's {model.config.model_type} and transformers' differ by {off:.2g} in states of up to {size:.2g}. Use the torch engine."
        )


def _empty(model: Any) -> None:
    """Let torch's weights go. Only shapes are read of them from here on, and whoever runs the model all the same is told."""
    head = model.get_output_embeddings().weight
    for parameter in model.parameters():
        if parameter is not head:
            parameter.data = torch.zeros(1, dtype=parameter.dtype).expand(parameter.shape)

    def refuse(*_: Any, **__: Any) -> object:
        raise ModelError(
            'This needs the torch engine (engine = "torch" under [model]): MLX holds this model\'s weights.'
        )

    model.forward = refuse
    getattr(model, model.base_model_prefix).forward = refuse
